"""Rows of a drafter's KV cache: where a stream of entries begins, and which row belongs to which node."""

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
            visible[row, [column[tree.keys[each]] for each in tree.path(node)]] = True
        return visible

    def of(self, tree: DraftTree, path: list[int]) -> list[int]:
        """The rows, counted from the first drafted one, of the nodes of `path` that have one."""
        column = {key: index for index, key in enumerate(self.order)}
        return [column[tree.keys[node]] for node in path if tree.keys[node] in column]


def stream_start(prompt: list[int], features: torch.Tensor) -> tuple[int, torch.Tensor]:
    """The position of the first stream entry and the features `[n, 4, H]` of all entries, one behind the token before each.

    Token 0 has no feature before it, so the stream begins at token 1; a prompt of one token begins with zeros in its place.
    """
    return (1, features) if len(prompt) > 1 else (0, features.new_zeros(1, *features.shape[1:]))
