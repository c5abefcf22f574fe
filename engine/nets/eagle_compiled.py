"""EAGLE as a CPU drafts with it: the net's step in eight-bit weights and compiled loops, every norm's weight folded into the matrix
behind it."""

from typing import NamedTuple

import numpy as np
import torch
from numba.extending import overload

from engine.forward.cache import KVCache
from engine.kernels.attention import turn
from engine.kernels.compiling import compiled
from engine.kernels.eight_bit import Rounded, product
from engine.kernels.elementwise import add, log_softmax, put, side_by_side, unit_rows
from engine.kernels.expansion import Expansion, Terms
from engine.kernels.growing_compiled import below, grow
from engine.kernels.intrinsics import ticks
from engine.kernels.layer import LayerWeights, layer
from engine.kernels.packed_weights import bundled, layer_weights, matrix, rounded, vector
from engine.nets.layer import FEATURES, Net, unit


class Weights(NamedTuple):
    """`said [V, 3H]` is what a token adds to the query/key/value product, `heard` its matrix for the feature beside the token."""

    said: np.ndarray
    heard: Rounded
    fuse: Rounded
    layer: LayerWeights
    head: Rounded
    vocabulary: np.ndarray
    least: np.float32


@compiled
def answer(weights, tokens, feature, positions, visible, kv, start, rows, turns):
    """The outputs `[n, H]` and the log-probabilities `[n, V]` of the last n of N entries. `visible`, `start` and `rows` are as in
    `layer`."""
    count, width = len(tokens), weights.said.shape[1]
    normed, qkv = np.empty_like(feature), np.empty((count, width), np.float32)
    unit_rows(feature, weights.least, normed)
    product(normed, weights.heard, qkv)
    for row in range(count):
        add(weights.said[tokens[row]], qkv[row])
    turn(qkv, 2 * kv.shape[1], turns, positions)
    out = layer(feature, qkv, kv, visible, start, rows, weights.layer, weights.least)
    normed, own = np.empty_like(out), np.empty((len(out), len(weights.vocabulary)), np.float32)
    unit_rows(out, weights.least, normed)
    product(normed, weights.head, own)
    log_softmax(own)
    log_q = np.empty((len(out), len(weights.said)), np.float32)
    for row in range(len(out)):
        for token in range(log_q.shape[1]):
            log_q[row, token] = -np.inf
        for k in range(len(weights.vocabulary)):
            log_q[row, weights.vocabulary[k]] = own[row, k]
    return out, log_q


@compiled
def weights_of(numbers, codes, layout, vocabulary):
    """The weights in the bundle that `ServedEagle` makes."""
    return Weights(
        matrix(numbers, layout, 0),
        rounded(numbers, codes, layout, 1),
        rounded(numbers, codes, layout, 3),
        layer_weights(numbers, codes, layout, 5),
        rounded(numbers, codes, layout, 11),
        vocabulary,
        vector(numbers, layout, 13)[0],
    )


@compiled
def behind_root(numbers, codes, layout, vocabulary, turns, kv, outs, tokens, features, chosen, position, start, rows):
    """Log-probabilities `[1, V]` behind the last of `tokens [N]`, the first of which stands at `position`, from the `chosen [N]` of the
    target's `features [M, 4, H]`; its output is the first of `outs [capacity, H]`."""
    weights = weights_of(numbers, codes, layout, vocabulary)
    count = len(tokens)
    feature = np.empty((count, features.shape[2]), np.float32)
    product(side_by_side(features, chosen), weights.fuse, feature)
    positions, visible = np.arange(position, position + count), np.ones((1, 1), np.bool_)
    out, log_q = answer(weights, tokens, feature, positions, visible, kv, start, rows, turns)
    put(out[0], outs[0])
    return log_q


@compiled
def behind_level(
    numbers, codes, layout, vocabulary, turns, kv, outs, ids, above, positions, visible, start, rows, asked
):
    """Log-probabilities `[n, V]` behind nodes that go on from the outputs `above [n]`; theirs stand from number `asked` on."""
    weights = weights_of(numbers, codes, layout, vocabulary)
    feature = np.empty((len(ids), outs.shape[1]), np.float32)
    for row in range(len(ids)):
        put(outs[above[row]], feature[row])
    out, log_q = answer(weights, ids, feature, positions, visible, kv, start, rows, turns)
    for row in range(len(ids)):
        put(out[row], outs[asked + row])
    return log_q


class Drafting(NamedTuple):
    """A session at work, as `engine.kernels.expansion` knows it."""

    numbers: np.ndarray
    codes: np.ndarray
    layout: np.ndarray
    vocabulary: np.ndarray
    turns: np.ndarray
    kv: np.ndarray
    outs: np.ndarray
    start: int


