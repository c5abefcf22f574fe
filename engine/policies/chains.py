"""Chains policy: k independent chains from the root, merged where they begin alike (SpecTr, Sun et al. 2023).

Chains that begin with the same tokens share nodes, and the tree counts the chains of each node. One draft forward per level. A chain
ends where the drafter has no guess behind it, whatever the other chains hold: rules for whole chains count on that.
"""

from collections import Counter

from engine.contracts import Counterpart, Drafter, Policy
from engine.policies.shared.asking import drawn_from, guesses
from engine.record.calibration import Calibration
from engine.sampling import Sampling
from engine.tree import DraftTree

FORKS = ((2, 2), (3, 2), (2, 3), (4, 2), (3, 3), (6, 2))  # depths and numbers of chains worth a try


class Chains(Policy):
    title = "merged chains"
    about = "Several independent chains, merged where they begin alike."
    source = "SpecTr (Sun et al. 2023)"
    counterpart = Counterpart("tree of guesses")
    proposals = frozenset({"with replacement", "whole chains"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        """As many chains of full depth as the node budget allows, `width` at most. Where not even one fits, one shorter chain."""
        self.depth = min(depth, nodes - 1)
        self.chains = min(width, (nodes - 1) // self.depth)

    @classmethod
    def shapes(cls, width: int) -> list[tuple[int, int, int]]:
        return [(depth, chains, depth * chains + 1) for depth, chains in FORKS]

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, passing = DraftTree.rooted(root), {0: self.chains}
        for level in range(1, min(self.depth, room) + 1):
            frontier = [node for node in passing if self.goes_on(drafter, tree, node)]
            q = drawn_from(drafter, tree, frontier, sampling) if frontier else None
            if q is None:
                break
            rows = sampling.repeated(q, [passing[node] for node in frontier], "draft", position, level)
            passing = Counter(tree.draw(node, *draw) for node, row in zip(frontier, rows, strict=True) for draw in row)
        return tree

    def goes_on(self, drafter: Drafter, tree: DraftTree, node: int) -> bool:
        """Whether there is a guess behind this node. A drafter with forwards has one behind every node of a level or behind none."""
        return node == 0 or drafter.forwards > 0 or guesses(drafter, tree, [node]) is not None
