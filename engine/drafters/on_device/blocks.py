"""`engine.drafters.medusa`, DFlash, DSpark, `engine.drafters.parallel` and SpecBlock on a device: a forward guesses several depths."""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.on_device.parts import DrafterOnDevice, FeatureEntryDrafterOnDevice
from engine.forward.cache import KVCache
from engine.forward.runner_gpu import visible_slots
from engine.models.pairs import LoadedPair


class MedusaOnDevice(DrafterOnDevice):
    reads_features, most_forwards = True, 0

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.depth = net.config.depth

    def allocate_buffers(self, capacity: int, depth: int, expanded_nodes: int) -> None:
        self.guessed, reads = depth, self.net.config.feature_size
        self.final = torch.zeros(1, reads, device=self.device)

    def begin(self, prompt: list[int], features: Any) -> None:
        self.final.copy_(features[-1, -1:]) if len(features) else self.final.zero_()

    def start_round_and_get_root_log_q(self, root: Tensor, root_position: Tensor) -> Tensor:
        self.log_q_by_depth = [self.net.log_q(self.final, k) for k in range(self.guessed)]
        return self.log_q_by_depth[0]

    def commit(
        self, tree: Any, path: Tensor, accepted_count: Tensor, bonus: Tensor, root_position: Tensor, features: Any
    ) -> None:
        self.final.copy_(features.index_select(0, path.index_select(0, accepted_count))[0, -1:])


class DFlashOnDevice(FeatureEntryDrafterOnDevice):
    """Entries are of the tokens that the target has read, and the block stands behind them."""

    offset, most_forwards = 0, 1

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.reads_features, self.depth = net.sizes.reads_features, net.config.depth

    def allocate_buffers(self, capacity: int, depth: int, expanded_nodes: int) -> None:
        super().allocate_buffers(capacity, depth, expanded_nodes + self.net.sizes.block_size)
        self.block = torch.arange(self.net.sizes.block_size, device=self.device)
        self.blanks = torch.full_like(self.block[1:], self.net.sizes.mask_token_id)

    def create_entry_cache(self, capacity: int) -> KVCache:
        sizes = self.net.sizes
        return KVCache(sizes.layers, sizes.kv_heads, sizes.head_dim, capacity, torch.float32, self.device)

    def forward_entries_into_cache(
        self, tokens: Tensor, features: Tensor, positions: Tensor, cache_rows: Tensor, first_visible_row: Tensor
    ) -> None:
        self.net.write_context_kv_rows(features, positions, self.cache.kv, cache_rows)

    def start_round_and_get_root_log_q(self, root: Tensor, root_position: Tensor) -> Tensor:
        self.forward_entries_into_cache(
            self.tokens, self.features, *self.pending_entry_positions_and_cache_rows(root_position), self.begun
        )
        places = root_position + self.block
        mask = self.additive_mask_of((self.columns <= places[-1:])[None])  # all of the context and of the block
        slots = self.net.forward_block_to_log_q(torch.cat([root, self.blanks]), places, mask, self.cache.kv, places)
        self.log_q_by_depth = self.net.expand_slots_to_full_vocab(slots)
        return self.net.condition_on_tokens(self.log_q_by_depth[:1], root)

    def log_q_of_level(self, frontier: Any, root_position: Tensor) -> Tensor:
        return self.net.condition_on_tokens(super().log_q_of_level(frontier, root_position), frontier.tokens)


class ParallelOnDevice(FeatureEntryDrafterOnDevice):
    reads_features = True
    log_q_by_depth: Tensor

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.depth = net.config.depth

    def allocate_buffers(self, capacity: int, depth: int, expanded_nodes: int) -> None:
        super().allocate_buffers(capacity, depth, expanded_nodes + self.depth)
        self.slots = torch.arange(1, self.depth, device=self.device)  # behind the root, whose entry is the first slot
        self.most_forwards = -(-depth // self.depth)

    def forward_entries_into_cache(
        self, tokens: Tensor, features: Tensor, positions: Tensor, cache_rows: Tensor, first_visible_row: Tensor
    ) -> Tensor:
        """States `[n, H]`, behind the entries of the `tokens` those of the block."""
        mask = self.additive_mask_of(self.causal_mask(cache_rows, first_visible_row))
        return self.net.forward_block(tokens, features, self.count, positions, mask, self.cache.kv, cache_rows)

    def start_round_and_get_root_log_q(self, root: Tensor, root_position: Tensor) -> Tensor:
        behind = root_position + self.slots
        positions, slots = (
            torch.cat([each, behind]) for each in self.pending_entry_positions_and_cache_rows(root_position)
        )
        states = self.forward_entries_into_cache(self.tokens, self.features, positions, slots, self.begun)
        self.store_guesses_from_states(
            states.index_select(0, torch.cat([self.count, len(self.steps) + self.slots - 1]))
        )
        return self.log_q_by_depth[:1]

    def store_guesses_from_states(self, states: Tensor) -> None:
        """Guess from the `states [n, H]` of a block's positions."""
        self.log_q_by_depth = self.net.logits(states).log_softmax(-1)


class SpecBlockOnDevice(ParallelOnDevice):
    def store_guesses_from_states(self, states: Tensor) -> None:
        super().store_guesses_from_states(states)
        self.states, self.rank_buckets = states, self.net.rank_head_logits(states, self.log_q_by_depth).argmax(-1)

    def draft_blocks_from_nodes(
        self,
        tokens: Tensor,
        parent_expansion_index: Tensor,
        positions: Tensor,
        expansion_index: Tensor,
        visible_expansion_mask: Tensor,
        root_position: Tensor,
    ) -> None:
        """Guess blocks from `tokens [n]`, which positions with the places `parent_expansion_index [n]` guessed. The rest is of their
        n K positions.
        """
        known, seen = (
            self.states,
            visible_slots(self.columns, root_position, visible_expansion_mask) & (self.columns >= self.begun),
        )
        x, before = self.net.block_inputs_and_predecessors(known.index_select(0, parent_expansion_index), tokens)
        rows, mask = root_position + expansion_index, self.additive_mask_of(seen)
        self.store_guesses_from_states(self.net(x[None], before, positions, mask, kv=self.cache.kv, rows=rows)[0])
        self.states = torch.cat([known, self.states])
