"""Random draft trees, and ancestors by brute force to check their masks against."""

import random
from collections.abc import Callable, Sequence

import torch.nn.functional as F

from engine.tree import DraftTree


def random_tree(rng: random.Random, size: int) -> DraftTree:
    tree = DraftTree.from_root_token(7)
    for _ in range(size - 1):
        tree.add(rng.randrange(len(tree)), rng.randrange(50), rng.random(), rng.random())
    return tree


def planted(parents: list[int]) -> DraftTree:
    """A tree of these nodes, the root included."""
    tree = DraftTree.from_root_token(0)
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


# ---- in which sequence a tree's nodes stand in the mask, as the page draws them: the root first, parents before children


def insertion_order(tree: DraftTree) -> list[int]:
    """The nodes as the policy added them."""
    return list(range(len(tree.parents)))


def depth_first_order(tree: DraftTree) -> list[int]:
    """Preorder; siblings as they were added. Earlier ones have larger subtrees, so it is close to heavy path (DySpec, Appendix C)."""
    return preorder(tree.parents, insertion_order(tree))


def heavy_path_order(tree: DraftTree) -> list[int]:
    """Preorder; the sibling with the largest subtree comes first, so that each heavy path is contiguous (Sleator & Tarjan 1981)."""
    sizes = subtree_sizes(tree.parents)
    return preorder(tree.parents, [-size for size in sizes])


ORDERS: dict[str, Callable[[DraftTree], list[int]]] = {
    "insertion": insertion_order,
    "dfs": depth_first_order,
    "heavy path": heavy_path_order,
}


def subtree_sizes(parents: Sequence[int]) -> list[int]:
    """The number of nodes in each node's subtree, itself included."""
    sizes = [1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        sizes[parents[node]] += sizes[node]
    return sizes


def preorder(parents: Sequence[int], rank: Sequence[int]) -> list[int]:
    """Depth first from the root; siblings by ascending `rank`, ties as they were added."""
    children: list[list[int]] = [[] for _ in parents]
    for node in range(1, len(parents)):
        children[parents[node]].append(node)
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += sorted(children[node], key=rank.__getitem__)[::-1]  # the last one in is visited first
    return order
