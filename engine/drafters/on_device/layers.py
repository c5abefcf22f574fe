"""`engine.drafters.eagle` and `engine.drafters.mtp` on a device: layers that go on from the target's states, one call a level."""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.on_device.parts import DrafterOnDevice, FeatureEntryDrafterOnDevice
from engine.forward.cache import KVCache
from engine.models.pairs import LoadedPair
from engine.nets.eagle import EagleSession
from engine.nets.mtp import Mtp, MtpSession


class EagleOnDevice(FeatureEntryDrafterOnDevice):
    session_type: Any = EagleSession

    @classmethod
    def find_device_net(cls, pair: LoadedPair, drafter_name: str) -> Any:
        net = super().find_device_net(pair, drafter_name)
        return None if net is None or net.mask_tokens else net  # P-EAGLE drafts on the host

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.reads_features = net.reads_features

    def create_entry_cache(self, capacity: int) -> KVCache:
        self.session = self.session_type(self.net, capacity)
        return self.session.cache

    def forward_entries_into_cache(
        self, tokens: Tensor, features: Tensor, positions: Tensor, cache_rows: Tensor, first_visible_row: Tensor
    ) -> Tensor:
        return self.session.forward_text_entries(
            features, tokens, positions, cache_rows, self.causal_mask(cache_rows, first_visible_row)
        )

    def start_round_and_get_root_log_q(self, root: Tensor, root_position: Tensor) -> Tensor:
        """Entries see a window before the first that waits, and nodes one before the root's successor."""
        start = torch.maximum(self.begun, self.entered - self.net.window)
        outs = self.forward_entries_into_cache(
            self.tokens, self.features, *self.pending_entry_positions_and_cache_rows(root_position), start
        )
        self.start = torch.maximum(self.begun, root_position + 1 - self.net.window)
        return self.session.store_root_output_and_log_q(outs.index_select(-2, self.count))

    def log_q_of_level(self, frontier: Any, root_position: Tensor) -> Tensor:
        slots, seen = (
            root_position + frontier.expansion_index,
            self.text_and_ancestor_mask(frontier, root_position, self.start),
        )
        entries = frontier.tokens, frontier.positions, slots, seen
        return self.session.log_q_of_drafted_entries(frontier.depth, frontier.parent_expansion_index, *entries)


class MtpOnDevice(EagleOnDevice):
    session_type = MtpSession

    @classmethod
    def find_device_net(cls, pair: LoadedPair, drafter_name: str) -> Any:
        net = DrafterOnDevice.find_device_net(pair, drafter_name)
        return net if isinstance(net, Mtp) else None  # Gemma 4's assistant reads the target's own rows
