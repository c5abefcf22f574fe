"""Best-first policy: a budget of nodes, always spent on the most probable path (EAGLE-2's expand and rerank, exact).

A path's score is the product of its nodes' scores, so it never grows with depth. The best nodes of all levels therefore include their
parents. The drafter is asked only about nodes that are still among the best. One draft forward per level.

OPT-Tree finds the same nodes: it keeps the best n of every level and then the best n of all. It also stops once a level adds less than
a threshold to the sum of scores. Here drafting stops when a level has none of the best nodes.
"""

from engine.kernels.expansion import TreeExpansion
from engine.policies.shared.growing import ExpansionPolicy

LEAST_SCORE = 0.01  # a node less likely than this to be accepted costs more to verify than it wins


class BestFirst(ExpansionPolicy):
    title = "best-first"
    about = "The most probable path next, within a node budget."
    source = "EAGLE-2's expand and rerank (Li et al. 2024), exact; the same tree as OPT-Tree (Wang et al. 2025)"
    unused_budget_reason = "the others are under 1 %"

    def validate_and_precompute(self) -> None:
        most = self.nodes - 1
        self.expansion = TreeExpansion(
            self.depth, self.width, most, max_kept=most, only_best=True, least_score=LEAST_SCORE
        )
