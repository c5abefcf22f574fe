"""`engine.nets.dflash` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.dflash_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.forward.llama import bias_of, head_norm_of, join_matrices
from engine.forward.llama_eight_bit import layer_in_eight_bits
from engine.kernels.attention import store
from engine.kernels.compiling import compiled, within
from engine.kernels.eight_bit import EightBit, multiply_eight_bit
from engine.kernels.elementwise import add_row, copy_row, join_feature_rows, log_softmax, spread_over_vocabulary
from engine.kernels.growing_compiled import GrowthRoot, call_grow
from engine.kernels.intrinsics import ticks
from engine.kernels.named_arrays import Ids, Matrix, NamedArrays, count_arrays, unpack_nest
from engine.kernels.stack import LAYER, StackConstants, fold_norm_into_matrix, head_log_q, project, run_layers
from engine.nets.layer import Net


class DFlashEnds(NamedTuple):
    """What comes before and after the layers. `features` is the matrix for the target's features."""

    embedding: Matrix
    features: EightBit
    head: EightBit
    vocabulary: Ids
    stack: StackConstants


class ContextWeights(NamedTuple):
    """What makes a layer's keys and values of the context, as in `LayerWeights`."""

    kv: EightBit
    scales: Matrix
    bias: Matrix = np.zeros((0, 0), np.float32)


CONTEXT = count_arrays(ContextWeights)
PLENTY = 2**31  # rows, for trees whose nodes take none


@compiled
def log_q_of_block(features, tokens, silent_slots, weights, rotations, kv, rows):
    """Log-probabilities `[n - silent, own_vocab]` of the tokens behind the first of a block's `tokens [n]`.

    The context's new rows, of the target's `features [N, taps + 1, H]`, are written behind the first `rows` of `kv`, and the block's
    rows behind them. A row's position is its place. `weights` holds the layers' weights, `ContextWeights` for each, the `DFlashEnds`.
    """
    ends = unpack_nest(DFlashEnds, weights, (LAYER + CONTEXT) * len(kv))
    count, hidden, start = len(tokens), ends.embedding.shape[1], rows + len(features)
    context, x = np.empty((len(features), hidden), np.float32), np.empty((count, hidden), np.float32)
    multiply_eight_bit(join_feature_rows(features, np.arange(len(features))), ends.features, context)
    places, pairs = np.arange(rows, start), np.empty((len(features), 2 * kv.shape[2] * kv.shape[4]), np.float32)
    for number in range(len(kv)):
        into = unpack_nest(ContextWeights, weights, LAYER * len(kv) + CONTEXT * number)
        project(context, ends.stack, into.kv, into.bias, into.scales, places, places, rotations, kv.shape[2], pairs)
        store(pairs, kv[number], rows)
    for row in range(count):
        copy_row(ends.embedding[tokens[row]], x[row])
    positions, visible = np.arange(start, start + count), np.ones((count, 1), np.bool_)  # all see everything
    first, asking = np.int64(0), count - silent_slots
    x = run_layers(ends.stack, weights, rotations, kv, x, tokens, tokens, positions, visible, first, start, asking)
    return head_log_q(x, ends.stack, ends.head, len(ends.vocabulary))


class CompiledDFlash:
    def __init__(self, net: Net):
        sizes, layers, contexts = net.sizes, [], []
        for each in net.layers:
            scales = head_norm_of(each.self_attn, sizes.heads, sizes.kv_heads)
            assert scales is not None  # its layers norm their heads
            layers.append(layer_in_eight_bits(each, scales))
            inward = each.self_attn.k_proj, each.self_attn.v_proj
            context = ContextWeights(
                fold_norm_into_matrix(join_matrices(*inward), net.hidden_norm.weight), scales[sizes.heads :].numpy()
            )
            bias = bias_of(*inward)
            contexts.append(context if bias is None else context._replace(bias=bias[None].numpy()))
        ends = DFlashEnds(
            embedding=net.embedding.detach().contiguous().numpy(),
            features=EightBit.of(net.fc.weight),
            head=fold_norm_into_matrix(net.head, net.norm.weight),
            vocabulary=net.vocabulary.numpy(),
            stack=StackConstants.of(sizes.hidden, sizes.eps, sizes.head_dim),
        )
        self.weights, self.rotary = NamedArrays(*layers, *contexts, ends), net.rotary
        self.masks, self.silent = [sizes.mask] * (sizes.block - 1), sizes.silent_slots

        # This call compiles, or loads compiled code, so that loading takes the time and no race does.
        shape = sizes.layers, sizes.kv_heads, sizes.head_dim, 1 + sizes.block
        cache = KVCache(*shape, torch.float32, torch.device("cpu"))
        self(cache, 0, torch.zeros(1, len(sizes.reads) + 1, net.config.feature_size))

    def __call__(self, cache: KVCache, anchor: int, features: Tensor) -> Tensor:
        """As `log_q_of_block`, behind the `anchor`. The context's rows are committed in `cache`. Raises `ValueError`
        when it is full.
        """
        log_q = log_q_of_block(*self.block_arguments(cache, anchor, features), cache.rows)
        cache.rows += len(features)
        return torch.from_numpy(log_q)

    def block_arguments(self, cache: KVCache, anchor: int, features: Tensor) -> tuple:
        """What `log_q_of_block` reads before `rows`. Raises `ValueError` when the cache has no room for the context's rows and the
        block's.
        """
        tokens = np.array([anchor, *self.masks])
        cache.refuse_overflow(len(features) + len(tokens))
        turns = self.rotary.rotation_table(cache.capacity)
        return features.contiguous().numpy(), tokens, self.silent, self.weights.table, turns, cache.numbers


