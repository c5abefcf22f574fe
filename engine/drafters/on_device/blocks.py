"""`engine.drafters.medusa`, DFlash, DSpark, `engine.drafters.parallel` and SpecBlock on a device: a forward guesses several depths."""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.on_device.parts import Entries, OnDevice
from engine.forward.cache import KVCache
from engine.forward.runner_gpu import rows_behind
from engine.models.pairs import LoadedPair


class MedusaOnDevice(OnDevice):
    taps, most_forwards = True, 0

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


class DFlashOnDevice(Entries):
    """Entries are of the tokens that the target has read, and the block stands behind them."""

    offset, most_forwards = 0, 1

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
        slots = self.net.slots(torch.cat([root, self.blanks]), places, mask, self.cache.kv, places)
        self.levels = self.net.spread(slots)
        return self.net.condition_slots(self.levels[:1], root)

    def level(self, frontier: Any, base: Tensor) -> Tensor:
        return self.net.condition_slots(super().level(frontier, base), frontier.tokens)


class ParallelOnDevice(Entries):
    taps = True

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.depth = net.config.depth

    def open(self, capacity: int, depth: int, rows: int) -> None:
        super().open(capacity, depth, rows + self.depth)
        self.slots = torch.arange(1, self.depth, device=self.device)  # behind the root, whose entry is the first slot
        self.most_forwards = -(-depth // self.depth)

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Tensor:
        """States `[n, H]`, behind the entries of the `tokens` those of the block."""
        mask = self.mask(self.seen(slots, start))
        return self.net.block(tokens, features, self.count, positions, mask, self.cache.kv, slots)

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        behind = base + self.slots
        positions, slots = (torch.cat([each, behind]) for each in self.waiting(base))
        states = self.read(self.tokens, self.features, positions, slots, self.begun)
        self.answer(states.index_select(0, torch.cat([self.count, len(self.steps) + self.slots - 1])))
        return self.levels[:1]

    def answer(self, states: Tensor) -> None:
        """Guess from the `states [n, H]` of a block's positions."""
        self.levels = self.net.logits(states).log_softmax(-1)


class SpecBlockOnDevice(ParallelOnDevice):
    def answer(self, states: Tensor) -> None:
        super().answer(states)
        self.states, self.buckets = states, self.net.ranks(states, self.levels).argmax(-1)

    def restart(
        self, tokens: Tensor, parents: Tensor, positions: Tensor, places: Tensor, lineage: Tensor, base: Tensor
    ) -> None:
        """Guess blocks from `tokens [n]`, which positions with the places `parents [n]` guessed. The rest is of their n K positions."""
        known, seen = self.states, rows_behind(self.columns, base, lineage) & (self.columns >= self.begun)
        x, before = self.net.blocks(known.index_select(0, parents), tokens)
        self.answer(self.net(x[None], before, positions, self.mask(seen), kv=self.cache.kv, rows=base + places)[0])
        self.states = torch.cat([known, self.states])
