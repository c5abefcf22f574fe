"""Rows of a drafter's KV cache: which row belongs to which node. Knows no net."""

import torch

from engine.tree import DraftTree


class DraftedRowsByNode:
    """The nodes that have drafted rows, by key. Drafted rows follow the committed ones; the root's row is committed."""

    def __init__(self):
        # By key: the drafted rows of the node's ancestors, then its own.
        self.seen: dict[int, list[int]] = {}
        self.count = 0  # rows that are written, those of no node included

    def drafted_row_of(self, tree: DraftTree, node: int) -> int:
        """The drafted row of a node, counted from the first drafted one; -1 for the root, whose row is committed."""
        return self.seen[tree.creation_indices[node]][-1] if node else -1

    def assign_rows_and_build_mask(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        """Assign the next rows to `nodes`. Returns bool `[n, rows]`: the drafted rows that each sees, its ancestors' and its own."""
        first, self.count = self.count, self.count + len(nodes)
        count = self.count
        flags = bytearray(len(nodes) * count)
        for row, node in enumerate(nodes):
            seen = self.seen[tree.creation_indices[node]] = [
                *self.seen.get(tree.creation_indices[tree.parents[node]], ()),
                first + row,
            ]
            for each in seen:
                flags[row * count + each] = 1
        return torch.frombuffer(flags, dtype=torch.bool).view(len(nodes), count)

    def drafted_rows_of_path(self, tree: DraftTree, path: list[int]) -> list[int]:
        """The rows, counted from the first drafted one, of the nodes of `path` that have one."""
        keys = [tree.creation_indices[node] for node in path]
        return [self.seen[key][-1] for key in keys if key in self.seen]