class MarkovHead(NamedTuple):
    """DSpark's head. `before [V, rank]` is looked up by the token, and `after` turns it into a bias of the `vocabulary`."""

    before: Matrix
    after: EightBit
    vocabulary: Ids


class DSparkRound(NamedTuple):
    """DSpark's head, and a round's `levels [depth, own_vocab]`: the log-probabilities of slots that do not know the path."""

    markov: MarkovHead
    levels: Matrix


@within
def add_markov_bias(markov, slots, tokens):
    """Log-probabilities `[n, V]` behind `tokens [n]`, from those of slots that do not know them, `[n, own_vocab]`."""
    count = len(tokens)
    before, log_q = np.empty((count, markov.before.shape[1]), np.float32), np.empty_like(slots)
    for row in range(count):
        copy_row(markov.before[tokens[row]], before[row])
    multiply_eight_bit(before, markov.after, log_q)
    for row in range(count):
        add_row(slots[row], log_q[row])
    log_softmax(log_q)
    whole = len(markov.vocabulary) == len(markov.before)
    return log_q if whole else spread_over_vocabulary(log_q, markov.vocabulary, len(markov.before))


@compiled
def condition_slots(weights, slots, tokens):
    """As `engine.nets.dspark.DSpark.condition_slots`, with `weights` that hold a `MarkovHead`."""
    return add_markov_bias(unpack_nest(MarkovHead, weights, 0), slots, tokens)


@compiled
def log_q_of_level(parts, tokens, parent_outputs, positions, visible, first_row, rows, first_output):
    """Log-probabilities `[n, V]` behind nodes of a `DSparkRound` whose root stands at `first_row`: `BELOW`, but no forward is taken."""
    this = unpack_nest(DSparkRound, parts, 0)
    slots = np.empty((len(tokens), this.levels.shape[1]), np.float32)
    for row in range(len(tokens)):
        copy_row(this.levels[positions[row] - first_row], slots[row])
    return add_markov_bias(this.markov, slots, tokens)


@compiled
def grow_with_block(grow, below, parts, features, tokens, silent, weights, turns, kv, rows, expansion, noise):
    """Grow a tree of a `DSparkRound` from one forward. Arguments are those of `log_q_of_block` and of `growing_compiled.grow`."""
    begun, this, position = ticks(), unpack_nest(DSparkRound, parts, 0), rows + len(features)
    levels = log_q_of_block(features, tokens, silent, weights, turns, kv, rows)
    for level in range(len(levels)):
        copy_row(levels[level], this.levels[level])
    log_q = add_markov_bias(this.markov, this.levels[:1], tokens[:1])
    root = GrowthRoot(tokens[0], position, 0, PLENTY, 1)
    call_grow(grow, begun, below, parts, position, root, log_q, expansion, noise)


class CompiledDSpark(CompiledDFlash):
    def __init__(self, net: Net):
        super().__init__(net)
        before, after = (net.markov_head[name].weight for name in ("markov_w1", "markov_w2"))
        self.head = MarkovHead(before.detach().contiguous().numpy(), EightBit.of(after), net.vocabulary.numpy())
        self.markov, self.levels = NamedArrays(self.head), (net.config.depth, net.sizes.own_vocab)
        self.condition_slots(torch.zeros(1, net.sizes.own_vocab), [0])  # compiles, as above

    def allocate_round(self) -> NamedArrays:
        """Room for the rounds of one lane: a `DSparkRound`."""
        return NamedArrays(DSparkRound(self.head, np.zeros(self.levels, np.float32)))

    def condition_slots(self, slots: Tensor, tokens: list[int]) -> Tensor:
        """As `engine.nets.dspark.DSpark.condition_slots`."""
        return torch.from_numpy(condition_slots(self.markov.table, slots.numpy(), np.array(tokens)))
