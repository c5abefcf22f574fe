"""`engine.nets.eagle` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.eagle_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.kernels.by_address import address_of
from engine.kernels.compiling import compile_for, compiled, within
from engine.kernels.eight_bit import EightBit, product
from engine.kernels.elementwise import over_all, put, side_by_side
from engine.kernels.growing_compiled import BELOW, Root, call_grow
from engine.kernels.intrinsics import ticks
from engine.kernels.named_arrays import FIELDS, Cache, Cube, Ids, Matrix, NamedArrays, unpacked
from engine.kernels.stack import LayerWeights, Stack, folded, log_q_behind, through
from engine.nets.layer import Net, unit


class EagleEnds(NamedTuple):
    """What comes before and after the layer. `fuse` is the matrix for the target's features."""

    fuse: EightBit
    head: EightBit
    vocabulary: Ids
    stack: Stack


class State(NamedTuple):
    """One lane's arrays: the rotations `turns` by position, the layer's `kv`, and this round's `outs [capacity, H]`."""

    turns: Cube
    kv: Cache
    outs: Matrix


class EagleArrays(NamedTuple):
    """All that loops read. What a token adds to the layer's query/key/value product is the layer's `bias [V, 3H]`."""

    layer: LayerWeights
    ends: EagleEnds
    state: State


@within
def answer(parts, arrays, tokens, feature, positions, visible, start, rows):
    """Outputs `[n, H]` and log-probabilities `[n, V]` of the last n of N entries, one a row of `visible`; see `stack.through`."""
    ends, turns, kv, count = arrays.ends, arrays.state.turns, arrays.state.kv, len(visible)
    out = through(ends.stack, parts, turns, kv, feature, tokens, tokens, positions, visible, start, rows, count)
    own = log_q_behind(out, ends.stack, ends.head, len(ends.vocabulary))
    return out, over_all(own, ends.vocabulary, len(arrays.layer.bias))


@compiled
def behind_root(parts, tokens, features, chosen, position, start, rows):
    """Log-probabilities `[1, V]` behind the last of `tokens [N]`, the first of which stands at `position`.

    They read the `chosen [N]` of the target's `features [M, 4, H]`. The output becomes the first of the `outs`.
    """
    arrays, count = unpacked(EagleArrays, parts, 0), len(tokens)
    feature = np.empty((count, arrays.state.outs.shape[1]), np.float32)
    product(side_by_side(features, chosen), arrays.ends.fuse, feature)
    positions, visible = np.arange(position, position + count), np.ones((1, 1), np.bool_)
    out, log_q = answer(parts, arrays, tokens, feature, positions, visible, start, rows)
    put(out[0], arrays.state.outs[0])
    return log_q


@compiled
def behind_level(parts, ids, above, positions, visible, start, rows, asked):
    """Log-probabilities `[n, V]` behind nodes that go on from the outputs `above [n]`; their outputs are stored from `asked` on."""
    arrays = unpacked(EagleArrays, parts, 0)
    outs = arrays.state.outs
    feature = np.empty((len(ids), outs.shape[1]), np.float32)
    for row in range(len(ids)):
        put(outs[above[row]], feature[row])
    out, log_q = answer(parts, arrays, ids, feature, positions, visible, start, rows)
    for row in range(len(ids)):
        put(out[row], outs[asked + row])
    return log_q


@compiled
def grow_with_eagle(grow, below, parts, tokens, features, chosen, position, start, rows, expansion, noise):
    """Grow a tree behind the last of `tokens [N]`, as in `behind_root`, by the addresses of `grow` and of `behind_level`."""
    begun, count = ticks(), len(tokens)
    log_q = behind_root(parts, tokens, features, chosen, position, start, rows)
    capacity = len(unpacked(EagleArrays, parts, 0).state.outs)
    root = Root(tokens[count - 1], position + count - 1, rows + count, capacity, 0)
    call_grow(grow, begun, below, parts, start, root, log_q, expansion, noise)


def compile_forwards() -> None:
    """Compiles what each net of `CompiledEagle` calls, or finds its compiled code. It needs no net."""
    table, ids, features = np.empty((1, FIELDS), np.int64), np.empty(1, np.int64), np.empty((1, 1, 1), np.float32)
    compile_for(behind_root, table, ids, features, ids, 0, 0, 0)
    address_of(behind_level, BELOW)


class CompiledEagle:
    """The weights, and `open` for one lane's session."""

    def __init__(self, net: Net):
        config, root = net.config, net.config.hidden**0.5
        self.heads, self.head_dim, layer = config.heads, config.hidden // config.heads, net.layer
        for_token, for_feature = layer.qkv.weight.detach().split(config.hidden, 1)
        token = unit(net.embedding.detach(), net.norm_token.least) * net.norm_token.weight.detach() * root
        self.ends = EagleEnds(
            fuse=EightBit.of(net.fuse.weight),
            head=folded(net.unembed, net.norm_out.weight),
            vocabulary=net.vocabulary.numpy(),
            stack=Stack.of(config.hidden, net.norm_out.eps),
        )
        said = (token @ for_token.T).numpy()
        self.layer = layer.in_eight_bits(net.norm_feature, for_feature)._replace(bias=said)
        self.rotary = net.rotary
        compile_forwards()  # so that loading takes the time and no race does

    def open(self, capacity: int) -> "CompiledSession":
        return CompiledSession(self, capacity)


class CompiledSession:
    """`engine.nets.eagle.EagleSession`, compiled."""

    def __init__(self, net: CompiledEagle, capacity: int):
        self.cache = KVCache(1, net.heads, net.head_dim, capacity, torch.float32, torch.device("cpu"))
        outs = np.empty((capacity, net.heads * net.head_dim), np.float32)
        state = State(net.rotary.turns(capacity), self.cache.numbers, outs)
        self.parts = NamedArrays(EagleArrays(net.layer, net.ends, state))
        self.count = 0  # this round's outputs so far

    def root(self, tokens: list[int], features: Tensor, chosen: list[int], position: int, start: int) -> Tensor:
        rows = self.cache.rows
        self.cache.room_for(len(tokens))
        entering = np.array(tokens), features.numpy(), np.array(chosen), position, start, rows
        log_q = behind_root(self.parts.table, *entering)
        self.cache.rows, self.count = rows + len(tokens), 1
        return torch.from_numpy(log_q)

    def level(self, tokens: list[int], above: list[int], positions: list[int], visible: Tensor, start: int) -> Tensor:
        rows, count = self.cache.rows, len(tokens)
        self.cache.room_for(count)
        ids, parents, places = np.array((tokens, above, positions))
        log_q = behind_level(
            self.parts.table, ids, parents, places, np.ascontiguousarray(visible.numpy()), start, rows, self.count
        )
        self.cache.rows, self.count = rows + count, self.count + count
        return torch.from_numpy(log_q)
