"""Rows of a drafter's KV cache: where a stream of entries begins, and which row belongs to which node."""

import torch

from engine.tree import DraftTree


class DraftedRows:
    """Nodes by key in the order of their rows, which stand behind the committed ones. The root's row is a committed one."""

    def __init__(self):
        # By key, in the order of the rows: the rows of a node's ancestors and its own.
        self.seen: dict[int, list[int]] = {}

    def write(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        """Note rows for `nodes`, whose ancestors have theirs; returns which drafted rows each may attend to: bool `[n, rows]`, its
        ancestors and itself."""
        first, count = len(self.seen), len(self.seen) + len(nodes)
        flags = bytearray(len(nodes) * count)
        for row, node in enumerate(nodes):
            rows = [*self.seen.get(tree.keys[tree.parents[node]], ()), first + row]
            self.seen[tree.keys[node]] = rows
            for each in rows:
                flags[row * count + each] = 1
        return torch.frombuffer(flags, dtype=torch.bool).view(len(nodes), count)

    def of(self, tree: DraftTree, path: list[int]) -> list[int]:
        """The rows, counted from the first drafted one, of the nodes of `path` that have one."""
        keys = [tree.keys[node] for node in path]
        return [self.seen[key][-1] for key in keys if key in self.seen]


def stream_start(prompt: list[int], features: torch.Tensor) -> tuple[int, torch.Tensor]:
    """The position of the first stream entry and the features `[n, 4, H]` of all entries, one behind the token before each.

    Token 0 has no feature before it, so the stream begins at token 1; a prompt of one token begins with zeros in its place.
    """
    return (1, features) if len(prompt) > 1 else (0, features.new_zeros(1, *features.shape[1:]))
