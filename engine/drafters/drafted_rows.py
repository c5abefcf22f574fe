"""Rows of a drafter's KV cache: where a stream of entries begins, and which row belongs to which node. Knows no net."""

import torch

from engine.tree import DraftTree


class DraftedRows:
    """The nodes that have drafted rows, by key, in row order. Drafted rows follow the committed ones; the root's row is committed."""

    def __init__(self):
        # By key, in row order: the drafted rows of the node's ancestors, then its own.
        self.seen: dict[int, list[int]] = {}

    def write(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        """Assign the next rows to `nodes`, whose ancestors have rows already.

        Returns bool `[n, rows]`: the drafted rows that each node sees, its ancestors' and its own.
        """
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
    """The position of the first stream entry, and the features `[n, 4, H]` of all entries.

    An entry holds a token and the features of the token before it. Token 0 has none before it, so the stream begins at token 1.
    A prompt of one token begins at token 0, with zeros as its features.
    """
    return (1, features) if len(prompt) > 1 else (0, features.new_zeros(1, *features.shape[1:]))
