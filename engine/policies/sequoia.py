"""Sequoia policy: one static tree, the best for a measured acceptance vector (Sequoia, Chen et al. 2024).

Its nodes are drawn without replacement. A node budget below `OPEN_BUDGET` is used up. From `OPEN_BUDGET` on, the pair's measured cost
curve decides: the tree has the nodes and levels that promise the most tokens a second. Depth, width and budget limit it. One draft
forward per level.
"""

from functools import cache

import torch

from engine.contracts import Counterpart, Drafter, Policy
from engine.forward.uploads import uploaded
from engine.policies.shared.asking import drawn_from
from engine.policies.shared.drawn_ahead import Next, foreseen_distinct
from engine.policies.shared.static_trees import BestTrees, Shape
from engine.record.calibration import Calibration
from engine.sampling import Sampling
from engine.tree import DraftTree

OPEN_BUDGET = 64
UNMEASURED_BUDGET = 16  # nodes where no cost curve was measured
TYPICAL = Calibration(acceptance=[0.65, 0.12, 0.05, 0.03, 0.02, 0.015, 0.01, 0.008])  # of a pair that was not measured


class Sequoia(Policy):
    title = "Sequoia"
    about = "One fixed shape, the best for how often guesses were right when measured."
    source = "Sequoia (Chen et al. 2024), dynamic program"
    counterpart = Counterpart("fixed tree")
    proposals = frozenset({"without replacement"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        measured = calibration if calibration and calibration.acceptance else TYPICAL
        trees = best_trees(tuple(measured.acceptance[:width]), nodes, depth)
        if nodes < OPEN_BUDGET:
            self.shape = trees.shape(nodes, depth)
        elif measured.verify_ms:
            self.shape = trees.shape(*fastest(trees, measured))
        else:
            self.shape = trees.shape(min(nodes, UNMEASURED_BUDGET), depth)

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, frontier = DraftTree.rooted(root), {0: self.shape}
        for level in range(1, room + 1):
            frontier = {node: children for node, children in frontier.items() if children}
            foresight = Foresight(list(frontier.values()), sampling, position, level, room)
            q = drawn_from(drafter, tree, list(frontier), sampling, foresight.following) if frontier else None
            if q is None:
                break
            rows = sampling.distinct(q, max(map(len, frontier.values())), "draft", position, level)
            frontier = {
                tree.draw(node, *draw): grandchildren
                for (node, children), draws in zip(frontier.items(), rows, strict=True)
                for grandchildren, draw in zip(children, draws, strict=False)
            }
        return tree


class Foresight:
    """Which nodes the levels below a frontier will have, as long as no draw fails. Each call of `following` goes a level deeper."""

    def __init__(self, shapes: list[Shape], sampling: Sampling, position: int, level: int, room: int):
        """`shapes` are those below the frontier's nodes, whose children stand on this `level`."""
        self.shapes, self.sampling, self.position, self.level, self.room = shapes, sampling, position, level, room

    def following(self, q: torch.Tensor) -> Next | None:
        """The next frontier, drawn from `q [n, V]` behind this one; None where the tree ends."""
        below = [
            (row, number, shape) for row, each in enumerate(self.shapes) for number, shape in enumerate(each) if shape
        ]
        if not below or self.level == self.room:
            return None
        uniform = self.sampling.uniform(len(q), max(map(len, self.shapes)), "draft", self.position, self.level)
        drawn = foreseen_distinct(q, uploaded(uniform, q.device))
        rows, numbers = uploaded([[row for row, _, _ in below], [number for _, number, _ in below]], q.device).unbind()
        self.shapes, self.level = [shape for _, _, shape in below], self.level + 1
        return drawn[rows, numbers], rows


best_trees = cache(BestTrees)


def fastest(trees: BestTrees, measured: Calibration) -> tuple[int, int]:
    """The (nodes, levels) with the most expected tokens a second."""
    sizes = [(nodes, levels) for levels in range(1, trees.depth + 1) for nodes in range(2, trees.nodes + 1)]
    return max(
        sizes,
        key=lambda size: trees.expected(*size) / (measured.verify_at(size[0]) + size[1] * measured.draft_ms),
    )
