"""`engine.nets.dflash` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.dflash_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.forward.llama import bias_of, head_norm_of, joined
from engine.forward.llama_eight_bit import in_eight_bits
from engine.kernels.attention import store
from engine.kernels.compiling import compiled, within
from engine.kernels.eight_bit import EightBit, product
from engine.kernels.elementwise import add, log_softmax, over_all, put, side_by_side
from engine.kernels.growing_compiled import Root, call_grow
from engine.kernels.intrinsics import ticks
from engine.kernels.named_arrays import Ids, Matrix, NamedArrays, arrays_of, unpacked
from engine.kernels.stack import LAYER, Stack, folded, log_q_behind, project, through
from engine.nets.layer import Net


class DFlashEnds(NamedTuple):
    """What comes before and after the layers. `features` is the matrix for the target's features."""

    embedding: Matrix
    features: EightBit
    head: EightBit
    vocabulary: Ids
    stack: Stack


class ContextWeights(NamedTuple):
    """What makes a layer's keys and values of the context, as in `LayerWeights`."""

    kv: EightBit
    scales: Matrix
    bias: Matrix = np.zeros((0, 0), np.float32)


CONTEXT = arrays_of(ContextWeights)
PLENTY = 2**31  # rows, for trees whose nodes take none


@compiled
def answers(features, tokens, silent, weights, turns, kv, rows):
    """Log-probabilities `[n - silent, own_vocab]` of the tokens behind the first of a block's `tokens [n]`.

    The context's new rows, of the target's `features [N, taps + 1, H]`, are written behind the first `rows` of `kv`, and the block's
    rows behind them. A row's position is its place. `weights` holds the layers' weights, `ContextWeights` for each, the `DFlashEnds`.
    """
    ends = unpacked(DFlashEnds, weights, (LAYER + CONTEXT) * len(kv))
    count, hidden, start = len(tokens), ends.embedding.shape[1], rows + len(features)
    context, x = np.empty((len(features), hidden), np.float32), np.empty((count, hidden), np.float32)
    product(side_by_side(features, np.arange(len(features))), ends.features, context)
    places, pairs = np.arange(rows, start), np.empty((len(features), 2 * kv.shape[2] * kv.shape[4]), np.float32)
    for number in range(len(kv)):
        into = unpacked(ContextWeights, weights, LAYER * len(kv) + CONTEXT * number)
        project(context, ends.stack, into.kv, into.bias, into.scales, places, places, turns, kv.shape[2], pairs)
        store(pairs, kv[number], rows)
    for row in range(count):
        put(ends.embedding[tokens[row]], x[row])
    positions, visible = np.arange(start, start + count), np.ones((count, 1), np.bool_)  # all see everything
    first, asking = np.int64(0), count - silent
    x = through(ends.stack, weights, turns, kv, x, tokens, tokens, positions, visible, first, start, asking)
    return log_q_behind(x, ends.stack, ends.head, len(ends.vocabulary))


class CompiledDFlash:
    def __init__(self, net: Net):
        sizes, layers, contexts = net.sizes, [], []
        for each in net.layers:
            scales = head_norm_of(each.self_attn, sizes.heads, sizes.kv_heads)
            assert scales is not None  # its layers norm their heads
            layers.append(in_eight_bits(each, scales))
            inward = each.self_attn.k_proj, each.self_attn.v_proj
            context = ContextWeights(folded(joined(*inward), net.hidden_norm.weight), scales[sizes.heads :].numpy())
            bias = bias_of(*inward)
            contexts.append(context if bias is None else context._replace(bias=bias[None].numpy()))
        ends = DFlashEnds(
            embedding=net.embedding.detach().contiguous().numpy(),
            features=EightBit.of(net.fc.weight),
            head=folded(net.head, net.norm.weight),
            vocabulary=net.vocabulary.numpy(),
            stack=Stack.of(sizes.hidden, sizes.eps, sizes.head_dim),
        )
        self.weights, self.rotary = NamedArrays(*layers, *contexts, ends), net.rotary
        self.masks, self.silent = [sizes.mask] * (sizes.block - 1), sizes.silent

        # This call compiles, or loads compiled code, so that loading takes the time and no race does.
        shape = sizes.layers, sizes.kv_heads, sizes.head_dim, 1 + sizes.block
        cache = KVCache(*shape, torch.float32, torch.device("cpu"))
        self(cache, 0, torch.zeros(1, len(sizes.reads) + 1, net.config.reads))

    def __call__(self, cache: KVCache, anchor: int, features: Tensor) -> Tensor:
        """As `answers`, behind the `anchor`. The context's rows are committed in `cache`. Raises `ValueError` when it is full."""
        log_q = answers(*self.entering(cache, anchor, features), cache.rows)
        cache.rows += len(features)
        return torch.from_numpy(log_q)

    def entering(self, cache: KVCache, anchor: int, features: Tensor) -> tuple:
        """What `answers` reads before `rows`. Raises `ValueError` when the cache has no room for the context's rows and the block's."""
        tokens = np.array([anchor, *self.masks])
        cache.room_for(len(features) + len(tokens))
        turns = self.rotary.turns(cache.capacity)
        return features.contiguous().numpy(), tokens, self.silent, self.weights.table, turns, cache.numbers


