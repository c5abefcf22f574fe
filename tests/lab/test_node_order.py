"""Node orders and the blocks of their masks: random trees against brute force, blocks by hand where they are known."""

import random
from itertools import pairwise

import pytest
import torch

from engine.target import Target
from engine.tree import DraftTree
from helpers.pairs import tiny_pair
from helpers.trees import ORDERS, ancestors, count_blocks, planted, random_tree, subtree_sizes, trees


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_a_permutation_with_parents_first(name):
    for tree in trees(60):
        order = ORDERS[name](tree)
        assert order[0] == 0 and sorted(order) == list(range(len(tree)))
        place = {node: index for index, node in enumerate(order)}
        assert all(place[tree.parents[node]] < place[node] for node in range(1, len(tree)))
        kept = tree.subtree(order)
        assert torch.equal(kept.ancestor_mask(), tree.ancestor_mask()[order][:, order])


@pytest.mark.parametrize("name", ["dfs", "heavy path"])
def test_depth_first_orders_keep_every_subtree_in_one_piece(name):
    for tree in trees(60):
        order = ORDERS[name](tree)
        sizes = subtree_sizes(tree.parents)
        for index, node in enumerate(order):
            below = {each for each in range(len(tree)) if node in ancestors(tree, each)}
            assert sizes[node] == len(below)
            assert set(order[index : index + len(below)]) == below


def test_dfs_leaves_siblings_in_place_and_heavy_path_does_not():
    moved = 0
    for tree in trees(60):
        for name in ("dfs", "heavy path"):
            place = {node: index for index, node in enumerate(ORDERS[name](tree))}
            for node in range(len(tree)):
                siblings = tree.children(node)
                in_place = sorted(siblings, key=place.__getitem__) == siblings
                assert in_place or name == "heavy path"
                moved += not in_place
    assert moved > 0


def test_heavy_path_puts_a_heaviest_child_right_behind_its_parent():
    for tree in trees(60):
        order, sizes = ORDERS["heavy path"](tree), subtree_sizes(tree.parents)
        for node, following in pairwise(order):
            if children := tree.children(node):
                assert tree.parents[following] == node
                assert sizes[following] == max(sizes[child] for child in children)


def test_heavy_path_by_hand():
    tree = DraftTree(tokens=[0] * 7, parents=[-1, 0, 0, 2, 3, 0, 5], depth=[0, 1, 1, 2, 3, 1, 2])
    assert ORDERS["dfs"](tree) == [0, 1, 2, 3, 4, 5, 6]
    assert ORDERS["heavy path"](tree) == [0, 2, 3, 4, 5, 6, 1]


def test_blocks_of_known_shapes():
    assert count_blocks(planted([*range(-1, 255)]), 32) == 8 * 9 // 2  # of a chain the whole lower triangle
    assert count_blocks(planted([-1] + [0] * 255), 32) == 8 + 7  # of a star the diagonal and the root's column


def test_reordering_reproduces_the_papers_counts_for_random_trees():
    """DySpec, Table 5, blocks of 32: 135.5 -> 52.8 at 512 nodes, 490.2 -> 119.3 at 1,024. Its random tree: any node is the parent."""
    rng = random.Random(0)
    for size, before, after in ((512, 135.5, 52.8), (1024, 490.2, 119.3)):
        drawn = [random_tree(rng, size) for _ in range(20)]
        for name, published in (("insertion", before), ("dfs", after)):
            mean = sum(count_blocks(tree.subtree(ORDERS[name](tree)), 32) for tree in drawn) / len(drawn)
            assert mean == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize("name", ORDERS)
def test_logits_follow_their_nodes_in_every_order(name):
    runner = tiny_pair().target
    rng = random.Random(5)
    for size in (2, 13, 40):
        tree = random_tree(rng, size)
        order = ORDERS[name](tree)
        logits = []
        for each in (tree, tree.subtree(order)):
            target = Target(runner, 64)
            target.prefill_and_return_features([5, 80, 33, 12])
            logits.append(target.verify(each)[0])
        assert torch.allclose(logits[1], logits[0][order], atol=1e-4, rtol=0)
