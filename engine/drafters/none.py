"""No drafter: proposes nothing, so every tree is its root. This is the baseline; it runs in the same loop as every system."""

from engine.contracts import NO_GUESSES, Drafter
from engine.tree import DraftTree


class NoDrafter(Drafter):
    title = "no draft"
    about = "Guesses nothing: every token comes from the target."
    source = "autoregressive decoding"
    guess_origin = NO_GUESSES

    def log_q(self, tree: DraftTree, nodes: list[int]) -> None:
        return None