class Markov(NamedTuple):
    """DSpark's head. `before [V, rank]` is looked up by the token, and `after` turns it into a bias of the `vocabulary`."""

    before: Matrix
    after: EightBit
    vocabulary: Ids


class DSparkRound(NamedTuple):
    """DSpark's head, and a round's `levels [depth, own_vocab]`: the log-probabilities of slots that do not know the path."""

    markov: Markov
    levels: Matrix


@within
def biased(markov, slots, tokens):
    """Log-probabilities `[n, V]` behind `tokens [n]`, from those of slots that do not know them, `[n, own_vocab]`."""
    count = len(tokens)
    before, log_q = np.empty((count, markov.before.shape[1]), np.float32), np.empty_like(slots)
    for row in range(count):
        put(markov.before[tokens[row]], before[row])
    product(before, markov.after, log_q)
    for row in range(count):
        add(slots[row], log_q[row])
    log_softmax(log_q)
    whole = len(markov.vocabulary) == len(markov.before)
    return log_q if whole else over_all(log_q, markov.vocabulary, len(markov.before))


@compiled
def condition_slots(weights, slots, tokens):
    """As `engine.nets.dspark.DSpark.condition_slots`, with `weights` that hold a `Markov`."""
    return biased(unpacked(Markov, weights, 0), slots, tokens)


@compiled
def behind_level(parts, ids, above, positions, visible, start, rows, asked):
    """Log-probabilities `[n, V]` behind nodes of a `DSparkRound` whose root stands at `start`: `BELOW`, but no forward is taken."""
    this = unpacked(DSparkRound, parts, 0)
    slots = np.empty((len(ids), this.levels.shape[1]), np.float32)
    for row in range(len(ids)):
        put(this.levels[positions[row] - start], slots[row])
    return biased(this.markov, slots, ids)


@compiled
def grow_with_block(grow, below, parts, features, tokens, silent, weights, turns, kv, rows, expansion, noise):
    """Grow a tree of a `DSparkRound` from one forward. Arguments are those of `answers` and of `growing_compiled.grow`."""
    begun, this, position = ticks(), unpacked(DSparkRound, parts, 0), rows + len(features)
    levels = answers(features, tokens, silent, weights, turns, kv, rows)
    for level in range(len(levels)):
        put(levels[level], this.levels[level])
    log_q = biased(this.markov, this.levels[:1], tokens[:1])
    root = Root(tokens[0], position, 0, PLENTY, 1)
    call_grow(grow, begun, below, parts, position, root, log_q, expansion, noise)


class CompiledDSpark(CompiledDFlash):
    def __init__(self, net: Net):
        super().__init__(net)
        before, after = (net.markov_head[name].weight for name in ("markov_w1", "markov_w2"))
        self.head = Markov(before.detach().contiguous().numpy(), EightBit.of(after), net.vocabulary.numpy())
        self.markov, self.levels = NamedArrays(self.head), (net.config.depth, net.sizes.own_vocab)
        self.condition_slots(torch.zeros(1, net.sizes.own_vocab), [0])  # compiles, as above

    def open(self) -> NamedArrays:
        """Room for the rounds of one lane: a `DSparkRound`."""
        return NamedArrays(DSparkRound(self.head, np.zeros(self.levels, np.float32)))

    def condition_slots(self, slots: Tensor, tokens: list[int]) -> Tensor:
        """As `engine.nets.dspark.DSpark.condition_slots`."""
        return torch.from_numpy(condition_slots(self.markov.table, slots.numpy(), np.array(tokens)))
