"""Node orders: in which sequence a tree's nodes enter the forward. Knows parents; knows no tokens, no attention kernel, no torch.

Invariant: every order is a permutation with the root first and parents before children, so `tree.kept(order)` is the same tree.
Logits follow their nodes. An order changes how the ancestor mask's allowed entries gather in tiles. A kernel that skips empty tiles
turns that into time. "heavy path" also moves siblings. A rule that tries siblings in the order of their draws must read `tree.draws`,
which `kept` carries along, never the array order.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.tree import DraftTree


def insertion(tree: "DraftTree") -> list[int]:
    """The nodes as the policy added them."""
    return list(range(len(tree.parents)))


def depth_first(tree: "DraftTree") -> list[int]:
    """Preorder; siblings as they were added. Earlier ones have larger subtrees, so it is close to heavy path (DySpec, Appendix C)."""
    return preorder(tree.parents, insertion(tree))


def heavy_path(tree: "DraftTree") -> list[int]:
    """Preorder; the sibling with the largest subtree comes first, so that each heavy path is contiguous (Sleator & Tarjan 1981)."""
    sizes = subtree_sizes(tree.parents)
    return preorder(tree.parents, [-size for size in sizes])


ORDERS: dict[str, Callable[["DraftTree"], list[int]]] = {
    "insertion": insertion,
    "dfs": depth_first,
    "heavy path": heavy_path,
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


def mask_blocks(tree: "DraftTree | Sequence[int]", block: int = 32, prefix: int = 0) -> int:
    """How many `block` x `block` tiles of the attention mask `[N, prefix + N]` hold at least one allowed entry.

    Row i may see the `prefix` committed columns and, behind them, node i and its ancestors. Tiles are cut from the top left corner,
    prefix included; ragged tiles at the right and lower edge count as whole ones. `prefix` 0 counts the tree alone, as DySpec's
    Table 5 does: its 36 at 256 nodes is the whole lower triangle. DySpec's Figure 9 includes a prefix: its 366 at 768 nodes exceeds the
    300 tiles of a full lower triangle. `tree` is a `DraftTree` or its list of parents. One pass, O(N^2 / block) bits.
    Raises `ValueError` for a block below 1 or a prefix below 0.
    """
    if block < 1 or prefix < 0:
        raise ValueError(f"The block must be at least 1 and the prefix at least 0, got {block} and {prefix}.")
    parents: Sequence[int] = getattr(tree, "parents", tree)  # type: ignore[arg-type]
    committed = (1 << -(-prefix // block)) - 1  # bit j: the tiles' column j is needed
    needed: list[int] = []
    tiles = [0] * -(-len(parents) // block)
    for node, parent in enumerate(parents):
        above = needed[parent] if parent >= 0 else committed
        needed.append(above | 1 << (prefix + node) // block)
        tiles[node // block] |= needed[node]
    return sum(row.bit_count() for row in tiles)
