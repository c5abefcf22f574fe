"""EAGLE drafter: goes on from the target's hidden states with one small layer, one forward per tree level for all branches at once.

Invariant: between rounds the cache holds rows made of the target's true features only, up to the token before `pending`'s first;
what was drafted with the drafter's own outputs is thrown away.
"""

import torch

from engine.cache import KVCache, additive
from engine.drafters.rows import DraftedRows, stream_start
from engine.models import LoadedPair
from engine.nets.eagle import Eagle
from engine.tree import DraftTree

WINDOW = 256  # rows that are attended to, as many as a training row had; so drafting does not slow down as a text grows


class EagleDrafter:
    reads_features = True

    def __init__(self, pair: LoadedPair, capacity: int):
        """Raises `ValueError` when no EAGLE drafter was trained for the pair's target."""
        self.net: Eagle = pair.net("eagle")
        config = self.net.config
        self.device = self.net.embedding.device
        self.cache = KVCache(1, config.heads, config.hidden // config.heads, capacity, torch.float32, self.device)
        self.net.reach(capacity)
        self.forwards = 0

    def begin(self, prompt: list[int], features: torch.Tensor | None = None) -> None:
        self.cache.rows = 0
        self.first, features = stream_start(prompt, features)
        self.pending, self.features = prompt[self.first :], features
        self.rows, self.row = DraftedRows(), {}

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        return self.net.log_q(self.catch_up() if nodes == [0] else self.level(tree, nodes))

    def inputs(self, *rows: list[int]) -> tuple[torch.Tensor, ...]:
        """Rows of as many numbers as the next forward has entries, on the device; counts that forward. Raises `ValueError` when the
        cache is full."""
        self.cache.room_for(len(rows[0]))
        self.forwards += 1
        return torch.tensor(rows, device=self.device).unbind()

    @torch.inference_mode()
    def catch_up(self) -> torch.Tensor:
        """Output `[1, H]` of the root's entry, after the entries that were committed since the last round."""
        rows, count = self.cache.rows, len(self.pending)
        tokens, positions = self.inputs(self.pending, list(range(self.first + rows, self.first + rows + count)))
        far = max(0, rows - WINDOW)
        out = self.net.last(tokens, self.net.fused(self.features), positions, self.cache.kv[0, :, :, far:], rows - far)
        self.base = self.cache.rows = rows + count
        self.outs, self.row = out, {0: 0}
        return out

    @torch.inference_mode()
    def level(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        """Outputs `[n, H]` behind nodes whose parents were asked before: each goes on from its parent's output."""
        tokens, positions, above = self.inputs(
            [tree.tokens[node] for node in nodes],
            [self.first + self.base - 1 + tree.depth[node] for node in nodes],
            [self.row[tree.keys[tree.parents[node]]] for node in nodes],
        )
        far, count = max(0, self.base - WINDOW), len(nodes)
        rows = self.cache.rows - far
        mask = additive(self.rows.write(tree, nodes), rows + count).to(self.device)
        feature = self.outs.index_select(0, above)
        out = self.net.step(tokens, feature, positions, mask, self.cache.kv[0, :, :, far:], rows)
        self.cache.rows += count
        for row, node in enumerate(nodes, len(self.outs)):
            self.row[tree.keys[node]] = row
        self.outs = torch.cat([self.outs, out])
        return out

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: torch.Tensor | None = None) -> None:
        tokens, behind = [tree.tokens[node] for node in path] + [bonus], features[[0, *path]]
        if self.row:  # the root's row was written; those of drafted features go
            self.cache.rows = self.base
            self.pending, self.features = tokens, behind
        else:
            self.pending, self.features = self.pending + tokens, torch.cat([self.features, behind])
        self.rows, self.row = DraftedRows(), {}
