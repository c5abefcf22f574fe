"""Sparse policy: one static tree of favourites, chosen by how often each head's i-th favourite was right (Medusa, Cai et al. 2024).

A node's value is the product of those accuracies along its path. The most valuable neighbour joins the tree until the budget is used.
The drafter is asked once per level; heads answer all levels from one forward.
"""

from engine.contracts import Counterpart, Drafter, Policy
from engine.policies.shared.asking import guesses
from engine.policies.shared.ranking import favourites
from engine.record.calibration import Calibration
from engine.record.promise import best_neighbours
from engine.sampling import Sampling
from engine.tree import DraftTree


class Sparse(Policy):
    title = "sparse tree"
    about = "One fixed shape, the best for how often each favourite was right."
    source = "Medusa (Cai et al. 2024), calibrated sparse tree"
    counterpart = Counterpart("fixed tree")
    proposals = frozenset({"ranked"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        """Raises `ValueError` when nothing was measured about the pair's heads."""
        if calibration is None or not calibration.ranks.get("medusa"):
            raise ValueError(
                "The policy sparse lays out its tree by measured accuracies of Medusa heads, and this pair has none. Measure them with "
                "`python -m engine calibrate`, or use the policy best_first."
            )
        self.ranks = best_neighbours(calibration.ranks["medusa"][:depth], width, nodes)

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree = DraftTree.rooted(root)
        index_of: dict[tuple[int, ...], int] = {(): 0}
        for level in range(1, room + 1):
            here = [ranks for ranks in self.ranks if len(ranks) == level and ranks[:-1] in index_of]
            frontier = list(dict.fromkeys(index_of[ranks[:-1]] for ranks in here))
            log_q = guesses(drafter, tree, frontier) if frontier else None
            if log_q is None:
                break
            width = 1 + max(ranks[-1] for ranks in here)
            rows = zip(*favourites(log_q, position + level, width, sampling), strict=True)
            best = {node: list(zip(*row, strict=True)) for node, row in zip(frontier, rows, strict=True)}
            for ranks in here:
                node = index_of[ranks[:-1]]
                if ranks[-1] < len(best[node]):  # a vocabulary may be smaller than the width
                    token, _, q = best[node][ranks[-1]]
                    index_of[ranks] = tree.add(node, token, self.ranks[ranks], q)
        return tree
