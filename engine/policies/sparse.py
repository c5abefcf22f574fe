"""Sparse policy: one static tree of favourites, chosen by how often each head's i-th favourite was right (Medusa, Cai et al. 2024).

A node's value is the product of those accuracies along its path. The most valuable neighbour joins the tree until the budget is used.
The drafter is asked once per level; heads answer all levels from one forward.
"""

import heapq

from engine.contracts import Counterpart, Drafter, Policy
from engine.policies.shared.asking import guesses
from engine.policies.shared.ranking import favourites
from engine.record.calibration import Calibration
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
        if calibration is None or not calibration.ranks:
            raise ValueError(
                "The policy sparse lays out its tree by measured accuracies of Medusa heads, and this pair has none. Measure them with "
                "`python -m engine calibrate`, or use the policy best_first."
            )
        self.nodes = best_neighbours(calibration.ranks[:depth], width, nodes)

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree = DraftTree.rooted(root)
        index_of: dict[tuple[int, ...], int] = {(): 0}
        for level in range(1, room + 1):
            here = [ranks for ranks in self.nodes if len(ranks) == level and ranks[:-1] in index_of]
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
                    index_of[ranks] = tree.add(node, token, self.nodes[ranks], q)
        return tree


def best_neighbours(accuracy: list[list[float]], width: int, nodes: int) -> dict[tuple[int, ...], float]:
    """The `nodes - 1` most valuable nodes below the root as {ranks along the path: value}. Parents and better siblings come first.

    `accuracy[d][r]` is the probability that the target's token at depth d + 1 is favourite r.
    """
    chosen: dict[tuple[int, ...], float] = {}
    heap: list[tuple[float, tuple[int, ...]]] = [(-accuracy[0][0], (0,))]
    while heap and len(chosen) < nodes - 1:
        value, ranks = heapq.heappop(heap)
        if value == 0:
            break
        chosen[ranks] = -value
        *above, rank = ranks
        row = accuracy[len(above)]
        if rank + 1 < min(width, len(row)) and row[rank] > 0:
            heapq.heappush(heap, (value / row[rank] * row[rank + 1], (*above, rank + 1)))
        if len(ranks) < len(accuracy):
            heapq.heappush(heap, (value * accuracy[len(ranks)][0], (*ranks, 0)))
    return chosen
