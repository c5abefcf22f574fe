"""Best-first policy: a budget of nodes, always spent on the most probable path (EAGLE-2's expand and rerank, exact).

A path's score is the product of its nodes' scores, so it never grows with depth: the best nodes of all levels are closed under
parents, and a level needs forwards only for nodes that are still among the best. One draft forward per level.
"""

from engine.calibration import Calibration
from engine.drafters import Drafter
from engine.policies.ranking import favourites
from engine.policies.steady import Steady
from engine.sampling import Sampling
from engine.tree import DraftTree

LEAST_SCORE = 0.01  # a node less likely than this to be accepted costs more to verify than it wins


class BestFirst(Steady):
    proposals = frozenset({"ranked"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        self.depth, self.width, self.nodes = depth, width, nodes

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, frontier, best, least = DraftTree.rooted(root), [0], [], LEAST_SCORE
        for level in range(1, min(self.depth, room) + 1):
            log_q = drafter.log_q(tree, frontier)
            if log_q is None:
                break
            rows = zip(frontier, *favourites(log_q, position + level, self.width, sampling), strict=True)
            for node, *row in rows:
                above = tree.score[node]
                for token, score, q in zip(*row, strict=True):
                    if above * score <= least:  # as are those behind it
                        break
                    tree.add(node, token, above * score, q)
            best = tree.best(self.nodes - 1)
            if len(best) == self.nodes - 1:
                least = tree.score[best[-1]]
            frontier = sorted(node for node in best if tree.depth[node] == level)
            if not frontier:
                break
        return tree.kept([0, *sorted(best)])
