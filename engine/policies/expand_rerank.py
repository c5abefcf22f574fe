"""Expand-and-rerank policy (EAGLE-2, Li et al. 2024): expand the top-k of k beam nodes a level, then keep the best nodes of all levels.

Values are joint probabilities, which never grow with depth, so the best nodes hold their ancestors; ties go to the earlier node, which
is the ancestor. Differs from best_first in that a level expands k nodes even where fewer would do, and never more. One draft forward
per level.
"""

from engine.calibration import Calibration
from engine.drafters import Drafter
from engine.policies.ranking import favourites
from engine.policies.steady import Steady
from engine.sampling import Sampling
from engine.tree import DraftTree


class ExpandRerank(Steady):
    proposals = frozenset({"ranked"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        self.depth, self.width, self.nodes = depth, width, nodes

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, frontier = DraftTree.rooted(root), [0]
        for level in range(1, min(self.depth, room) + 1):
            log_q = drafter.log_q(tree, frontier)
            if log_q is None:
                break
            added = [
                tree.add(node, token, tree.score[node] * score, q)
                for node, *row in zip(frontier, *favourites(log_q, position + level, self.width, sampling), strict=True)
                for token, score, q in zip(*row, strict=True)
            ]
            frontier = sorted(tree.best(self.width, added))
        return tree.kept([0, *sorted(tree.best(self.nodes - 1))])
