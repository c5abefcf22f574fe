"""DFlash drafter: one forward a round guesses a whole block. All nodes of a depth get the same guess, for slots do not know the path.

Invariant: between rounds the cache holds only rows of the context, made from the target's true features. They end just before the first
token of `features`. Rows of a block are never kept.
"""

import torch

from engine.contracts import Counterpart, Drafter
from engine.forward.cache import KVCache
from engine.models.pairs import LoadedPair
from engine.nets.dflash import DFlash
from engine.tree import DraftTree


class DFlashDrafter(Drafter):
    title = "DFlash"
    about = "A small net that fills a block of blanks in one forward."
    source = "DFlash (z-lab)"
    counterpart = Counterpart("block")
    reads_features: bool | tuple[int, ...] = True

    def __init__(self, pair: LoadedPair, capacity: int):
        """Raises `ValueError` when no DFlash drafter was trained for the pair's target."""
        self.net: DFlash = pair.net("dflash")
        sizes, device = self.net.sizes, self.net.embedding.device
        self.reads_features = sizes.reads
        room = capacity + sizes.block
        self.cache = KVCache(sizes.layers, sizes.kv_heads, sizes.head_dim, room, torch.float32, device)
        self.forwards = 0

    def begin(self, prompt: list[int], features: torch.Tensor | None = None) -> None:
        assert features is not None  # it reads them
        self.cache.rows, self.features = 0, features
        self.levels: torch.Tensor | None = None  # this round's log-probabilities, a row for each depth

    @torch.inference_mode()
    def forward(self, anchor: int) -> torch.Tensor:
        """Log-probabilities `[block - 1, V]` behind the anchor. The context's new rows are kept."""
        net, cache, new = self.net, self.cache, len(self.features)
        if net.compiled:
            return net.compiled(cache, anchor, self.features)
        cache.room_for(new + net.sizes.block)
        if new:
            positions = torch.arange(cache.rows, cache.rows + new, device=net.embedding.device)
            net.read(self.features, positions, cache.kv, cache.rows)
            cache.keep(list(range(new)))
        return net.log_q(anchor, cache.rows, cache.kv, cache.rows)

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """As `Drafter.log_q`; None where a node stands at the block's end."""
        depths = [tree.depth[node] for node in nodes]
        if max(depths) >= self.net.config.depth:
            return None
        if self.levels is None:
            self.levels = self.forward(tree.tokens[0])
            self.features, self.forwards = self.features[:0], self.forwards + 1
        return self.levels[depths]

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: torch.Tensor | None = None) -> None:
        assert features is not None  # it reads them
        self.features, self.levels = torch.cat([self.features, features[[0, *path]]]), None