@overload(below)
def below_eagle(net, ids, above, positions, visible, rows, asked):
    if getattr(net, "instance_class", None) is not Drafting:
        return None

    def log_q_below(net, ids, above, positions, visible, rows, asked):
        parts = net.numbers, net.codes, net.layout, net.vocabulary, net.turns, net.kv, net.outs
        return behind_level(*parts, ids, above, positions, visible, net.start, rows, asked)

    return log_q_below


@compiled
def expanded(
    numbers, codes, layout, vocabulary, turns, kv, outs, tokens, features, chosen, position, start, rows,
    nodes, worth, counts, noise, temperature, levels, terms, table,
):  # fmt: skip
    """Grow a tree behind the last token; the rest is as in `behind_root` and `engine.kernels.growing_compiled.grow`."""
    begun = ticks()
    parts = numbers, codes, layout, vocabulary, turns, kv, outs
    log_q = behind_root(*parts, tokens, features, chosen, position, start, rows)
    net, root, base = Drafting(*parts, start), tokens[len(tokens) - 1], position + len(tokens) - 1
    rows += len(tokens)
    grow(begun, net, log_q, nodes, worth, counts, root, base, rows, len(outs), noise, temperature, levels, terms, table)


class ServedEagle:
    """The weights, and `open` for one lane's session."""

    def __init__(self, net: Net):
        config, layer_of, root = net.config, net.layer, net.config.hidden**0.5
        self.heads, self.head_dim, least = config.heads, config.hidden // config.heads, net.norm_out.least
        inward = layer_of.qkv.weight.detach()
        for_token, for_feature = inward.split(config.hidden, 1)
        token = unit(net.embedding, least) * net.norm_token.weight.detach() * root
        self.bundle = bundled(
            (token @ for_token.T).numpy(),
            Rounded.of(for_feature * net.norm_feature.weight * root),
            Rounded.of(net.fuse.weight),
            layer_of.rounded(),
            Rounded.of(net.unembed * net.norm_out.weight * root),
            np.array([least], np.float32),
        )
        self.vocabulary = net.vocabulary.numpy()
        self.rotary = net.rotary

        # Compiling, or reading what was compiled before, belongs to loading.
        session, feature = self.open(2), torch.zeros(1, FEATURES + 1, config.hidden)
        session.root([0], feature, [0], 0, 0)
        session.level([0], [0], [1], torch.ones(1, 1, dtype=torch.bool), 0)
        noise = np.zeros((1, 0), np.float32)
        self.open(1).expand([0], feature, [0], 0, 0, Expansion(1, 1, 1), noise, np.float32(1), 1, Terms(1, 1))

    def open(self, capacity: int) -> "ServedSession":
        return ServedSession(self, capacity)


class ServedSession:
    """`engine.nets.eagle.EagleSession`, compiled."""

    def __init__(self, served: ServedEagle, capacity: int):
        self.cache = KVCache(1, served.heads, served.head_dim, capacity, torch.float32, torch.device("cpu"))
        outs = np.empty((capacity, served.heads * served.head_dim), np.float32)
        self.parts = (*served.bundle, served.vocabulary, served.rotary.turns(capacity), self.cache.numbers[0], outs)
        self.count = 0  # of this round's outputs

    def root(
        self, tokens: list[int], features: torch.Tensor, chosen: list[int], position: int, start: int
    ) -> torch.Tensor:
        self.count = 1
        return torch.from_numpy(behind_root(*self.parts, *self.entering(tokens, features, chosen, position, start)))

    def level(
        self, tokens: list[int], above: list[int], positions: list[int], visible: torch.Tensor, start: int
    ) -> torch.Tensor:
        rows, count = self.cache.rows, len(tokens)
        self.cache.room_for(count)
        ids, parents, places = np.array((tokens, above, positions))
        log_q = behind_level(*self.parts, ids, parents, places, visible.numpy(), start, rows, self.count)
        self.cache.rows, self.count = rows + count, self.count + count
        return torch.from_numpy(log_q)

    def expand(
        self,
        tokens: list[int],
        features: torch.Tensor,
        chosen: list[int],
        position: int,
        start: int,
        expansion: Expansion,
        noise: np.ndarray,
        temperature: np.float32,
        levels: int,
        terms: Terms,
    ) -> None:
        """Grow a whole tree behind the last token; the rest is as for `root` and `engine.kernels.growing_compiled.grow`.
        No drafted row stays."""
        entering = self.entering(tokens, features, chosen, position, start)
        wanted = noise, temperature, levels, terms.numbers, terms.table
        expanded(*self.parts, *entering, *expansion.arrays, *wanted)

    def entering(self, tokens, features, chosen, position, start) -> tuple:
        """The entries of a root as arrays, and the rows before them; theirs are committed."""
        rows = self.cache.rows
        self.cache.room_for(len(tokens))
        self.cache.rows = rows + len(tokens)
        return np.array(tokens), features.numpy(), np.array(chosen), position, start, rows
