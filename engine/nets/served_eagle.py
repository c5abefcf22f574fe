"""EAGLE as a CPU drafts with it: the net's step in eight-bit weights and compiled loops, every norm's weight folded into the matrix
behind it."""

from typing import NamedTuple

import numpy as np
import torch
from numba.extending import overload

from engine.cache import KVCache
from engine.expansion import IN_ALL, IN_FORWARDS, Expansion, Terms, below, grow
from engine.kernels import (
    LayerWeights,
    Rounded,
    add,
    compiled,
    layer,
    log_softmax,
    product,
    put,
    turn,
    turns_of,
    unit_rows,
)
from engine.nets.layer import FEATURES, Net, unit
from engine.vectors import ticks


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
def fused(features, fuse):
    """`[N, H]` from the target's features `[N, 4, H]`."""
    count, _, hidden = features.shape
    three, out = np.empty((count, FEATURES * hidden), np.float32), np.empty((count, hidden), np.float32)
    for row in range(count):
        for tap in range(FEATURES):
            put(features[row, tap], three[row, tap * hidden : (tap + 1) * hidden])
    product(three, fuse, out)
    return out


class Drafting(NamedTuple):
    """A session as `engine.expansion` knows it: `outs [capacity, H]` are the outputs of a round's entries, the root's first."""

    weights: Weights
    turns: np.ndarray
    kv: np.ndarray
    outs: np.ndarray
    start: int


@overload(below)
def below_eagle(net, ids, above, positions, visible, rows, asked):
    if getattr(net, "instance_class", None) is not Drafting:
        return None

    def log_q_below(net, ids, above, positions, visible, rows, asked):
        feature = np.empty((len(ids), net.outs.shape[1]), np.float32)
        for row in range(len(ids)):
            put(net.outs[above[row]], feature[row])
        out, log_q = answer(net.weights, ids, feature, positions, visible, net.kv, net.start, rows, net.turns)
        for row in range(len(ids)):
            put(out[row], net.outs[asked + row])
        return log_q

    return log_q_below


@compiled
def expanded(net, tokens, features, position, rows, expansion, noise, temperature, levels, terms):
    """Grow a tree behind the last of `tokens [N]`, whose `features [N, 4, H]` are the target's, the first standing at `position`."""
    begun = ticks()
    feature, positions = fused(features, net.weights.fuse), np.arange(position, position + len(tokens))
    out, log_q = answer(
        net.weights, tokens, feature, positions, np.ones((1, 1), np.bool_), net.kv, net.start, rows, net.turns
    )
    put(out[0], net.outs[0])
    spent = ticks() - begun
    rows, root, base = rows + len(tokens), tokens[len(tokens) - 1], position + len(tokens) - 1
    grow(net, log_q, expansion, root, base, rows, len(net.outs), noise, temperature, levels, terms)
    expansion.counts[IN_FORWARDS] += spent
    expansion.counts[IN_ALL] += spent


class ServedEagle:
    """The weights, and `open` for one lane's session."""

    def __init__(self, net: Net):
        config, layer_of, root = net.config, net.layer, net.config.hidden**0.5
        self.heads, self.head_dim, least = config.heads, config.hidden // config.heads, net.norm_out.least
        inward = layer_of.qkv.weight.detach()
        for_token, for_feature = inward.split(config.hidden, 1)
        token = unit(net.embedding, least) * net.norm_token.weight.detach() * root
        self.weights = Weights(
            said=(token @ for_token.T).numpy(),
            heard=Rounded.of(for_feature * net.norm_feature.weight * root),
            fuse=Rounded.of(net.fuse.weight),
            layer=LayerWeights(
                Rounded.of(layer_of.out.weight),
                Rounded.of(layer_of.gate_up.weight * layer_of.norm.weight * root),
                Rounded.of(layer_of.down.weight),
            ),
            head=Rounded.of(net.unembed * net.norm_out.weight * root),
            vocabulary=net.vocabulary.numpy(),
            least=np.float32(least),
        )
        inverse = net.rotary.inverse[: self.head_dim // 2]
        self.inverse, self.turns = inverse, np.zeros((0, 2, len(inverse)), np.float32)

        # Compiling, or reading what was compiled before, belongs to loading.
        session = self.open(2)
        session.root([0], torch.zeros(1, FEATURES + 1, config.hidden), [0], 0)
        session.level([0], [0], [1], torch.ones(1, 1, dtype=torch.bool), 0)
        noise, terms = np.zeros((1, 0), np.float32), Terms(width=1, beams=1)
        feature = torch.zeros(1, FEATURES + 1, config.hidden)
        self.open(1).expand([0], feature, 0, 0, Expansion.of(1, 1, 1), noise, np.float32(1), 1, terms)

    def open(self, capacity: int) -> "ServedSession":
        if capacity > len(self.turns):
            self.turns = turns_of(torch.arange(capacity), self.inverse).numpy()
        return ServedSession(self, capacity)


class ServedSession:
    """`engine.nets.eagle.EagleSession`, compiled."""

    def __init__(self, served: ServedEagle, capacity: int):
        self.weights, self.turns = served.weights, served.turns
        self.cache = KVCache(1, served.heads, served.head_dim, capacity, torch.float32, torch.device("cpu"))
        self.kv = self.cache.kv[0].numpy()
        self.outs = np.empty((capacity, served.heads * served.head_dim), np.float32)
        self.count = 0  # of this round's outputs

    def root(self, tokens: list[int], features: torch.Tensor, positions: list[int], start: int) -> torch.Tensor:
        self.count = 0
        feature = fused(features.numpy(), self.weights.fuse)
        return self.answered(tokens, feature, positions, np.ones((1, 1), np.bool_), start)

    def level(
        self, tokens: list[int], above: list[int], positions: list[int], visible: torch.Tensor, start: int
    ) -> torch.Tensor:
        return self.answered(tokens, self.outs[above], positions, visible.numpy(), start)

    def expand(
        self,
        tokens: list[int],
        features: torch.Tensor,
        position: int,
        start: int,
        expansion: Expansion,
        noise: np.ndarray,
        temperature: np.float32,
        levels: int,
        terms: Terms,
    ) -> None:
        """Grow a whole tree behind the last token; the rest is as for `root` and `engine.expansion.grow`. No drafted row stays."""
        rows = self.cache.rows
        self.cache.room_for(len(tokens))
        net = Drafting(self.weights, self.turns, self.kv, self.outs, start)
        expanded(net, np.array(tokens), features.numpy(), position, rows, expansion, noise, temperature, levels, terms)
        self.cache.rows = rows + len(tokens)

    def answered(self, tokens, behind, positions, visible, start) -> torch.Tensor:
        """Write the entries' rows, keep the outputs, hand out the log-probabilities."""
        rows = self.cache.rows
        self.cache.room_for(len(tokens))
        out, log_q = answer(
            self.weights, np.array(tokens), behind, np.array(positions), visible, self.kv, start, rows, self.turns
        )
        self.cache.rows = rows + len(tokens)
        self.outs[self.count : self.count + len(out)] = out
        self.count += len(out)
        return torch.from_numpy(log_q)
