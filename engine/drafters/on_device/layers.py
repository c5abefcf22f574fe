"""`engine.drafters.eagle` and `engine.drafters.mtp` on a device: layers that go on from the target's states, one call a level."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from engine.drafters.on_device.parts import Entries, OnDevice
from engine.forward.cache import KVCache
from engine.forward.layer_ops import over_all
from engine.forward.runner_gpu import SlotLayer
from engine.models.pairs import LoadedPair
from engine.nets.mtp import Mtp


class EagleOnDevice(Entries):
    """`stands [capacity]` tells the position of every row."""

    @classmethod
    def net_of(cls, pair: LoadedPair, drafter: str) -> Any:
        net = super().net_of(pair, drafter)
        return None if net is None or net.masks else net  # P-EAGLE drafts on the host

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.taps = net.reads

    def open(self, capacity: int, depth: int, rows: int) -> None:
        super().open(capacity, depth, rows)
        self.stands = torch.zeros_like(self.columns)

    def made_cache(self, capacity: int) -> KVCache:
        return self.net.open(capacity).cache

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Any:
        return self.step(tokens, self.net.fused(features), positions, slots, self.seen(slots, start))

    def step(self, tokens: Tensor, feature: Tensor, positions: Tensor, slots: Tensor, seen: Tensor) -> Tensor:
        """What n entries go on from, `[n, H]`. `seen` bool `[n, capacity]` says which rows each may see."""
        self.stands.index_copy_(0, slots, positions)
        if self.net.form and self.net.form.sliding:
            seen = seen & (positions[:, None] - self.stands < self.net.form.sliding)
        return self.net.step(tokens, feature, positions, self.mask(seen), self.cache.kv, slots)

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        """Entries see a window before the first that waits, and nodes one before the root's successor."""
        positions, slots = self.waiting(base)
        start = torch.maximum(self.begun, self.entered - self.net.window)
        self.outs = self.read(self.tokens, self.features, positions, slots, start).index_select(0, self.count)
        self.start = torch.maximum(self.begun, base + 1 - self.net.window)
        return self.log_q(self.outs)

    def level(self, frontier: Any, base: Tensor) -> Tensor:
        feature, seen = self.outs.index_select(0, frontier.parents), self.drafted(frontier, base, self.start)
        out = self.step(frontier.tokens, feature, frontier.positions, base + frontier.places, seen)
        self.outs = torch.cat([self.outs, out])
        return self.log_q(out)

    def log_q(self, out: Tensor) -> Tensor:
        return over_all(self.net.logits(out).log_softmax(-1), self.net.vocabulary, self.net.config.vocab)


class MtpOnDevice(EagleOnDevice):
    """`behind [layers, 1, H]` are the layers' outputs behind the entry before those that wait."""

    @classmethod
    def net_of(cls, pair: LoadedPair, drafter: str) -> Any:
        net = OnDevice.net_of(pair, drafter)
        return net if isinstance(net, Mtp) else None  # Gemma 4's assistant reads the target's own rows

    def open(self, capacity: int, depth: int, rows: int) -> None:
        super().open(capacity, depth, rows)
        self.layers = [SlotLayer(self.cache, layer) for layer in range(len(self.cache.kv))]
        self.past, self.last = Cache(layers=self.layers), len(self.net.model.layers) - 1
        self.behind = self.net.weight.new_zeros(self.last + 1, 1, self.features.shape[2])

    def begin(self, prompt: list[int], features: Any) -> None:
        self.behind.zero_()
        super().begin(prompt, features)

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> None:
        self.behind.copy_(self.entered_by(tokens, features, positions, slots, start)[:, -1:])

    def entered_by(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Tensor:
        """Every layer's outputs `[layers, n, H]` behind n entries. A layer reads the one before, behind the token before."""
        state, outs, seen = features[:, -1].to(self.net.weight.dtype), [], self.seen(slots, start)
        for layer in range(self.last + 1):
            outs.append(self.layer_step(layer, tokens, state, positions, slots, seen))
            state = torch.cat([self.behind[layer], outs[-1][:-1]])
        return torch.stack(outs)

    def layer_step(
        self, layer: int, tokens: Tensor, state: Tensor, positions: Tensor, slots: Tensor, seen: Tensor
    ) -> Tensor:
        self.stands.index_copy_(0, slots, positions)
        seen, window = seen & (self.stands > layer), self.net.sliding[layer]
        if window:
            seen = seen & (positions[:, None] - self.stands < window)
        for each in self.layers:
            each.slots = slots
        return self.net.step(layer, tokens, state, positions, self.mask(seen, self.net.weight.dtype), self.past)

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        positions, slots = self.waiting(base)
        outs = self.entered_by(self.tokens, self.features, positions, slots, self.begun)
        self.outs = outs.index_select(1, self.count)
        self.behind.copy_(self.outs)
        return self.net.log_q(self.outs[0])

    def level(self, frontier: Any, base: Tensor) -> Tensor:
        """The layers from the nodes' depth on write their rows, because deeper nodes are guessed by those."""
        depth, last, slots = frontier.depth, self.last, base + frontier.places
        seen, new = self.drafted(frontier, base, self.begun), []
        for layer in range(last + 1):
            if layer < min(last, depth):
                new.append(self.outs.new_zeros(len(frontier.tokens), self.outs.shape[2]))
                continue
            state = self.outs[last if depth > last else layer - 1].index_select(0, frontier.parents)
            new.append(self.layer_step(layer, frontier.tokens, state, frontier.positions, slots, seen))
        self.outs = torch.cat([self.outs, torch.stack(new)], 1)
        return self.net.log_q(new[min(depth, last)])
