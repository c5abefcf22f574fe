"""`engine.drafters.parallel` and `engine.drafters.specblock` on a device: one forward reads the text and guesses several depths.

Of SpecBlock it is the root's block, with its rank head.
"""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.on_device.parts import Entries
from engine.models.pairs import LoadedPair


class ParallelOnDevice(Entries):
    taps, forwards_at_once = True, True

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.depth = net.config.depth

    def open(self, capacity: int, depth: int, rows: int) -> None:
        super().open(capacity, depth, rows + self.depth)
        self.slots = torch.arange(1, self.depth, device=self.device)  # behind the root, whose entry is the first slot

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Tensor:
        x = self.entering(tokens, features)
        return self.through(x, torch.arange(len(x), device=self.device), positions, slots, start)

    def entering(self, tokens: Tensor, features: Tensor) -> Tensor:
        """The text's entries `[n, H]`."""
        return self.net.stream(tokens, features)

    def slot_entries(self, root: Tensor) -> Tensor:
        return self.net.slot().expand(len(self.slots), -1)

    def through(self, x: Tensor, before: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Tensor:
        """States `[n, H]` of entries `x [n, H]`, each of which follows that of number `before [n]`."""
        return self.net(x[None], positions, self.mask(self.seen(slots, start)), self.cache.kv, slots)[0]

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        positions, slots = self.waiting(base)
        behind, numbers = base + self.slots, len(self.steps) + self.slots - 1
        x = torch.cat([self.entering(self.tokens, self.features), self.slot_entries(root)])
        before = torch.cat([self.steps, self.count, numbers])[: len(x)]  # the first slot follows the root's entry
        x = self.through(x, before, torch.cat([positions, behind]), torch.cat([slots, behind]), self.begun)
        self.states = x.index_select(0, torch.cat([self.count, numbers]))
        self.levels = self.net.logits(self.states).log_softmax(-1)
        return self.levels[:1]


class SpecBlockOnDevice(ParallelOnDevice):
    def entering(self, tokens: Tensor, features: Tensor) -> Tensor:
        return self.net.entering(self.net.condition(features), tokens, slice(0, 1))[:, 0]

    def slot_entries(self, root: Tensor) -> Tensor:
        condition = self.net.condition(self.features).index_select(0, self.count)
        return self.net.entering(condition[0], root[0], slice(1, None))

    def through(self, x: Tensor, before: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Tensor:
        mask = self.mask(self.seen(slots, start))
        return self.net(x[None], before, positions, mask, kv=self.cache.kv, rows=slots)[0]

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        log_q = super().first(root, base)
        self.buckets = self.net.ranks(self.states, self.levels).argmax(-1)
        return log_q
