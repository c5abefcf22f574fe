"""No drafter: proposes nothing, so every tree is its root. This is the baseline, in the same loop as everything else."""

from engine.models import LoadedPair
from engine.tree import DraftTree


class NoDrafter:
    def __init__(self, pair: LoadedPair, capacity: int):
        pass

    def begin(self, prompt: list[int]) -> None:
        pass

    def log_q(self, tree: DraftTree, nodes: list[int]) -> None:
        return None

    def commit(self, tree: DraftTree, path: list[int], bonus: int) -> None:
        pass
