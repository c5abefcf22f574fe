"""DraftTree: masks, positions and pruning against brute force."""

import random

import pytest
import torch

from engine.tree import DraftTree
from helpers.trees import ancestors, random_tree


@pytest.mark.parametrize("size", [1, 2, 5, 16, 64])
def test_mask_shows_ancestors_and_nothing_else(size):
    rng = random.Random(size)
    for _ in range(20):
        tree = random_tree(rng, size)
        expected = torch.tensor([[column in ancestors(tree, row) for column in range(size)] for row in range(size)])
        assert torch.equal(tree.ancestor_mask(), expected)


def test_siblings_share_a_position_and_the_index_plays_no_part():
    tree = DraftTree.from_root_token(1)
    a, b = tree.add(0, 2, 0.5, 0.5), tree.add(0, 3, 0.4, 0.4)
    tree.add(b, 4, 0.3, 0.3)
    tree.add(a, 5, 0.2, 0.2)
    assert tree.positions(100) == [100, 101, 101, 102, 102]


def test_pruning_keeps_paths_and_keys():
    rng = random.Random(0)
    for _ in range(50):
        tree = random_tree(rng, 24)
        leaf = rng.randrange(24)
        nodes = sorted({0} | ancestors(tree, leaf) | ancestors(tree, rng.randrange(24)))
        kept = tree.subtree(nodes)
        assert kept.creation_indices == nodes
        for index, node in enumerate(nodes):
            assert [kept.tokens[i] for i in sorted(ancestors(kept, index))] == [
                tree.tokens[i] for i in sorted(ancestors(tree, node))
            ]


def test_a_missing_parent_is_refused():
    with pytest.raises(IndexError, match="Parent 3 is not in a tree of 1 nodes"):
        DraftTree.from_root_token(0).add(3, 1, 1.0, 1.0)
    tree = DraftTree.from_root_token(0)
    tree.add(tree.add(0, 1, 1.0, 1.0), 2, 1.0, 1.0)
    with pytest.raises(KeyError):
        tree.subtree([0, 2])
