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
        self.slots = torch.arange(
            1, max(2, self.depth), device=self.device
        )  # behind the root, whose entry is the first slot

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Tensor:
        return self.through(self.net.stream(tokens, features), positions, slots, start)

    def through(self, x: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Tensor:
        return self.net(x[None], positions, self.mask(self.seen(slots, start)), self.cache.kv, slots)[0]

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        positions, slots = self.waiting(base)
        behind = base + self.slots
        x = torch.cat([self.net.stream(self.tokens, self.features), self.net.slot().expand(len(behind), -1)])
        states = self.through(x, torch.cat([positions, behind]), torch.cat([slots, behind]), self.begun)
        chosen = torch.cat([self.count, len(self.steps) + self.slots - 1])
        self.levels = self.net.logits(states.index_select(0, chosen)).log_softmax(-1)
        return self.levels[:1]

    def level(self, frontier: Any, base: Tensor) -> Tensor:
        return self.levels[frontier.depth : frontier.depth + 1].expand(len(frontier.tokens), -1)


class SpecBlockOnDevice(ParallelOnDevice):
    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Tensor:
        x = self.net.entering(self.net.condition(features), tokens, slice(0, 1))[:, 0]
        own = torch.arange(len(x), device=self.device)
        return self.net(x[None], own, positions, self.mask(self.seen(slots, start)), kv=self.cache.kv, rows=slots)[0]

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        """Positions of the block go on from the root's entry, each from the one before it."""
        positions, slots = self.waiting(base)
        net, entries, behind = self.net, len(self.steps), base + self.slots[: self.depth - 1]
        condition = net.condition(self.features)
        x = net.entering(condition, self.tokens, slice(0, 1))[:, 0]
        block = net.entering(condition.index_select(0, self.count)[0], root[0], slice(1, None))
        before = torch.cat([self.steps, self.count, entries + self.slots[: self.depth - 2] - 1])[
            : entries + len(behind)
        ]
        mask = self.mask(self.seen(torch.cat([slots, behind]), self.begun))
        places = torch.cat([positions, behind]), mask
        states = net(torch.cat([x, block])[None], before, *places, kv=self.cache.kv, rows=torch.cat([slots, behind]))[0]
        states = states.index_select(0, torch.cat([self.count, entries + self.slots[: self.depth - 1] - 1]))
        self.levels = net.logits(states).log_softmax(-1)
        self.buckets = net.ranks(states, self.levels).argmax(-1)
        return self.levels[:1]
