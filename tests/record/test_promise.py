"""What trees promise: by hand for chains, and against every tree of a small table of ranks."""

from itertools import combinations

import pytest

from engine.record.costs import Costs
from engine.record.promise import estimate_speedup_of_best_fixed_tree

FREE = Costs({1: 2.0, 64: 2.0}, 0.0, 0.0)  # rows and drafts cost nothing
RANKS = [[0.6, 0.3, 0.05], [0.5, 0.1, 0.2]]


def test_a_chain_promises_the_sum_of_its_paths_over_its_cost():
    costs = Costs({1: 2.0, 2: 2.0, 3: 3.0}, first_ms=1.0, level_ms=0.5)
    one, two = 1.8 * 2 / (2 + 1), (1.8 + 0.8 * 0.5) * 2 / (3 + 1.5)
    assert estimate_speedup_of_best_fixed_tree([[0.8]], costs, 1, 24) == pytest.approx(one)
    assert estimate_speedup_of_best_fixed_tree([[0.8], [0.5]], costs, 1, 24) == pytest.approx(max(one, two))
    assert estimate_speedup_of_best_fixed_tree([[0.8], [0.5]], FREE, 1, 24) == pytest.approx(2.2)
    assert estimate_speedup_of_best_fixed_tree([[0.8], [0.5]], FREE, 1, 2) == pytest.approx(1.8)


def test_what_does_not_pay_promises_plain_decoding():
    assert estimate_speedup_of_best_fixed_tree([[0.1]], Costs({1: 1.0, 8: 8.0}, 5.0, 5.0), 4, 24) == 1.0


def test_a_tree_promises_as_much_as_the_best_of_all_trees():
    paths = {(a,): RANKS[0][a] for a in range(3)} | {
        (a, b): RANKS[0][a] * RANKS[1][b] for a in range(3) for b in range(3)
    }
    for nodes in (2, 3, 5, 8):
        trees = [
            chosen
            for size in range(1, nodes)
            for chosen in combinations(paths, size)
            if all(len(path) == 1 or path[:1] in chosen for path in chosen)
        ]
        best = max(1 + sum(paths[path] for path in tree) for tree in trees)
        assert estimate_speedup_of_best_fixed_tree(
            [sorted(row, reverse=True) for row in RANKS], FREE, 3, nodes
        ) == pytest.approx(best)
