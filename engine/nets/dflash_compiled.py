"""`engine.nets.dflash` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.dflash_compiled].

The context's new rows and the whole block are one compiled call. Every norm's weight is folded into the matrix that reads it.
"""

from typing import NamedTuple

import numpy as np
import torch

from engine.forward.cache import KVCache
from engine.forward.llama import root_of
from engine.kernels.attention import scale_heads, store, turn
from engine.kernels.compiling import compiled, within
from engine.kernels.eight_bit import EightBit, product
from engine.kernels.elementwise import add, log_softmax, over_all, put, side_by_side, unit_rows
from engine.kernels.growing_compiled import Root, call_grow
from engine.kernels.intrinsics import ticks
from engine.kernels.layer import LayerWeights, layer
from engine.kernels.named_arrays import Ids, Matrix, NamedArrays, Number, Vector, arrays_of, unpacked
from engine.nets.layer import Net


class Ends(NamedTuple):
    """What comes before and after the layers, and what all layers share.

    `features` is the matrix for the target's features. `least` and `head_least` keep norms from zero.
    """

    embedding: Matrix
    features: EightBit
    head: EightBit
    vocabulary: Ids
    least: Number
    head_least: Number


class Block(NamedTuple):
    """A layer. `qkv` reads the block's entries, and `kv` the context's; each has the weight of its own norm.

    `bias [q + k + v]` and `last_bias [H]`, which is that of attention's output, are zeros where the net has none. `scales [heads +
    kv_heads, head_dim]` are the weights of the norms of queries and keys.
    """

    qkv: EightBit
    kv: EightBit
    bias: Vector
    last_bias: Vector
    scales: Matrix
    rest: LayerWeights


ENDS, BLOCK = arrays_of(Ends), arrays_of(Block)
PLENTY = 2**31  # rows, for trees whose nodes take none


@within
def heads_of(x, ends, matrix, bias, scales, turns, position):
    """The product `[N, n]` of `x [N, H]`, normed, and the `matrix`, with its first heads normed and rotated.

    `bias [n]` is the product's and `scales [heads, head_dim]` are the heads' norms. The first row stands at `position`.
    """
    normed, found = np.empty_like(x), np.empty((len(x), len(bias)), np.float32)
    unit_rows(x, ends.least, normed)
    product(normed, matrix, found)
    for row in range(len(x)):
        add(bias, found[row])
    scale_heads(found, scales, ends.head_least)
    turn(found, len(scales), turns, np.arange(position, position + len(x)))
    return found


@compiled
def answers(features, tokens, silent, weights, turns, kv, rows):
    """Log-probabilities `[n - silent, V]` of the tokens behind the first of a block's `tokens [n]`; -inf for tokens that the net lacks.

    The context's new rows, of the target's `features [N, taps + 1, H]`, are written behind the first `rows` of `kv`, and the block's
    rows behind them. A row's position is its place. `weights` holds the `Ends` and a `Block` for every layer.
    """
    ends = unpacked(Ends, weights, 0)
    count, hidden, start = len(tokens), features.shape[2], rows + len(features)
    context, x = np.empty((len(features), hidden), np.float32), np.empty((count, hidden), np.float32)
    product(side_by_side(features, np.arange(len(features))), ends.features, context)
    for row in range(count):
        put(ends.embedding[tokens[row]], x[row])
    visible = np.ones((count, 1), np.bool_)  # every entry sees the whole context and the whole block
    for number in range(len(kv)):
        block = unpacked(Block, weights, ENDS + BLOCK * number)
        heads = len(block.scales) - kv.shape[2]
        bias, scales = block.bias[heads * kv.shape[4] :], block.scales[heads:]
        store(heads_of(context, ends, block.kv, bias, scales, turns, rows), kv[number], rows)
        qkv = heads_of(x, ends, block.qkv, block.bias, block.scales, turns, start)
        for row in range(count):
            add(block.last_bias, x[row])
        seeing = visible[silent:] if number == len(kv) - 1 else visible
        x = layer(x, qkv, kv[number], seeing, np.int64(0), start, block.rest, ends.least)
    normed, own = np.empty_like(x), np.empty((len(x), len(ends.vocabulary)), np.float32)
    unit_rows(x, ends.least, normed)
    product(normed, ends.head, own)
    log_softmax(own)
    return over_all(own, ends.vocabulary, len(ends.embedding))


