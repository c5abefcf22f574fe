"""Promise: what trees are expected to win, from how often guesses came true. Plain numbers; knows no model."""

import heapq

from engine.record.costs import Costs

# `[d][r]`: the probability that the target's token at depth d + 1 is the drafter's favourite r
HitRateByDepthAndRank = list[list[float]]


def select_most_probable_paths(
    hit_rates: HitRateByDepthAndRank, width: int, max_nodes_with_root: int
) -> dict[tuple[int, ...], float]:
    """The `max_nodes_with_root - 1` most valuable nodes below the root as {ranks along the path: value}. Parents and better siblings
    come first.

    A value is the probability that the whole path comes true. Source: Medusa (Cai et al. 2024), its sparse tree.
    """
    chosen: dict[tuple[int, ...], float] = {}
    heap: list[tuple[float, tuple[int, ...]]] = [(-hit_rates[0][0], (0,))]
    while heap and len(chosen) < max_nodes_with_root - 1:
        value, path = heapq.heappop(heap)
        if value == 0:
            break
        chosen[path] = -value
        *above, rank = path
        row = hit_rates[len(above)]
        if rank + 1 < min(width, len(row)) and row[rank] > 0:
            heapq.heappush(heap, (value / row[rank] * row[rank + 1], (*above, rank + 1)))
        if len(path) < len(hit_rates):
            heapq.heappush(heap, (value * hit_rates[len(path)][0], (*path, 0)))
    return chosen


def estimate_speedup_of_best_fixed_tree(
    hit_rates: HitRateByDepthAndRank, costs: Costs, width: int, max_nodes_with_root: int
) -> float:
    """How many times as fast as plain decoding the best fixed tree of at most `max_nodes_with_root` nodes is expected to be, at
    least 1.
    """
    best = 1.0
    for depth in range(1, len(hit_rates) + 1):
        tau = 1.0
        for rows, value in enumerate(
            select_most_probable_paths(hit_rates[:depth], width, max_nodes_with_root).values(), 2
        ):
            tau += value
            best = max(best, tau / costs.break_even_tau(rows, depth))
    return best
