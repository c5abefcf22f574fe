"""`engine.drafters.medusa`, `engine.drafters.dflash` and DSpark on a device: all depths are guessed at once, behind the root."""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.on_device.parts import Entries, OnDevice
from engine.forward.cache import KVCache
from engine.forward.layer_ops import over_all
from engine.models.pairs import LoadedPair
from engine.nets.dspark import DSpark


class MedusaOnDevice(OnDevice):
    taps = True

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.depth = net.config.depth

    def open(self, capacity: int, depth: int, rows: int) -> None:
        self.guessed, reads = depth, self.net.config.reads
        self.final = torch.zeros(1, reads, device=self.device)

    def begin(self, prompt: list[int], features: Any) -> None:
        self.final.copy_(features[-1, -1:]) if len(features) else self.final.zero_()

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        self.levels = [self.net.log_q(self.final, k) for k in range(self.guessed)]
        return self.levels[0]

    def commit(self, tree: Any, path: Tensor, count: Tensor, bonus: Tensor, base: Tensor, features: Any) -> None:
        self.final.copy_(features.index_select(0, path.index_select(0, count))[0, -1:])

    def forwards(self, levels: int) -> int:
        return 0


class DFlashOnDevice(Entries):
    """Entries are of the tokens that the target has read, and the block stands behind them."""

    offset, forwards_at_once = 0, True

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.taps, self.depth = net.sizes.reads, net.config.depth

    def open(self, capacity: int, depth: int, rows: int) -> None:
        super().open(capacity, depth, rows + self.net.sizes.block)
        self.block = torch.arange(self.net.sizes.block, device=self.device)
        self.blanks = torch.full_like(self.block[1:], self.net.sizes.mask)

    def made_cache(self, capacity: int) -> KVCache:
        sizes = self.net.sizes
        return KVCache(sizes.layers, sizes.kv_heads, sizes.head_dim, capacity, torch.float32, self.device)

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> None:
        self.net.read(features, positions, self.cache.kv, slots)

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        self.read(self.tokens, self.features, *self.waiting(base), self.begun)
        places = base + self.block
        mask = self.mask((self.columns <= places[-1:])[None])  # all of the context and of the block
        slots = self.net.filled(torch.cat([root, self.blanks]), places, mask, self.cache.kv, places)
        biased = isinstance(self.net, DSpark)  # whose bias comes before the other tokens
        self.levels = slots if biased else over_all(slots, self.net.vocabulary, self.net.sizes.vocab)
        return self.guess(0, root)

    def level(self, frontier: Any, base: Tensor) -> Tensor:
        return self.guess(frontier.depth, frontier.tokens)

    def guess(self, depth: int, tokens: Tensor) -> Tensor:
        slots = self.levels[depth : depth + 1].expand(len(tokens), -1)
        return self.net.following(slots, tokens) if isinstance(self.net, DSpark) else slots
