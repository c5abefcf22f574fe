"""`engine.nets.eagle` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.eagle_compiled].

Every norm's weight is folded into the matrix that reads it.
"""

from typing import NamedTuple

import numpy as np
import torch

from engine.forward.cache import KVCache
from engine.kernels.attention import turn
from engine.kernels.compiling import compiled, within
from engine.kernels.eight_bit import EightBit, product
from engine.kernels.elementwise import add, log_softmax, over_all, put, side_by_side, unit_rows
from engine.kernels.layer import LayerWeights, layer
from engine.kernels.named_arrays import Cube, Ids, Matrix, NamedArrays, Number, Rows, unpacked
from engine.nets.layer import FEATURES, Net, unit


class Weights(NamedTuple):
    """The net's weights. `said [V, 3H]` is what a token adds to the query/key/value product; `heard` is the matrix for the feature."""

    said: Matrix
    heard: EightBit
    fuse: EightBit
    layer: LayerWeights
    head: EightBit
    vocabulary: Ids
    least: Number


class State(NamedTuple):
    """A session: the net's weights, the rotations `turns` by position, the layer's `kv`, and this round's `outs [capacity, H]`."""

    weights: Weights
    turns: Cube
    kv: Rows
    outs: Matrix


@within
def answer(state, tokens, feature, positions, visible, start, rows):
    """Outputs `[n, H]` and log-probabilities `[n, V]` of the last n of N entries, where n is the number of `visible`'s rows.

    `visible`, `start` and `rows` are as in `engine.kernels.layer.layer`.
    """
    weights, kv = state.weights, state.kv
    count, width = len(tokens), weights.said.shape[1]
    normed, qkv = np.empty_like(feature), np.empty((count, width), np.float32)
    unit_rows(feature, weights.least, normed)
    product(normed, weights.heard, qkv)
    for row in range(count):
        add(weights.said[tokens[row]], qkv[row])
    turn(qkv, 2 * kv.shape[1], state.turns, positions)
    out = layer(feature, qkv, kv, visible, start, rows, weights.layer, weights.least)
    normed, own = np.empty_like(out), np.empty((len(out), len(weights.vocabulary)), np.float32)
    unit_rows(out, weights.least, normed)
    product(normed, weights.head, own)
    log_softmax(own)
    return out, over_all(own, weights.vocabulary, len(weights.said))


@compiled
def behind_root(session, tokens, features, chosen, position, start, rows):
    """Log-probabilities `[1, V]` behind the last of `tokens [N]`, the first of which stands at `position`.

    They read the `chosen [N]` of the target's `features [M, 4, H]`. The output becomes the first of the `State`'s `outs`.
    """
    state, count = unpacked(State, session, 0), len(tokens)
    feature = np.empty((count, features.shape[2]), np.float32)
    product(side_by_side(features, chosen), state.weights.fuse, feature)
    positions, visible = np.arange(position, position + count), np.ones((1, 1), np.bool_)
    out, log_q = answer(state, tokens, feature, positions, visible, start, rows)
    put(out[0], state.outs[0])
    return log_q


@compiled
def behind_level(session, ids, above, positions, visible, start, rows, asked):
    """Log-probabilities `[n, V]` behind nodes that go on from the outputs `above [n]`; their outputs are stored from `asked` on."""
    state = unpacked(State, session, 0)
    feature = np.empty((len(ids), state.outs.shape[1]), np.float32)
    for row in range(len(ids)):
        put(state.outs[above[row]], feature[row])
    out, log_q = answer(state, ids, feature, positions, visible, start, rows)
    for row in range(len(ids)):
        put(out[row], state.outs[asked + row])
    return log_q


class CompiledEagle:
    """The weights, and `open` for one lane's session."""

    def __init__(self, net: Net):
        config, layer_of, root = net.config, net.layer, net.config.hidden**0.5
        self.heads, self.head_dim, least = config.heads, config.hidden // config.heads, net.norm_out.least
        inward = layer_of.qkv.weight.detach()
        for_token, for_feature = inward.split(config.hidden, 1)
        token = unit(net.embedding, least) * net.norm_token.weight.detach() * root
        self.weights = Weights(
            said=(token @ for_token.T).numpy(),
            heard=EightBit.of(for_feature * net.norm_feature.weight * root),
            fuse=EightBit.of(net.fuse.weight),
            layer=layer_of.in_eight_bits(),
            head=EightBit.of(net.unembed * net.norm_out.weight * root),
            vocabulary=net.vocabulary.numpy(),
            least=least.numpy(),
        )
        self.rotary = net.rotary

        # These calls compile, or load compiled code, so that loading takes the time and no race does.
        session, feature = self.open(2), torch.zeros(1, FEATURES + 1, config.hidden)
        session.root([0], feature, [0], 0, 0)
        session.level([0], [0], [1], torch.ones(1, 1, dtype=torch.bool), 0)

    def open(self, capacity: int) -> "CompiledSession":
        return CompiledSession(self, capacity)


class CompiledSession:
    """`engine.nets.eagle.EagleSession`, compiled."""

    def __init__(self, net: CompiledEagle, capacity: int):
        self.cache = KVCache(1, net.heads, net.head_dim, capacity, torch.float32, torch.device("cpu"))
        outs = np.empty((capacity, net.heads * net.head_dim), np.float32)
        self.state = NamedArrays(State(net.weights, net.rotary.turns(capacity), self.cache.numbers[0], outs))
        self.count = 0  # this round's outputs so far

    def root(
        self, tokens: list[int], features: torch.Tensor, chosen: list[int], position: int, start: int
    ) -> torch.Tensor:
        rows = self.cache.rows
        self.cache.room_for(len(tokens))
        entering = np.array(tokens), features.numpy(), np.array(chosen), position, start, rows
        log_q = behind_root(self.state.table, *entering)
        self.cache.rows, self.count = rows + len(tokens), 1
        return torch.from_numpy(log_q)

    def level(
        self, tokens: list[int], above: list[int], positions: list[int], visible: torch.Tensor, start: int
    ) -> torch.Tensor:
        rows, count = self.cache.rows, len(tokens)
        self.cache.room_for(count)
        ids, parents, places = np.array((tokens, above, positions))
        log_q = behind_level(
            self.state.table, ids, parents, places, np.ascontiguousarray(visible.numpy()), start, rows, self.count
        )
        self.cache.rows, self.count = rows + count, self.count + count
        return torch.from_numpy(log_q)
