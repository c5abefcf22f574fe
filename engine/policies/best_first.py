"""Best-first policy: a budget of nodes, always spent on the most probable path (EAGLE-2's expand and rerank, exact).

A path's score is the product of its nodes' scores, so it never grows with depth: the best nodes of all levels are closed under
parents, and a level needs forwards only for nodes that are still among the best. One draft forward per level.
"""

from bisect import insort

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
        tree, frontier = DraftTree.rooted(root), [0]
        best: list[tuple[float, int]] = []  # of all nodes below the root, as (-score, node): ties go to the earlier one
        for level in range(1, min(self.depth, room) + 1):
            log_q = drafter.log_q(tree, frontier)
            if log_q is None:
                break
            rows = zip(frontier, *favourites(log_q, position + level, self.width, sampling), strict=True)
            added = len(tree)
            for node, *row in rows:
                above = tree.score[node]
                for token, score, q in zip(*row, strict=True):
                    value = above * score
                    if value < LEAST_SCORE or (len(best) == self.nodes - 1 and value <= -best[-1][0]):
                        break  # as would those behind it
                    insort(best, (-value, tree.add(node, token, value, q)))
                    del best[self.nodes - 1 :]
            frontier = sorted(node for _, node in best if node >= added)
            if not frontier:
                break
        return tree.kept([0, *sorted(node for _, node in best)])
