"""Widths policy: a fixed number of independent draws behind every node of a level (SpecInfer, Miao et al. 2024)."""

from collections import Counter
from collections.abc import Iterable
from math import prod

from engine.policies.chains import MergedChains
from engine.policies.shared.asking import GrowingTree, LevelByLevelPolicy


class FixedWidths(LevelByLevelPolicy):
    title = "fixed widths"
    about = "A fixed number of independent draws behind every node."
    source = "SpecInfer (Miao et al. 2024)"
    supported_proposal_modes = frozenset({"with replacement"})

    def validate_and_precompute(self) -> None:
        self.widths = widths_within_budget(self.depth, self.width, self.nodes)
        self.depth = len(self.widths)

    list_candidate_shapes = MergedChains.list_candidate_shapes

    def add_level_below(self, growth: GrowingTree, frontier: Iterable[int], level: int) -> Counter[int]:
        return growth.draw_and_add_children_independently(dict.fromkeys(frontier, self.widths[level - 1]))


def widths_within_budget(depth: int, width: int, nodes: int) -> list[int]:
    """Widths by level whose full tree has at most `nodes` nodes.

    A chain of `depth` is widened from the root on; no level gets wider than the one above. Depth 4, width 4 and 16 nodes give
    [2, 2, 1, 1].
    """
    widths = [1] * min(depth, nodes - 1)
    widened = True
    while widened:
        widened = False
        for level in range(len(widths)):
            wider = [*widths[:level], widths[level] + 1, *widths[level + 1 :]]
            size = sum(prod(wider[:levels]) for levels in range(len(wider) + 1))
            if wider[level] <= (wider[level - 1] if level else width) and size <= nodes:
                widths, widened = wider, True
    return widths
