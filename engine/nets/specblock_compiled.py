"""`engine.nets.specblock` in compiled loops; held equal by tests/fast/test_equal_to_reference.py[nets.specblock_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.kernels.attention import causal_mask
from engine.kernels.compiling import compiled, within
from engine.kernels.eight_bit import EightBit, multiply_eight_bit
from engine.kernels.elementwise import add_row, copy_row, divide_rows_by_length, join_feature_rows
from engine.kernels.named_arrays import Matrix, NamedArrays, unpack_nest
from engine.kernels.stack import LAYER, StackConstants, fold_norm_into_matrix, head_log_q, run_layers
from engine.nets.layer import FEATURES, Net, divide_by_length


class SpecBlockEnds(NamedTuple):
    """What stands around the layers. A token adds `said [V, H]`, a position `queries [K, H]`; the rest are matrices."""

    said: Matrix
    queries: Matrix
    features: EightBit
    condition: EightBit
    head: EightBit
    stack: StackConstants


@within
def write_layer_inputs(ends, conditions, tokens, starts, x):
    """Write the layers' inputs at N positions of blocks into `x [N, H]`; block i has the rows `starts[i]` to `starts[i + 1]`."""
    normed, prefix = np.empty_like(conditions), np.empty_like(conditions)
    divide_rows_by_length(conditions, ends.stack.least, normed)
    multiply_eight_bit(normed, ends.condition, prefix)
    for block in range(len(tokens)):
        for row in range(starts[block], starts[block + 1]):
            copy_row(prefix[block], x[row])
            add_row(ends.said[tokens[block]], x[row])
            add_row(ends.queries[row - starts[block]], x[row])


@within
def forward_block_entries(weights, turns, kv, x, before, positions, visible, rows, answer_count):
    """States `[N, H]` of entries that take in those of `before [N]`, and the last log-probabilities `[answers, V]`."""
    ends, start, count = unpack_nest(SpecBlockEnds, weights, LAYER * len(kv)), np.int64(0), len(x)
    x = run_layers(ends.stack, weights, turns, kv, x, before, before, positions, visible, start, rows, count)
    return x, head_log_q(x[count - answer_count :], ends.stack, ends.head, len(ends.said))


@compiled
def forward_root_block(weights, turns, kv, tokens, features, position, rows, slot_count):
    """States `[1 + slots, H]` and log-probabilities `[1 + slots, V]` behind the last of `tokens [N]`, given `features [N, 4, H]`."""
    ends, entries = unpack_nest(SpecBlockEnds, weights, LAYER * len(kv)), len(tokens)
    hidden = ends.said.shape[1]
    conditions = np.empty((entries, hidden), np.float32)
    multiply_eight_bit(join_feature_rows(features, np.arange(entries)), ends.features, conditions)
    count, starts = entries + slot_count, np.arange(entries + 1)
    starts[entries] = count  # the last entry has the whole block
    x = np.empty((count, hidden), np.float32)
    write_layer_inputs(ends, conditions, tokens, starts, x)
    before, positions = np.arange(count), np.arange(position, position + count)
    for row in range(entries, count):
        before[row] -= 1
    visible = causal_mask(count)
    states, log_q = forward_block_entries(weights, turns, kv, x, before, positions, visible, rows, 1 + slot_count)
    return states[entries - 1 :], log_q


@compiled
def forward_further_blocks(weights, turns, kv, conditions, tokens, positions, visible, rows):
    """States `[n K, H]` and log-probabilities `[n K, V]` of n whole blocks, from `conditions [n, H]` and `tokens [n]`."""
    blocks, count = len(tokens), len(positions)
    starts, before = np.arange(blocks + 1) * (count // blocks), np.arange(count)
    x = np.empty((count, conditions.shape[1]), np.float32)
    write_layer_inputs(unpack_nest(SpecBlockEnds, weights, LAYER * len(kv)), conditions, tokens, starts, x)
    for block in range(blocks):
        for row in range(starts[block] + 1, starts[block + 1]):
            before[row] -= 1
    return forward_block_entries(weights, turns, kv, x, before, positions, visible, rows, count)


class CompiledSpecBlock:
    def __init__(self, net: Net):
        config, root = net.config, net.config.hidden**0.5
        least = net.norm_out.least
        for_condition, for_token, for_query = net.fuse.weight.detach().split(config.hidden, 1)
        token = divide_by_length(net.embedding.detach(), least) * net.norm_token.weight.detach() * root
        query = divide_by_length(net.query_embed.detach(), least) * net.norm_query.weight.detach() * root
        ends = SpecBlockEnds(
            said=(token @ for_token.T).numpy(),
            queries=(query @ for_query.T).numpy(),
            features=EightBit.of(net.cond_proj.weight),
            condition=fold_norm_into_matrix(for_condition, net.norm_condition.weight),
            head=fold_norm_into_matrix(net.unembed, net.norm_out.weight),
            stack=StackConstants.of(config.hidden, net.norm_out.eps),
        )
        layers = (
            # without the identity, beside which eight bits would lose the shift's small numbers
            layer.to_eight_bits(norm)._replace(shift=EightBit.of(shift.weight - torch.eye(*shift.weight.shape)))
            for shift, norm, layer in zip(net.shifts, net.norms, net.layers, strict=True)
        )
        self.weights, self.rotary = NamedArrays(*layers, ends), net.rotary

        # These calls compile, or load compiled code, so that loading takes the time and no race does.
        width = config.hidden // config.heads
        cache = KVCache(config.layers, config.heads, width, config.depth + 1, torch.float32, torch.device("cpu"))
        states, _ = self(cache, [0], torch.zeros(1, FEATURES + 1, config.feature_size), 0, 0)
        visible = torch.ones(config.depth, config.depth, dtype=torch.bool)
        self.forward_further_blocks(cache, states, [0], list(range(config.depth)), visible)

    def shared_arguments(self, cache: KVCache) -> tuple:
        """The arguments that every compiled call takes first."""
        return self.weights.table, self.rotary.rotation_table(cache.capacity), cache.numbers

    def __call__(
        self, cache: KVCache, tokens: list[int], features: Tensor, position: int, slots: int
    ) -> tuple[Tensor, Tensor]:
        """As the function `forward_root_block`. The entries' rows are committed in `cache`. Raises `ValueError` when it is full."""
        rows = cache.rows
        cache.refuse_overflow(len(tokens) + slots)
        found = forward_root_block(
            *self.shared_arguments(cache), np.array(tokens), features.contiguous().numpy(), position, rows, slots
        )
        cache.rows = rows + len(tokens)
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])

    def forward_further_blocks(
        self, cache: KVCache, conditions: Tensor, tokens: list[int], positions: list[int], visible: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As the function `forward_further_blocks`. All rows that it writes are committed. Raises `ValueError` when
        the cache is full.
        """
        rows = cache.rows
        cache.refuse_overflow(len(positions))
        seen = np.ascontiguousarray(visible.numpy())
        asked = conditions.contiguous().numpy(), np.array(tokens), np.array(positions), seen, rows
        found = forward_further_blocks(*self.shared_arguments(cache), *asked)
        cache.rows = rows + len(positions)
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])
