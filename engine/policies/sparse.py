"""Sparse policy: one static tree of favourites, chosen by how often each head's i-th favourite was right (Medusa, Cai et al. 2024).

A node's value is the product of those accuracies along its path. The most valuable neighbour joins the tree until the budget is used.
The drafter is asked once per level; heads answer all levels from one forward.
"""

from typing import Any

from engine.contracts import MissingRequirement
from engine.policies.shared.asking import GrowingTree, LevelByLevelPolicy
from engine.record.promise import select_most_probable_paths

Placed = dict[int, tuple[int, ...]]  # the nodes of a level, and the ranks on the way to each


UNMEASURED = MissingRequirement(
    "a count of how often its heads are right",
    "The policy sparse lays out its tree by how often each Medusa head's guesses were right, which nobody measured on this "
    "pair. Measure it with `python -m engine calibrate`, or race medusa/best_first/token_match, which needs no figures.",
)


class CalibratedSparseTree(LevelByLevelPolicy):
    title = "sparse tree"
    about = "One fixed shape, the best for how often each favourite was right."
    source = "Medusa (Cai et al. 2024), calibrated sparse tree"

    @classmethod
    def find_missing_requirement(cls, pair: Any) -> MissingRequirement | None:
        return None if pair.calibration.ranks.get("medusa") else UNMEASURED

    def validate_and_precompute(self) -> None:
        """Raises `ValueError` when nothing was measured about the pair's heads."""
        measured = self.calibration.ranks.get("medusa")
        if not measured:
            raise ValueError(UNMEASURED.refusal)
        self.first_frontier: Placed = {0: ()}
        self.ranks = select_most_probable_paths(measured[: self.depth], self.width, self.nodes)

    def add_level_below(self, growth: GrowingTree, frontier: Placed, level: int) -> Placed:
        above = {ranks: node for node, ranks in frontier.items()}
        here = [ranks for ranks in self.ranks if len(ranks) == level and ranks[:-1] in above]
        nodes = list(dict.fromkeys(above[ranks[:-1]] for ranks in here))
        rows = growth.rank_guesses_after(nodes, 1 + max(ranks[-1] for ranks in here)) if here else []
        best, found = dict(zip(nodes, rows, strict=False)), {}
        for ranks in here:
            node = above[ranks[:-1]]
            row = best.get(node, [])
            if ranks[-1] < len(row):  # a vocabulary may be smaller than the width
                token, _, q = row[ranks[-1]]
                found[growth.tree.add(node, token, self.ranks[ranks], q)] = ranks
        return found
