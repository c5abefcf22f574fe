"""Best-first policy: a budget of nodes, always spent on the most probable path (EAGLE-2's expand and rerank, exact).

A path's score is the product of its nodes' scores, so it never grows with depth. The best nodes of all levels therefore include their
parents. The drafter is asked only about nodes that are still among the best. One draft forward per level.

OPT-Tree finds the same nodes: it keeps the best n of every level and then the best n of all. It also stops once a level adds less than
a threshold to the sum of scores. Here drafting stops when a level has none of the best nodes.
"""

from engine.contracts import Counterpart, Drafter, Policy
from engine.kernels.expansion import Expansion
from engine.policies.shared.growing import grow
from engine.record.calibration import Calibration
from engine.sampling import Sampling
from engine.tree import DraftTree

LEAST_SCORE = 0.01  # a node less likely than this to be accepted costs more to verify than it wins


class BestFirst(Policy):
    title = "best-first"
    about = "The most probable path next, within a node budget."
    source = "EAGLE-2's expand and rerank (Li et al. 2024), exact; the same tree as OPT-Tree (Wang et al. 2025)"
    counterpart = Counterpart("tree of guesses")
    on_device = True
    proposals = frozenset({"ranked"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        self.depth, least = depth, LEAST_SCORE
        self.expansion = Expansion(depth, width, beams=nodes - 1, keep=nodes - 1, only_best=True, least=least)

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        return grow(self.expansion, drafter, root, position, sampling, min(self.depth, room))
