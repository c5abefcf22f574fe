"""Node orders: in which sequence a tree's nodes enter the forward. Knows parents; knows no tokens, no attention kernel, no torch.

Invariant: every order is a permutation with the root first and parents before children, so `tree.subtree(order)` is the same tree.
An order changes how the ancestor mask's allowed entries gather in tiles. "heavy path" also moves siblings: a rule that tries them in
the order of their draws must read `tree.draws`, which `kept` carries along, never the array order.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.tree import DraftTree


def insertion_order(tree: "DraftTree") -> list[int]:
    """The nodes as the policy added them."""
    return list(range(len(tree.parents)))


def depth_first_order(tree: "DraftTree") -> list[int]:
    """Preorder; siblings as they were added. Earlier ones have larger subtrees, so it is close to heavy path (DySpec, Appendix C)."""
    return preorder(tree.parents, insertion_order(tree))


def heavy_path_order(tree: "DraftTree") -> list[int]:
    """Preorder; the sibling with the largest subtree comes first, so that each heavy path is contiguous (Sleator & Tarjan 1981)."""
    sizes = subtree_sizes(tree.parents)
    return preorder(tree.parents, [-size for size in sizes])


ORDERS: dict[str, Callable[["DraftTree"], list[int]]] = {
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
