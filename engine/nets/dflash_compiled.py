"""`engine.nets.dflash` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.dflash_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.forward.llama import join_biases, join_matrices, scaled_head_norms
from engine.forward.llama_eight_bit import quantise_llama_layer
from engine.kernels.attention import write_kv_row
from engine.kernels.compiling import compiled, within
from engine.kernels.eight_bit import EightBit, multiply_eight_bit
from engine.kernels.elementwise import (
    add_row,
    copy_row,
    join_feature_rows,
    log_softmax_in_place,
    spread_over_vocabulary,
)
from engine.kernels.named_arrays import Ids, Matrix, NamedArrays, count_arrays, unpack_nest
from engine.kernels.stack import (
    ENDS,
    LAYER,
    LaneState,
    NetEnds,
    StackConstants,
    fold_norm_and_quantise,
    head_log_q,
    norm_project_and_rotate,
    run_layers,
)
from engine.nets.compiled_net import CompiledNet
from engine.nets.layer import Net


class ContextKVProjection(NamedTuple):
    """What makes a layer's keys and values of the context, as in `EightBitLayer`."""

    kv: EightBit
    scales: Matrix
    bias: Matrix = np.zeros((0, 0), np.float32)


CONTEXT = count_arrays(ContextKVProjection)


@compiled
def log_q_of_block(weights, turns, kv, tokens, features, rows, skipped_slots):
    """Log-probabilities `[n - silent, own_vocab]` of the tokens behind the first of a block's `tokens [n]`.

    The context's new rows, of the target's `features [N, taps + 1, H]`, are written behind the first `rows` of `kv`, and the block's
    rows behind them. A row's position is its place. `weights` holds the layers', the `NetEnds` and each layer's `ContextKVProjection`.
    """
    ends, contexts = unpack_nest(NetEnds, weights, LAYER * len(kv)), LAYER * len(kv) + ENDS
    count, hidden, start = len(tokens), ends.said.shape[1], rows + len(features)
    context, x = np.empty((len(features), hidden), np.float32), np.empty((count, hidden), np.float32)
    multiply_eight_bit(join_feature_rows(features), ends.features, context)
    places, pairs = np.arange(rows, start), np.empty((len(features), 2 * kv.shape[2] * kv.shape[4]), np.float32)
    for number in range(len(kv)):
        into = unpack_nest(ContextKVProjection, weights, contexts + CONTEXT * number)
        norm_project_and_rotate(
            context, ends.stack, into.kv, into.bias, into.scales, places, places, turns, kv.shape[2], pairs
        )
        for row in range(len(pairs)):
            write_kv_row(pairs[row], kv[number], rows + row)
    for row in range(count):
        copy_row(ends.said[tokens[row]], x[row])
    positions, visible = np.arange(start, start + count), np.ones((count, 1), np.bool_)  # all see everything
    first, asking = np.int64(0), count - skipped_slots
    x = run_layers(ends.stack, weights, turns, kv, x, tokens, tokens, positions, visible, first, start, asking)
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
        ends = NetEnds(
            said=net.embedding.detach().contiguous().numpy(),
            head=fold_norm_and_quantise(net.head, net.norm.weight),
            vocabulary=net.vocabulary.numpy(),
            stack=StackConstants.for_rms_norms(sizes.hidden, sizes.eps, sizes.head_dim),
            features=EightBit.quantise(net.fc.weight),
        )
        super().__init__(net, layers, ends, *contexts)
        self.masks, self.silent = [sizes.mask] * (sizes.block - 1), sizes.skipped_slots

        # This call compiles, or loads compiled code, so that loading takes the time and no race does.
        shape = sizes.layers, sizes.kv_heads, sizes.head_dim, 1 + sizes.block
        cache = KVCache(*shape, torch.float32, torch.device("cpu"))
        self.forward_block(cache, 0, torch.zeros(1, len(sizes.reads) + 1, net.config.feature_size))

    def forward_block(self, cache: KVCache, anchor: int, features: Tensor) -> Tensor:
        """As `log_q_of_block`, behind the `anchor`. The context's rows are committed in `cache`. Raises `ValueError`
        when it has no room for them and the block's.
        """
        tokens = np.array([anchor, *self.masks])
        cache.refuse_overflow(len(features) + len(tokens))
        entering = tokens, features.contiguous().numpy(), cache.rows, self.silent
        log_q = log_q_of_block(*self.arrays_with(cache), *entering)
        cache.rows += len(features)
        return torch.from_numpy(log_q)


