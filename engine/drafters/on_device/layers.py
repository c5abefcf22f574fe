"""`engine.drafters.eagle` and `engine.drafters.mtp` on a device: layers that go on from the target's states, one call a level."""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.on_device.parts import Entries, OnDevice
from engine.forward.cache import KVCache
from engine.models.pairs import LoadedPair
from engine.nets.eagle import EagleSession
from engine.nets.mtp import Mtp, MtpSession


class EagleOnDevice(Entries):
    session_type: Any = EagleSession

    @classmethod
    def net_of(cls, pair: LoadedPair, drafter: str) -> Any:
        net = super().net_of(pair, drafter)
        return None if net is None or net.masks else net  # P-EAGLE drafts on the host

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.taps = net.reads

    def made_cache(self, capacity: int) -> KVCache:
        self.session = self.session_type(self.net, capacity)
        return self.session.cache

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Tensor:
        return self.session.enter(features, tokens, positions, slots, self.seen(slots, start))

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        """Entries see a window before the first that waits, and nodes one before the root's successor."""
        start = torch.maximum(self.begun, self.entered - self.net.window)
        outs = self.read(self.tokens, self.features, *self.waiting(base), start)
        self.start = torch.maximum(self.begun, base + 1 - self.net.window)
        return self.session.start_at(outs.index_select(-2, self.count))

    def level(self, frontier: Any, base: Tensor) -> Tensor:
        slots, seen = base + frontier.places, self.drafted(frontier, base, self.start)
        entries = frontier.tokens, frontier.positions, slots, seen
        return self.session.deepen(frontier.depth, frontier.parents, *entries)


class MtpOnDevice(EagleOnDevice):
    session_type = MtpSession

    @classmethod
    def net_of(cls, pair: LoadedPair, drafter: str) -> Any:
        net = OnDevice.net_of(pair, drafter)
        return net if isinstance(net, Mtp) else None  # Gemma 4's assistant reads the target's own rows
