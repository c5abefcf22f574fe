"""No drafter: proposes nothing, so every tree is its root. This is the baseline; it runs in the same loop as every system."""

import torch

from engine.contracts import Counterpart, Drafter
from engine.models.pairs import LoadedPair
from engine.tree import DraftTree


class NoDrafter(Drafter):
    title = "no draft"
    about = "Guesses nothing: every token comes from the target."
    source = "autoregressive decoding"
    counterpart = Counterpart("no draft")
    on_device = True
    guesses = False

    def __init__(self, pair: LoadedPair, capacity: int):
        pass

    def begin(self, prompt: list[int], features: torch.Tensor | None = None) -> None:
        pass

    def log_q(self, tree: DraftTree, nodes: list[int]) -> None:
        return None

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: torch.Tensor | None = None) -> None:
        pass
