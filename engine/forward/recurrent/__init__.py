"""Models whose layers keep a state. A guess that was rejected cannot be cut out of it, so trees are verified path by path."""
