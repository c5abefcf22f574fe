"""`engine.nets.dflash` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.dflash_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.forward.llama import join_biases, join_matrices, scaled_head_norms
from engine.forward.llama_eight_bit import quantise_llama_layer
from engine.kernels.attention import write_kv_row
from engine.kernels.compiling import compiled_assuming_no_nan, compiled_no_nan_without_python_entry
from engine.kernels.eight_bit import EightBitMatrix, multiply_eight_bit
from engine.kernels.elementwise import (
    add_row,
    copy_row,
    expand_log_q_to_full_vocab,
    join_feature_taps_without_last,
    log_softmax_in_place,
)
from engine.kernels.named_arrays import Ids, Matrix, NamedArrays, count_arrays, unpack_named_arrays
from engine.kernels.stack import (
    ENDS,
    LAYER,
    DraftOuterWeights,
    LaneArrays,
    StackConstants,
    fold_norm_and_quantise,
    head_log_q,
    norm_project_and_rotate,
    run_decoder_layers,
)
from engine.nets.compiled_net import CompiledNet
from engine.nets.layer import Net


class ContextKVProjection(NamedTuple):
    """What makes a layer's keys and values of the context, as in `EightBitLayer`."""

    kv: EightBitMatrix
    head_norm_scales: Matrix
    bias: Matrix = np.zeros((0, 0), np.float32)


CONTEXT = count_arrays(ContextKVProjection)


@compiled_assuming_no_nan
def write_context_and_get_block_log_q(weights, rotations, kv, tokens, features, committed_rows, skipped_slots):
    """Log-probabilities `[n - skipped_slots, own_vocab]` of the tokens behind the first of a block's `tokens [n]`.

    The context's new rows, of the target's `features [N, taps + 1, H]`, are written behind the first `committed_rows` of `kv`, and
    the block's rows behind them. A row's position is its place. `weights` holds the layers', the `DraftOuterWeights` and each
    layer's `ContextKVProjection`.
    """
    ends, contexts = unpack_named_arrays(DraftOuterWeights, weights, LAYER * len(kv)), LAYER * len(kv) + ENDS
    count, hidden, start = len(tokens), ends.token_entries.shape[1], committed_rows + len(features)
    context, x = np.empty((len(features), hidden), np.float32), np.empty((count, hidden), np.float32)
    multiply_eight_bit(join_feature_taps_without_last(features), ends.features, context)
    places, pairs = (
        np.arange(committed_rows, start),
        np.empty((len(features), 2 * kv.shape[2] * kv.shape[4]), np.float32),
    )
    for number in range(len(kv)):
        into = unpack_named_arrays(ContextKVProjection, weights, contexts + CONTEXT * number)
        norm_project_and_rotate(
            context,
            ends.stack,
            into.kv,
            into.bias,
            into.head_norm_scales,
            places,
            places,
            rotations,
            kv.shape[2],
            pairs,
        )
        for row in range(len(pairs)):
            write_kv_row(pairs[row], kv[number], committed_rows + row)
    for row in range(count):
        copy_row(ends.token_entries[tokens[row]], x[row])
    positions, visible = np.arange(start, start + count), np.ones((count, 1), np.bool_)  # all see everything
    first, asking = np.int64(0), count - skipped_slots
    x = run_decoder_layers(
        ends.stack, weights, rotations, kv, x, tokens, tokens, positions, visible, first, start, asking
    )
    return head_log_q(x, ends)


class CompiledDFlash(CompiledNet):
    def __init__(self, net: Net):
        sizes, layers, contexts = net.sizes, [], []
        for each in net.layers:
            scales = scaled_head_norms(each.self_attn, sizes.heads, sizes.kv_heads)
            assert scales is not None  # its layers norm their heads
            layers.append(quantise_llama_layer(each, scales))
            inward = each.self_attn.k_proj, each.self_attn.v_proj
            context = ContextKVProjection(
                fold_norm_and_quantise(join_matrices(*inward), net.hidden_norm.weight), scales[sizes.heads :].numpy()
            )
            bias = join_biases(*inward)
            contexts.append(context if bias is None else context._replace(bias=bias[None].numpy()))
        ends = DraftOuterWeights(
            token_entries=net.embedding.detach().contiguous().numpy(),
            head=fold_norm_and_quantise(net.head, net.norm.weight),
            vocabulary=net.vocabulary.numpy(),
            stack=StackConstants.for_rms_norms(sizes.hidden, sizes.eps, sizes.head_dim),
            features=EightBitMatrix.quantise(net.fc.weight),
        )
        super().__init__(net, layers, ends, *contexts)
        self.masks, self.silent = [sizes.mask_token_id] * (sizes.block_size - 1), sizes.skipped_slots

        # This call compiles, or loads compiled code, so that loading takes the time and no race does.
        shape = sizes.layers, sizes.kv_heads, sizes.head_dim, 1 + sizes.block_size
        cache = KVCache(*shape, torch.float32, torch.device("cpu"))
        self.write_context_and_block_to_log_q(
            cache, 0, torch.zeros(1, len(sizes.reads_features) + 1, net.config.feature_size)
        )

    def write_context_and_block_to_log_q(self, cache: KVCache, anchor: int, features: Tensor) -> Tensor:
        """As `write_context_and_get_block_log_q`, behind the `anchor`. The context's rows are committed in `cache`. Raises `ValueError`
        when it has no room for them and the block's.
        """
        tokens = np.array([anchor, *self.masks])
        cache.refuse_overflow(len(features) + len(tokens))
        entering = tokens, features.contiguous().numpy(), cache.rows, self.silent
        log_q = write_context_and_get_block_log_q(*self.weights_rotations_and_kv_of(cache), *entering)
        cache.rows += len(features)
        return torch.from_numpy(log_q)


