"""`engine.drafters.medusa`, DFlash, DSpark, `engine.drafters.parallel` and SpecBlock on a device: a forward guesses several depths."""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.on_device.parts import DrafterOnDevice, FeatureDrafterOnDevice
from engine.forward.cache import KVCache
from engine.forward.runner_gpu import visible_slots
from engine.models.pairs import LoadedPair


class MedusaOnDevice(DrafterOnDevice):
    taps, most_forwards = True, 0

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.depth = net.config.depth

    def allocate_buffers(self, capacity: int, depth: int, expanded_nodes: int) -> None:
        self.guessed, reads = depth, self.net.config.feature_size
        self.final = torch.zeros(1, reads, device=self.device)

    def begin(self, prompt: list[int], features: Any) -> None:
        self.final.copy_(features[-1, -1:]) if len(features) else self.final.zero_()

    def log_q_of_root(self, root: Tensor, root_position: Tensor) -> Tensor:
        self.levels = [self.net.log_q(self.final, k) for k in range(self.guessed)]
        return self.levels[0]

    def commit(self, tree: Any, path: Tensor, accepted: Tensor, bonus: Tensor, position: Tensor, features: Any) -> None:
        self.final.copy_(features.index_select(0, path.index_select(0, accepted))[0, -1:])


class DFlashOnDevice(FeatureDrafterOnDevice):
    """Entries are of the tokens that the target has read, and the block stands behind them."""

    offset, most_forwards = 0, 1

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.taps, self.depth = net.sizes.reads, net.config.depth

    def allocate_buffers(self, capacity: int, depth: int, expanded_nodes: int) -> None:
        super().allocate_buffers(capacity, depth, expanded_nodes + self.net.sizes.block)
        self.block = torch.arange(self.net.sizes.block, device=self.device)
        self.blanks = torch.full_like(self.block[1:], self.net.sizes.mask)

    def make_cache(self, capacity: int) -> KVCache:
        sizes = self.net.sizes
        return KVCache(sizes.layers, sizes.kv_heads, sizes.head_dim, capacity, torch.float32, self.device)

    def feed_entries(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> None:
        self.net.write_context_kv_rows(features, positions, self.cache.kv, slots)

    def log_q_of_root(self, root: Tensor, root_position: Tensor) -> Tensor:
        self.feed_entries(self.tokens, self.features, *self.locate_pending_entries(root_position), self.begun)
        places = root_position + self.block
        mask = self.additive_mask_of((self.columns <= places[-1:])[None])  # all of the context and of the block
        slots = self.net.forward_block(torch.cat([root, self.blanks]), places, mask, self.cache.kv, places)
        self.levels = self.net.spread_over_vocabulary(slots)
        return self.net.condition_on_tokens(self.levels[:1], root)

    def log_q_of_level(self, frontier: Any, root_position: Tensor) -> Tensor:
        return self.net.condition_on_tokens(super().log_q_of_level(frontier, root_position), frontier.tokens)


class ParallelOnDevice(FeatureDrafterOnDevice):
    taps = True

    def __init__(self, pair: LoadedPair, net: Any):
        super().__init__(pair, net)
        self.depth = net.config.depth

    def allocate_buffers(self, capacity: int, depth: int, expanded_nodes: int) -> None:
        super().allocate_buffers(capacity, depth, expanded_nodes + self.depth)
        self.slots = torch.arange(1, self.depth, device=self.device)  # behind the root, whose entry is the first slot
        self.most_forwards = -(-depth // self.depth)

    def feed_entries(self, tokens: Tensor, features: Tensor, positions: Tensor, slots: Tensor, start: Tensor) -> Tensor:
        """States `[n, H]`, behind the entries of the `tokens` those of the block."""
        mask = self.additive_mask_of(self.causal_mask(slots, start))
        return self.net.forward_block(tokens, features, self.count, positions, mask, self.cache.kv, slots)

    def log_q_of_root(self, root: Tensor, root_position: Tensor) -> Tensor:
        behind = root_position + self.slots
        positions, slots = (torch.cat([each, behind]) for each in self.locate_pending_entries(root_position))
        states = self.feed_entries(self.tokens, self.features, positions, slots, self.begun)
        self.store_log_q_of_states(states.index_select(0, torch.cat([self.count, len(self.steps) + self.slots - 1])))
        return self.levels[:1]

    def store_log_q_of_states(self, states: Tensor) -> None:
        """Guess from the `states [n, H]` of a block's positions."""
        self.levels = self.net.logits(states).log_softmax(-1)


class SpecBlockOnDevice(ParallelOnDevice):
    def store_log_q_of_states(self, states: Tensor) -> None:
        super().store_log_q_of_states(states)
        self.states, self.buckets = states, self.net.rank_head_logits(states, self.levels).argmax(-1)

    def start_blocks(
        self, tokens: Tensor, parents: Tensor, positions: Tensor, places: Tensor, lineage: Tensor, root_position: Tensor
    ) -> None:
        """Guess blocks from `tokens [n]`, which positions with the places `parents [n]` guessed. The rest is of their n K positions."""
        known, seen = self.states, visible_slots(self.columns, root_position, lineage) & (self.columns >= self.begun)
        x, before = self.net.inputs_of_blocks(known.index_select(0, parents), tokens)
        rows, mask = root_position + places, self.additive_mask_of(seen)
        self.store_log_q_of_states(self.net(x[None], before, positions, mask, kv=self.cache.kv, rows=rows)[0])
        self.states = torch.cat([known, self.states])
