"""Beam policy: each level keeps its best nodes by joint probability (the parallel-tree drafter).

A level's candidates are the top tokens behind every survivor of the level above. The tree holds the survivors of all levels, within
the node budget. The drafter is asked once per level; one that guesses all depths at once answers from one forward.
"""

from engine.policies.shared.asking import GrowingTree, LevelByLevelPolicy


class Beam(LevelByLevelPolicy):
    title = "beam"
    about = "The best few paths survive each level."
    source = "the feature-conditioned parallel-tree drafter"

    def validate_and_precompute(self) -> None:
        """A node budget too small for `depth` levels of `width` nodes is split evenly, upper levels first."""
        self.depth = min(self.depth, self.nodes - 1)
        share, extra = divmod(self.nodes - 1, self.depth)
        self.beams = [min(self.width, share + (level < extra)) for level in range(self.depth)]

    def add_level_below(self, growth: GrowingTree, frontier: list[int], level: int) -> list[int]:
        return growth.add_candidate_nodes(growth.rank_candidates(frontier, self.width)[: self.beams[level - 1]])
