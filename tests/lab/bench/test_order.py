"""The bench of attention over node orders grows the same trees every time and prints every figure."""

import torch

from engine.lab.bench.order import grown_tree, run, table
from engine.measure.node_order import ORDERS


def test_the_bench_grows_the_same_trees_every_time_and_prints_every_figure():
    tree = grown_tree(200, 3)
    assert (tree.tokens, tree.parents) == (grown_tree(200, 3).tokens, grown_tree(200, 3).parents)
    assert tree.tokens != grown_tree(200, 4).tokens
    for node in range(200):
        children = tree.children(node)
        assert len({tree.tokens[child] for child in children}) == len(children)  # drawn without replacement
        assert sum(tree.score[child] for child in children) <= tree.score[node] * 1.0001  # shares of what the node has
    figures = run([40, 64], [0, 5], 16, torch.device("cpu"), repeats=1)
    assert [(row["nodes"], row["prefix"]) for row in figures["rows"]] == [(40, 0), (40, 5), (64, 0), (64, 5)]
    for row in figures["rows"]:
        assert set(row["ms"]) == {*ORDERS, "plain"} and min(row["ms"].values()) > 0
        assert f"{row['nodes']:>6}{row['prefix']:>8}" in table(figures)