class CompiledDFlash:
    def __init__(self, net: Net):
        sizes, root, blocks = net.sizes, net.sizes.hidden**0.5, []
        for each in net.layers:
            attention, mlp = each.self_attn, each.mlp
            queries, keys, values = (attention[f"{name}_proj"] for name in "qkv")
            inward, pairs = (
                torch.cat([linear.weight for linear in linears])
                for linears in ((queries, keys, values), (keys, values))
            )
            norms = (attention.q_norm.weight, sizes.heads), (attention.k_norm.weight, sizes.kv_heads)
            # Rotation commutes with the factor of its cosines and sines, so that the norms before it take the factor.
            scale = sizes.head_dim**0.5 * sizes.attention_scaling
            gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * each.post_attention_layernorm.weight
            blocks.append(
                Block(
                    qkv=EightBit.of(inward * each.input_layernorm.weight * root),
                    kv=EightBit.of(pairs * net.hidden_norm.weight * root),
                    bias=bias_of(queries, keys, values),
                    last_bias=bias_of(attention.o_proj),
                    scales=torch.cat([weight.detach().expand(heads, -1) * scale for weight, heads in norms]).numpy(),
                    rest=LayerWeights.of(attention.o_proj.weight, gate_up * root, mlp.down_proj.weight),
                )
            )
        ends = Ends(
            embedding=net.embedding.contiguous().numpy(),
            features=EightBit.of(net.fc.weight),
            head=EightBit.of(net.head * net.norm.weight * root),
            vocabulary=net.vocabulary.numpy(),
            least=root_of(sizes.hidden * sizes.eps),
            head_least=root_of(sizes.head_dim * sizes.eps),
        )
        self.weights, self.rotary = NamedArrays(ends, *blocks), net.rotary
        self.masks, self.silent = [sizes.mask] * (sizes.block - 1), sizes.silent

        # This call compiles, or loads compiled code, so that loading takes the time and no race does.
        shape = sizes.layers, sizes.kv_heads, sizes.head_dim, 1 + sizes.block
        cache = KVCache(*shape, torch.float32, torch.device("cpu"))
        self(cache, 0, torch.zeros(1, len(sizes.reads) + 1, sizes.hidden))

    def __call__(self, cache: KVCache, anchor: int, features: torch.Tensor) -> torch.Tensor:
        """As `answers`, for a block whose first token is the `anchor`. The context's rows are committed in `cache`.

        Raises `ValueError` when it is full.
        """
        log_q = answers(*self.entering(cache, anchor, features), cache.rows)
        cache.rows += len(features)
        return torch.from_numpy(log_q)

    def entering(self, cache: KVCache, anchor: int, features: torch.Tensor) -> tuple:
        """What `answers` reads before `rows`. Raises `ValueError` when the cache has no room for the context's rows and the block's."""
        tokens = np.array([anchor, *self.masks])
        cache.room_for(len(features) + len(tokens))
        turns = self.rotary.turns(cache.capacity)
        return features.contiguous().numpy(), tokens, self.silent, self.weights.table, turns, cache.numbers


class Markov(NamedTuple):
    """DSpark's head. `before [V, rank]` is looked up by the token, and `after` turns it into a bias of all tokens."""

    before: Matrix
    after: EightBit


class Round(NamedTuple):
    """DSpark's head, and a round's `levels [depth, V]`: the log-probabilities of slots that do not know the path."""

    markov: Markov
    levels: Matrix


@within
def biased(markov, slots, tokens):
    """Log-probabilities `[n, V]` behind `tokens [n]`, from those of slots that do not know them, `[n, V]`."""
    count = len(tokens)
    before, log_q = np.empty((count, markov.before.shape[1]), np.float32), np.empty_like(slots)
    for row in range(count):
        put(markov.before[tokens[row]], before[row])
    product(before, markov.after, log_q)
    for row in range(count):
        add(slots[row], log_q[row])
    log_softmax(log_q)
    return log_q


@compiled
def following(weights, slots, tokens):
    """As `engine.nets.dspark.DSpark.following`, with `weights` that hold a `Markov`."""
    return biased(unpacked(Markov, weights, 0), slots, tokens)


@compiled
def behind_level(parts, ids, above, positions, visible, start, rows, asked):
    """Log-probabilities `[n, V]` behind the nodes `ids [n]` at `positions [n]` of a `Round` whose root stands at `start`.

    The other arguments are those of `engine.kernels.growing_compiled.BELOW`. They are not read, because no forward is taken.
    """
    this = unpacked(Round, parts, 0)
    slots = np.empty((len(ids), this.levels.shape[1]), np.float32)
    for row in range(len(ids)):
        put(this.levels[positions[row] - start], slots[row])
    return biased(this.markov, slots, ids)


@compiled
def grow_with_block(grow, below, parts, features, tokens, silent, weights, turns, kv, rows, expansion, noise):
    """Grow a tree of a `Round` from one forward. Arguments are those of `answers` and of `engine.kernels.growing_compiled.grow`."""
    begun, this, position = ticks(), unpacked(Round, parts, 0), rows + len(features)
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
        self.head = Markov(before.detach().contiguous().numpy(), EightBit.of(after))
        self.markov, self.levels = NamedArrays(self.head), (net.config.depth, net.sizes.vocab)
        self.following(torch.zeros(1, net.sizes.vocab), [0])  # compiles, as above

    def open(self) -> NamedArrays:
        """Room for the rounds of one lane: a `Round`."""
        return NamedArrays(Round(self.head, np.zeros(self.levels, np.float32)))

    def following(self, slots: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        """As `engine.nets.dspark.DSpark.following`."""
        return torch.from_numpy(following(self.markov.table, slots.numpy(), np.array(tokens)))


def bias_of(*linears: torch.nn.Linear) -> np.ndarray:
    """The linears' biases in a row; zeros for one without."""
    each = [torch.zeros(one.out_features) if one.bias is None else one.bias.detach() for one in linears]
    return torch.cat(each).numpy()
