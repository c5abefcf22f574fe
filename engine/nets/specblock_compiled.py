"""`engine.nets.specblock` in compiled loops; held equal by tests/fast/test_equal_to_reference.py[nets.specblock_compiled]."""

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.forward.llama_layer import floored_l2_norms_of
from engine.kernels.attention import causal_mask
from engine.kernels.compiling import compiled_assuming_no_nan, compiled_no_nan_without_python_entry
from engine.kernels.eight_bit import EightBitMatrix, multiply_eight_bit
from engine.kernels.elementwise import add_row, copy_row, divide_rows_by_norm, join_feature_taps_without_last
from engine.kernels.named_arrays import unpack_named_arrays
from engine.kernels.stack import (
    LAYER,
    DraftOuterWeights,
    StackConstants,
    fold_norm_and_quantise,
    head_log_q,
    run_decoder_layers,
)
from engine.nets.compiled_net import CompiledNet
from engine.nets.layer import FEATURES, Net


@compiled_no_nan_without_python_entry
def forward_blocks(
    weights, rotations, kv, conditions, tokens, block_starts, positions, visible, committed_rows, output_count
):
    """States and log-probabilities, `[output_count, H]` and `[output_count, V]`, at the last of N positions of n blocks.

    Block i has the rows `block_starts[i]` to `block_starts[i + 1]`. It goes on from `conditions [n, H]` and `tokens [n]`.
    """
    ends, count, start = unpack_named_arrays(DraftOuterWeights, weights, LAYER * len(kv)), len(positions), np.int64(0)
    normed, prefix = np.empty_like(conditions), np.empty_like(conditions)
    divide_rows_by_norm(conditions, ends.stack.norm_floor, normed)
    multiply_eight_bit(normed, ends.condition, prefix)
    x, before = np.empty((count, conditions.shape[1]), np.float32), np.arange(count)
    for block in range(len(tokens)):
        for row in range(block_starts[block], block_starts[block + 1]):
            copy_row(prefix[block], x[row])
            add_row(ends.token_entries[tokens[block]], x[row])
            add_row(ends.slots[row - block_starts[block]], x[row])
            before[row] = max(row - 1, block_starts[block])  # the first of a block takes in itself
    x = run_decoder_layers(
        ends.stack, weights, rotations, kv, x, before, before, positions, visible, start, committed_rows, count
    )
    x = x[count - output_count :]
    return x, head_log_q(x, ends)


@compiled_assuming_no_nan
def forward_entries_and_root_block(weights, rotations, kv, tokens, features, position, committed_rows, slot_count):
    """As `CompiledNet.forward_loop`."""
    ends, count = unpack_named_arrays(DraftOuterWeights, weights, LAYER * len(kv)), len(tokens) + slot_count
    conditions, starts = np.empty((len(tokens), ends.token_entries.shape[1]), np.float32), np.arange(len(tokens) + 1)
    multiply_eight_bit(join_feature_taps_without_last(features), ends.features, conditions)
    starts[len(tokens)] = count  # the last entry has the whole block
    positions, visible = np.arange(position, position + count), causal_mask(count)
    return forward_blocks(
        weights, rotations, kv, conditions, tokens, starts, positions, visible, committed_rows, 1 + slot_count
    )


@compiled_assuming_no_nan
def forward_further_blocks(weights, rotations, kv, conditions, tokens, positions, visible, committed_rows):
    """States `[n K, H]` and log-probabilities `[n K, V]` of n whole blocks, from `conditions [n, H]` and `tokens [n]`."""
    count = len(positions)
    starts = np.arange(len(tokens) + 1) * (count // len(tokens))
    return forward_blocks(weights, rotations, kv, conditions, tokens, starts, positions, visible, committed_rows, count)


class CompiledSpecBlock(CompiledNet):
    forward_loop = forward_entries_and_root_block

    def __init__(self, net: Net):
        config, root = net.config, net.config.hidden**0.5
        table, queries, eps = net.embedding.detach(), net.query_embed.detach(), net.norm_out.eps
        for_condition, for_token, for_query = net.fuse.weight.detach().split(config.hidden, 1)
        token = table / floored_l2_norms_of(table, eps) * net.norm_token.weight.detach() * root
        query = queries / floored_l2_norms_of(queries, eps) * net.norm_query.weight.detach() * root
        ends = DraftOuterWeights(
            token_entries=(token @ for_token.T).numpy(),
            head=fold_norm_and_quantise(net.unembed, net.norm_out.weight),
            vocabulary=np.arange(config.vocab),
            stack=StackConstants.for_rms_norms(config.hidden, net.norm_out.eps),
            features=EightBitMatrix.quantise(net.cond_proj.weight),
            condition=fold_norm_and_quantise(for_condition, net.norm_condition.weight),
            slots=(query @ for_query.T).numpy(),
        )
        layers = (
            # without the identity, beside which eight bits would lose the shift's small numbers
            layer.to_eight_bits(norm)._replace(
                previous_entry_shift=EightBitMatrix.quantise(shift.weight - torch.eye(*shift.weight.shape))
            )
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
        states, log_q = forward_further_blocks(*self.weights_rotations_and_kv_of(cache), *asked)
        cache.rows += len(positions)
        return torch.from_numpy(states), torch.from_numpy(log_q)
