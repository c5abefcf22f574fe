"""`engine.nets.specblock` in compiled loops; held equal by tests/fast/test_equal_to_reference.py[nets.specblock_compiled]."""

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.forward.llama_layer import lengths_of
from engine.kernels.attention import causal_mask
from engine.kernels.compiling import compiled, within
from engine.kernels.eight_bit import EightBit, multiply_eight_bit
from engine.kernels.elementwise import add_row, copy_row, divide_rows_by_length, join_feature_rows
from engine.kernels.named_arrays import unpack_nest
from engine.kernels.stack import LAYER, NetEnds, StackConstants, fold_norm_and_quantise, head_log_q, run_layers
from engine.nets.compiled_net import CompiledNet
from engine.nets.layer import FEATURES, Net


@within
def forward_blocks(weights, turns, kv, conditions, tokens, starts, positions, visible, rows, answers):
    """States and log-probabilities, `[answers, H]` and `[answers, V]`, at the last of N positions of n blocks.

    Block i has the rows `starts[i]` to `starts[i + 1]`. It goes on from `conditions [n, H]` and `tokens [n]`.
    """
    ends, count, start = unpack_nest(NetEnds, weights, LAYER * len(kv)), len(positions), np.int64(0)
    normed, prefix = np.empty_like(conditions), np.empty_like(conditions)
    divide_rows_by_length(conditions, ends.stack.least, normed)
    multiply_eight_bit(normed, ends.condition, prefix)
    x, before = np.empty((count, conditions.shape[1]), np.float32), np.arange(count)
    for block in range(len(tokens)):
        for row in range(starts[block], starts[block + 1]):
            copy_row(prefix[block], x[row])
            add_row(ends.said[tokens[block]], x[row])
            add_row(ends.slots[row - starts[block]], x[row])
            before[row] = max(row - 1, starts[block])  # the first of a block takes in itself
    x = run_layers(ends.stack, weights, turns, kv, x, before, before, positions, visible, start, rows, count)
    x = x[count - answers :]
    return x, head_log_q(x, ends)


@compiled
def forward_entries_and_root_block(weights, turns, kv, tokens, features, position, rows, slot_count):
    """As `CompiledNet.loop`."""
    ends, count = unpack_nest(NetEnds, weights, LAYER * len(kv)), len(tokens) + slot_count
    conditions, starts = np.empty((len(tokens), ends.said.shape[1]), np.float32), np.arange(len(tokens) + 1)
    multiply_eight_bit(join_feature_rows(features), ends.features, conditions)
    starts[len(tokens)] = count  # the last entry has the whole block
    positions, visible = np.arange(position, position + count), causal_mask(count)
    return forward_blocks(weights, turns, kv, conditions, tokens, starts, positions, visible, rows, 1 + slot_count)


@compiled
def forward_further_blocks(weights, turns, kv, conditions, tokens, positions, visible, rows):
    """States `[n K, H]` and log-probabilities `[n K, V]` of n whole blocks, from `conditions [n, H]` and `tokens [n]`."""
    count = len(positions)
    starts = np.arange(len(tokens) + 1) * (count // len(tokens))
    return forward_blocks(weights, turns, kv, conditions, tokens, starts, positions, visible, rows, count)


class CompiledSpecBlock(CompiledNet):
    loop = forward_entries_and_root_block

    def __init__(self, net: Net):
        config, root = net.config, net.config.hidden**0.5
        table, queries, eps = net.embedding.detach(), net.query_embed.detach(), net.norm_out.eps
        for_condition, for_token, for_query = net.fuse.weight.detach().split(config.hidden, 1)
        token = table / lengths_of(table, eps) * net.norm_token.weight.detach() * root
        query = queries / lengths_of(queries, eps) * net.norm_query.weight.detach() * root
        ends = NetEnds(
            said=(token @ for_token.T).numpy(),
            head=fold_norm_and_quantise(net.unembed, net.norm_out.weight),
            vocabulary=np.arange(config.vocab),
            stack=StackConstants.for_rms_norms(config.hidden, net.norm_out.eps),
            features=EightBit.quantise(net.cond_proj.weight),
            condition=fold_norm_and_quantise(for_condition, net.norm_condition.weight),
            slots=(query @ for_query.T).numpy(),
        )
        layers = (
            # without the identity, beside which eight bits would lose the shift's small numbers
            layer.to_eight_bits(norm)._replace(shift=EightBit.quantise(shift.weight - torch.eye(*shift.weight.shape)))
            for shift, norm, layer in zip(net.shifts, net.norms, net.layers, strict=True)
        )
        super().__init__(net, layers, ends)

        # These calls compile, or load compiled code, so that loading takes the time and no race does.
        cache = self.new_cache(config.depth + 1)
        states, _ = self(cache, [0], torch.zeros(1, FEATURES + 1, config.feature_size), 0, 0)
        visible = torch.ones(config.depth, config.depth, dtype=torch.bool)
        self.forward_further_blocks(cache, states, [0], list(range(config.depth)), visible)

    def forward_further_blocks(
        self, cache: KVCache, conditions: Tensor, tokens: list[int], positions: list[int], visible: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As the function `forward_further_blocks`. All rows that it writes are committed. Raises `ValueError` when
        the cache is full.
        """
        cache.refuse_overflow(len(positions))
        seen = np.ascontiguousarray(visible.numpy())
        asked = conditions.contiguous().numpy(), np.array(tokens), np.array(positions), seen, cache.rows
        states, log_q = forward_further_blocks(*self.arrays_with(cache), *asked)
        cache.rows += len(positions)
        return torch.from_numpy(states), torch.from_numpy(log_q)