class MarkovHead(NamedTuple):
    """DSpark's head. `before [V, rank]` is looked up by the token, and `after` turns it into a bias of the `vocabulary`."""

    before: Matrix
    after: EightBit
    vocabulary: Ids


class DSparkRoundArrays(NamedTuple):
    """One lane's arrays behind a net's weights, and DSpark's head.

    `block` holds a round's tokens, and `levels [depth, own_vocab]` the log-probabilities of its slots, which do not know the path.
    """

    lane: LaneState
    markov: MarkovHead
    block: Ids
    levels: Matrix


ROUND = count_arrays(DSparkRoundArrays)


@within
def add_markov_bias_and_normalise(markov, slots, tokens):
    """Log-probabilities `[n, V]` behind `tokens [n]`, from those of slots that do not know them, `[n, own_vocab]`."""
    count = len(tokens)
    before, log_q = np.empty((count, markov.before.shape[1]), np.float32), np.empty_like(slots)
    for row in range(count):
        copy_row(markov.before[tokens[row]], before[row])
    multiply_eight_bit(before, markov.after, log_q)
    for row in range(count):
        add_row(slots[row], log_q[row])
    log_softmax_in_place(log_q)
    whole = len(markov.vocabulary) == len(markov.before)
    return log_q if whole else spread_over_vocabulary(log_q, markov.vocabulary, len(markov.before))


@compiled
def condition_on_tokens(markov_table, slots, tokens):
    """As `engine.nets.dspark.DSpark.condition_on_tokens`, with `markov_table` that hold a `MarkovHead`."""
    return add_markov_bias_and_normalise(unpack_nest(MarkovHead, markov_table, 0), slots, tokens)


@within
def log_q_of_root(parts, tokens, features, position, start, rows):
    """As `engine.kernels.growing_compiled.ROOT`. A `DSparkRoundArrays` stands behind the weights."""
    this = unpack_nest(DSparkRoundArrays, parts, len(parts) - ROUND)
    this.block[0] = tokens[0]
    silent = len(this.block) - len(this.levels)
    levels = log_q_of_block(parts, this.lane.turns, this.lane.kv, this.block, features, rows, silent)
    for level in range(len(levels)):
        copy_row(levels[level], this.levels[level])
    return add_markov_bias_and_normalise(this.markov, this.levels[:1], tokens)


@within
def log_q_of_level(table, tokens, parent_outputs, positions, visible, first_row, rows, first_output):
    """As `engine.kernels.growing_compiled.BELOW`, but no forward is taken. The root stands at `first_row`."""
    this = unpack_nest(DSparkRoundArrays, table, len(table) - ROUND)
    slots = np.empty((len(tokens), this.levels.shape[1]), np.float32)
    for row in range(len(tokens)):
        copy_row(this.levels[positions[row] - first_row], slots[row])
    return add_markov_bias_and_normalise(this.markov, slots, tokens)


class CompiledDSpark(CompiledDFlash):
    def __init__(self, net: Net):
        super().__init__(net)
        before, after = (net.markov_head[name].weight for name in ("markov_w1", "markov_w2"))
        self.head = MarkovHead(before.detach().contiguous().numpy(), EightBit.quantise(after), net.vocabulary.numpy())
        self.markov, self.levels = NamedArrays(self.head), (net.config.depth, net.sizes.own_vocab)
        self.condition_on_tokens(torch.zeros(1, net.sizes.own_vocab), [0])  # compiles, as above

    def arrays_of_lane(self, cache: KVCache) -> NamedArrays:
        """What the loops of a lane read: the weights and a `DSparkRoundArrays`."""
        lane, block = LaneState(self.rotary.rotation_table(cache.capacity), cache.numbers), np.array([0, *self.masks])
        return NamedArrays(
            *self.weights.nests, DSparkRoundArrays(lane, self.head, block, np.zeros(self.levels, np.float32))
        )

    def condition_on_tokens(self, slots: Tensor, tokens: list[int]) -> Tensor:
        """As `engine.nets.dspark.DSpark.condition_on_tokens`."""
        return torch.from_numpy(condition_on_tokens(self.markov.table, slots.numpy(), np.array(tokens)))
