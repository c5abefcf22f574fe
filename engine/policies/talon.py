"""Talon policy (Liu et al. 2026): a fixed budget of nodes, spent level by level on all that is nearly as likely as a level's best.

Right behind the root `width` guesses enter whatever their chances, because the first level decides most. On deeper levels a guess
enters when its path is at least `NEAR` times as likely as the level's likeliest. Where the drafter is sure, levels are narrow and the
tree grows deep. Where it is not, they are wide and the budget is soon spent. One draft forward per level.

`best_first` spends the same budget on the likeliest nodes of all levels, and may leave a part of it.
"""

from engine.policies.shared.asking import GrowingTree, LevelByLevelPolicy

NEAR = 0.03  # of the likeliest path of the level, as published


class TalonNearBestPerLevel(LevelByLevelPolicy):
    title = "Talon"
    about = "Level by level, all that is nearly as likely as its best, within a budget."
    source = "Talon (Liu et al. 2026)"
    unused_budget_reason = "the others are far less likely than the best of their level"

    def add_level_below(self, growth: GrowingTree, frontier: list[int], level: int) -> list[int]:
        left = self.nodes - len(growth.tree)
        found = growth.rank_candidates(frontier, self.width) if left else []
        least = NEAR * found[0][0] if found and level > 1 else 0.0
        return growth.add_candidate_nodes([each for each in found if each[0] >= least][:left])