class MarkovHead(NamedTuple):
    """DSpark's head. `token_embedding [V, rank]` is looked up by the token, and `bias_projection` turns it into a bias of the
    `vocabulary`.
    """

    token_embedding: Matrix
    bias_projection: EightBitMatrix
    vocabulary: Ids


class DSparkRoundArrays(NamedTuple):
    """One lane's arrays behind a net's weights, and DSpark's head.

    `block` holds a round's tokens, and `levels [depth, own_vocab]` the log-probabilities of its slots, which do not know the path.
    """

    lane: LaneArrays
    markov: MarkovHead
    block: Ids
    levels: Matrix


ROUND = count_arrays(DSparkRoundArrays)


@compiled_no_nan_without_python_entry
def add_markov_bias_and_normalise(markov, slots, tokens):
    """Log-probabilities `[n, own_vocab]` behind `tokens [n]`, from those of slots that do not know them."""
    count = len(tokens)
    before, log_q = np.empty((count, markov.token_embedding.shape[1]), np.float32), np.empty_like(slots)
    for row in range(count):
        copy_row(markov.token_embedding[tokens[row]], before[row])
    multiply_eight_bit(before, markov.bias_projection, log_q)
    for row in range(count):
        add_row(slots[row], log_q[row])
    log_softmax_in_place(log_q)
    return log_q


@compiled_assuming_no_nan
def condition_on_tokens(markov_table, slots, tokens):
    """As `engine.nets.dspark.DSpark.condition_on_tokens`, with `markov_table` that hold a `MarkovHead`."""
    markov = unpack_named_arrays(MarkovHead, markov_table, 0)
    log_q = add_markov_bias_and_normalise(markov, slots, tokens)
    whole = len(markov.vocabulary) == len(markov.token_embedding)
    return log_q if whole else expand_log_q_to_full_vocab(log_q, markov.vocabulary, len(markov.token_embedding))


@compiled_no_nan_without_python_entry
def log_q_of_root(table, tokens, features, position, first_row, committed_rows):
    """As `engine.kernels.growing_compiled.ROOT`. A `DSparkRoundArrays` stands behind the weights."""
    this = unpack_named_arrays(DSparkRoundArrays, table, len(table) - ROUND)
    this.block[0] = tokens[0]
    silent = len(this.block) - len(this.levels)
    levels = write_context_and_get_block_log_q(
        table, this.lane.rotations, this.lane.kv, this.block, features, committed_rows, silent
    )
    for level in range(len(levels)):
        copy_row(levels[level], this.levels[level])
    return add_markov_bias_and_normalise(this.markov, this.levels[:1], tokens)


@compiled_no_nan_without_python_entry
def log_q_of_level(table, tokens, parent_outputs, positions, visible, first_row, committed_rows, first_output):
    """As `engine.kernels.growing_compiled.BELOW`, but no forward is taken. The root stands at `first_row`."""
    this = unpack_named_arrays(DSparkRoundArrays, table, len(table) - ROUND)
    slots = np.empty((len(tokens), this.levels.shape[1]), np.float32)
    for row in range(len(tokens)):
        copy_row(this.levels[positions[row] - first_row], slots[row])
    return add_markov_bias_and_normalise(this.markov, slots, tokens)


class CompiledDSpark(CompiledDFlash):
    def __init__(self, net: Net):
        super().__init__(net)
        before, after = (net.markov_head[name].weight for name in ("markov_w1", "markov_w2"))
        self.head = MarkovHead(
            before.detach().contiguous().numpy(), EightBitMatrix.quantise(after), net.vocabulary.numpy()
        )
        self.markov, self.levels = NamedArrays(self.head), (net.config.depth, net.sizes.own_vocab)
        self.condition_on_tokens(torch.zeros(1, net.sizes.own_vocab), [0])  # compiles, as above

    def weights_and_lane_arrays(self, cache: KVCache) -> NamedArrays:
        """What the loops of a lane read: the weights and a `DSparkRoundArrays`."""
        lane, block = LaneArrays(self.rotary.rotation_table(cache.capacity), cache.numbers), np.array([0, *self.masks])
        return NamedArrays(
            *self.weights.nests, DSparkRoundArrays(lane, self.head, block, np.zeros(self.levels, np.float32))
        )

    def condition_on_tokens(self, slots: Tensor, tokens: list[int]) -> Tensor:
        """As `engine.nets.dspark.DSpark.condition_on_tokens`."""
        return torch.from_numpy(condition_on_tokens(self.markov.table, slots.numpy(), np.array(tokens)))
