"""Models: pairs of a target and its draft, their loading, what is refused, and text of tokens. Knows no tree and no policy."""
