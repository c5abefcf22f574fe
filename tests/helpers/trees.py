"""Random draft trees, and ancestors by brute force to check their masks against."""

import random

import torch.nn.functional as F

from engine.tree import DraftTree


def random_tree(rng: random.Random, size: int) -> DraftTree:
    tree = DraftTree.rooted(7)
    for _ in range(size - 1):
        tree.add(rng.randrange(len(tree)), rng.randrange(50), rng.random(), rng.random())
    return tree


def planted(parents: list[int]) -> DraftTree:
    """A tree of these nodes, the root included."""
    tree = DraftTree.rooted(0)
    for node, parent in enumerate(parents[1:], 1):
        tree.add(parent, node, 1.0, 1.0)
    return tree


def ancestors(tree: DraftTree, node: int) -> set[int]:
    found = set()
    while node >= 0:
        found.add(node)
        node = tree.parents[node]
    return found


def trees(count: int, largest: int = 60) -> list[DraftTree]:
    rng = random.Random(largest)
    return [random_tree(rng, rng.randint(1, largest)) for _ in range(count)]


def count_blocks(tree: DraftTree, block: int) -> int:
    """How many tiles of the tree's mask, of so many rows and columns, hold an allowed entry (DySpec, Table 5, counts so)."""
    short = -len(tree) % block
    tiles = F.pad(tree.ancestor_mask().float(), (0, short, 0, short))
    return int(F.max_pool2d(tiles[None], block).sum())
