"""Chains policy: k independent chains from the root, merged where they begin alike (SpecTr, Sun et al. 2023).

Chains that begin with the same tokens share nodes, and the tree counts the chains of each node. One draft forward per level. A chain
ends where the drafter has no guess behind it, whatever the other chains hold: rules for whole chains count on that.
"""

from collections import Counter

from engine.policies.shared.asking import GrowingTree, LevelByLevelPolicy

FORKS = ((2, 2), (3, 2), (2, 3), (4, 2), (3, 3), (6, 2))  # depths and numbers of chains worth a try


class MergedChains(LevelByLevelPolicy):
    title = "merged chains"
    about = "Several independent chains, merged where they begin alike."
    source = "SpecTr (Sun et al. 2023)"
    supported_proposal_modes = frozenset({"with replacement", "whole chains"})

    def validate_and_precompute(self) -> None:
        """As many chains of full depth as the node budget allows, `width` at most. Where not even one fits, one shorter chain."""
        self.depth = min(self.depth, self.nodes - 1)
        self.first_frontier = {0: min(self.width, (self.nodes - 1) // self.depth)}

    @classmethod
    def list_candidate_shapes(cls, paper_width: int) -> list[tuple[int, int, int]]:
        return [(depth, chains, depth * chains + 1) for depth, chains in FORKS]

    def add_level_below(self, growth: GrowingTree, frontier: dict[int, int], level: int) -> Counter[int]:
        # A drafter with forwards has a guess behind every node of a level or behind none
        all_go_on = level == 1 or growth.drafter.draft_forward_count > 0
        going = (node for node in frontier if all_go_on or growth.validated_log_q([node]) is not None)
        return growth.draw_and_add_children_independently({node: frontier[node] for node in going})
