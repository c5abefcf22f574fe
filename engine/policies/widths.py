"""Widths policy: a fixed number of independent draws behind every node of a level (SpecInfer, Miao et al. 2024).

Draws of the same token share a node, and the tree counts its draws. One draft forward per level.
"""

from math import prod

from engine.contracts import Counterpart, Drafter, Policy
from engine.policies.chains import FORKS
from engine.policies.shared.asking import drawn_from
from engine.record.calibration import Calibration
from engine.sampling import Sampling
from engine.tree import DraftTree


class Widths(Policy):
    title = "fixed widths"
    about = "A fixed number of independent draws behind every node."
    source = "SpecInfer (Miao et al. 2024)"
    counterpart = Counterpart("tree of guesses")
    proposals = frozenset({"with replacement"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        self.widths = narrowing(depth, width, nodes)

    @classmethod
    def shapes(cls, width: int) -> list[tuple[int, int, int]]:
        return [(depth, chains, depth * chains + 1) for depth, chains in FORKS]

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, frontier = DraftTree.rooted(root), [0]
        for level, width in enumerate(self.widths[: max(0, room)], 1):
            q = drawn_from(drafter, tree, frontier, sampling)
            if q is None:
                break
            rows = sampling.repeated(q, [width] * len(frontier), "draft", position, level)
            found = [tree.draw(node, *draw) for node, draws in zip(frontier, rows, strict=True) for draw in draws]
            frontier = list(dict.fromkeys(found))
        return tree


def narrowing(depth: int, width: int, nodes: int) -> list[int]:
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
