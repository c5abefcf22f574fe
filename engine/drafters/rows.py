"""DraftedRows: which row of a drafter's KV cache belongs to which node. Shared by drafters that run level by level."""

import torch

from engine.tree import DraftTree


class DraftedRows:
    """Nodes by key in the order of their rows, which stand behind the committed ones. The root's row is a committed one."""

    def __init__(self):
        self.order: list[int] = []

    def write(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        """Note rows for `nodes`, whose ancestors have theirs; returns which drafted rows each may attend to: bool `[n, rows]`, its
        ancestors and itself."""
        self.order += [tree.keys[node] for node in nodes]
        column = {key: index for index, key in enumerate(self.order)}
        visible = torch.zeros(len(nodes), len(self.order), dtype=torch.bool)
        for row, node in enumerate(nodes):
            while node > 0:
                visible[row, column[tree.keys[node]]] = True
                node = tree.parents[node]
        return visible

    def of(self, tree: DraftTree, path: list[int]) -> list[int]:
        """The rows, counted from the first drafted one, of the nodes of `path` that have one."""
        column = {key: index for index, key in enumerate(self.order)}
        return [column[tree.keys[node]] for node in path if tree.keys[node] in column]
