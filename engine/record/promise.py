"""Promise: what trees are expected to win, from how often guesses came true. Plain numbers; knows no model."""

import heapq

from engine.record.costs import Costs

# `[d][r]`: the probability that the target's token at depth d + 1 is the drafter's favourite r
Ranks = list[list[float]]


def select_most_probable_paths(ranks: Ranks, width: int, nodes: int) -> dict[tuple[int, ...], float]:
    """The `nodes - 1` most valuable nodes below the root as {ranks along the path: value}. Parents and better siblings come first.

    A value is the probability that the whole path comes true. Source: Medusa (Cai et al. 2024), its sparse tree.
    """
    chosen: dict[tuple[int, ...], float] = {}
    heap: list[tuple[float, tuple[int, ...]]] = [(-ranks[0][0], (0,))]
    while heap and len(chosen) < nodes - 1:
        value, path = heapq.heappop(heap)
        if value == 0:
            break
        chosen[path] = -value
        *above, rank = path
        row = ranks[len(above)]
        if rank + 1 < min(width, len(row)) and row[rank] > 0:
            heapq.heappush(heap, (value / row[rank] * row[rank + 1], (*above, rank + 1)))
        if len(path) < len(ranks):
            heapq.heappush(heap, (value * ranks[len(path)][0], (*path, 0)))
    return chosen


def estimate_best_speedup(ranks: Ranks, costs: Costs, width: int, nodes: int) -> float:
    """How many times as fast as plain decoding the best fixed tree of at most `nodes` nodes is expected to be, at least 1."""
    best = 1.0
    for depth in range(1, len(ranks) + 1):
        tau = 1.0
        for rows, value in enumerate(select_most_probable_paths(ranks[:depth], width, nodes).values(), 2):
            tau += value
            best = max(best, tau / costs.break_even_tau(rows, depth))
    return best
