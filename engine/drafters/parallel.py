"""Parallel-tree drafter: one forward a round answers every depth. All nodes of a depth get the same guess.

Rows of slots are never kept.
"""

from typing import Any

import torch

from engine.contracts import Features
from engine.drafters.shared.stream import FeatureEntryDrafter
from engine.forward.cache import KVCache, additive_mask
from engine.forward.devices import select_rows, upload
from engine.models.pairs import LoadedPair
from engine.tree import DraftTree

Guesses = tuple[torch.Tensor, torch.Tensor]  # a net's states `[n, H]` and the log-probabilities `[n, V]` at them


class ParallelDrafter(FeatureEntryDrafter):
    title = "parallel"
    about = "A small net that guesses every depth in one forward."
    source = "the feature-conditioned parallel-tree drafter"
    required_resource = "parallel"

    max_guess_forwards_per_round = 1  # forwards of a round that guess, at most

    def __init__(self, pair: LoadedPair, capacity: int):
        self.net: Any = pair.net(self.required_resource)
        config, device = self.net.config, self.net.embedding.device
        self.depth = config.depth
        width, room = config.hidden // config.heads, capacity + self.max_guess_forwards_per_round * config.depth
        self.cache = KVCache(config.layers, config.heads, width, room, torch.float32, device)

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.cache.rows = 0
        super().begin(prompt, features)
        if len(self.pending) > 1:  # the first round writes the root's entry, together with its slots
            self.append_entries_and_guess_at_slots(self.pending[:-1], self.features[:-1], slot_count=0)
        self.pending, self.features = self.pending[-1:], self.features[-1:]

    def discard_draft(self) -> None:
        self.levels: torch.Tensor | None = None  # this round's log-probabilities, a row for each depth

    @torch.inference_mode()
    def append_entries_and_guess_at_slots(self, tokens: list[int], features: torch.Tensor, slot_count: int) -> Guesses:
        """The guesses at the last of these entries, whose rows stay, and at its slots; without slots there may be none."""
        net, rows, count = self.net, self.cache.rows, len(tokens)
        if net.compiled:
            return net.compiled(self.cache, tokens, features, self.first + rows, slot_count)
        self.cache.refuse_overflow(count + slot_count)
        end, ids = rows + count + slot_count, upload(tokens, features.device)
        mask = additive_mask(torch.ones(end - rows, end - rows, dtype=torch.bool, device=ids.device).tril_(), end)
        positions = torch.arange(self.first + rows, self.first + end, device=ids.device)
        last = ids.new_full((1,), count - 1)
        states = net.forward_block(ids, features, last, positions, mask, self.cache.kv, rows)[count - 1 :]
        self.cache.rows = rows + count
        return self.states_with_their_log_q(states)

    def states_with_their_log_q(self, states: torch.Tensor) -> Guesses:
        return states, self.net.logits(states).log_softmax(-1)

    def read_pending_and_guess_all_depths(self) -> torch.Tensor:
        """Log-probabilities `[depth, V]` of a round. The pending entries' rows stay."""
        # Without slots a forward answers nothing: a net of one depth asks for one that nobody reads.
        return self.append_entries_and_guess_at_slots(*self.take_pending_entries(), slot_count=max(1, self.depth - 1))[
            1
        ][: self.depth]

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """As `Drafter.log_q`; None where a node stands deeper than the net was trained for."""
        depths = [tree.depth[node] for node in nodes]
        if max(depths) >= self.depth:
            return None
        if self.levels is None:
            self.levels, self.draft_forward_count = (
                self.read_pending_and_guess_all_depths(),
                self.draft_forward_count + 1,
            )
        return select_rows(self.levels, depths)
