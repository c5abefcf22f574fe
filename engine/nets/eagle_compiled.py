"""`engine.nets.eagle` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.eagle_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.kernels.by_address import address_of
from engine.kernels.compiling import compile_for, compiled, within
from engine.kernels.eight_bit import EightBit, multiply_eight_bit
from engine.kernels.elementwise import copy_row, join_feature_rows, spread_over_vocabulary
from engine.kernels.growing_compiled import BELOW, GrowthRoot, call_grow
from engine.kernels.intrinsics import ticks
from engine.kernels.named_arrays import FIELDS, Cache, Cube, Ids, Matrix, NamedArrays, unpack_nest
from engine.kernels.stack import LayerWeights, StackConstants, fold_norm_into_matrix, head_log_q, run_layers
from engine.nets.layer import Net, divide_by_length


class EagleEnds(NamedTuple):
    """What comes before and after the layer. `fuse` is the matrix for the target's features."""

    fuse: EightBit
    head: EightBit
    vocabulary: Ids
    stack: StackConstants


class EagleLaneState(NamedTuple):
    """One lane's arrays: the rotations `turns` by position, the layer's `kv`, and this round's `outs [capacity, H]`."""

    turns: Cube
    kv: Cache
    outs: Matrix


class EagleArrays(NamedTuple):
    """All that loops read. What a token adds to the layer's query/key/value product is the layer's `bias [V, 3H]`."""

    layer: LayerWeights
    ends: EagleEnds
    state: EagleLaneState


@within
def forward_entries(parts, arrays, tokens, feature, positions, visible, start, rows):
    """Outputs `[n, H]` and log-probabilities `[n, V]` of the last n of N entries, one a row of `visible`; see `stack.run_layers`."""
    ends, turns, kv, count = arrays.ends, arrays.state.turns, arrays.state.kv, len(visible)
    out = run_layers(ends.stack, parts, turns, kv, feature, tokens, tokens, positions, visible, start, rows, count)
    own = head_log_q(out, ends.stack, ends.head, len(ends.vocabulary))
    return out, spread_over_vocabulary(own, ends.vocabulary, len(arrays.layer.bias))


@compiled
def log_q_of_root(parts, tokens, features, feature_rows, position, first_row, rows):
    """Log-probabilities `[1, V]` behind the last of `tokens [N]`, the first of which stands at `position`.

    They read the `feature_rows [N]` of the target's `features [M, 4, H]`. The output becomes the first of the `outs`.
    """
    arrays, count = unpack_nest(EagleArrays, parts, 0), len(tokens)
    feature = np.empty((count, arrays.state.outs.shape[1]), np.float32)
    multiply_eight_bit(join_feature_rows(features, feature_rows), arrays.ends.fuse, feature)
    positions, visible = np.arange(position, position + count), np.ones((1, 1), np.bool_)
    out, log_q = forward_entries(parts, arrays, tokens, feature, positions, visible, first_row, rows)
    copy_row(out[0], arrays.state.outs[0])
    return log_q


@compiled
def log_q_of_level(parts, tokens, parent_outputs, positions, visible, first_row, rows, first_output):
    """Log-probabilities `[n, V]` behind nodes that go on from the outputs `parent_outputs [n]`; their outputs are stored from
    `first_output` on.
    """
    arrays = unpack_nest(EagleArrays, parts, 0)
    outs = arrays.state.outs
    feature = np.empty((len(tokens), outs.shape[1]), np.float32)
    for row in range(len(tokens)):
        copy_row(outs[parent_outputs[row]], feature[row])
    out, log_q = forward_entries(parts, arrays, tokens, feature, positions, visible, first_row, rows)
    for row in range(len(tokens)):
        copy_row(out[row], outs[first_output + row])
    return log_q


@compiled
def grow_with_eagle(grow, below, parts, tokens, features, chosen, position, start, rows, expansion, noise):
    """Grow a tree behind the last of `tokens [N]`, as in `log_q_of_root`, by the addresses of `grow` and of `log_q_of_level`."""
    begun, count = ticks(), len(tokens)
    log_q = log_q_of_root(parts, tokens, features, chosen, position, start, rows)
    capacity = len(unpack_nest(EagleArrays, parts, 0).state.outs)
    root = GrowthRoot(tokens[count - 1], position + count - 1, rows + count, capacity, 0)
    call_grow(grow, begun, below, parts, start, root, log_q, expansion, noise)


def compile_forwards() -> None:
    """Compiles what each net of `CompiledEagle` calls, or finds its compiled code. It needs no net."""
    table, ids, features = np.empty((1, FIELDS), np.int64), np.empty(1, np.int64), np.empty((1, 1, 1), np.float32)
    compile_for(log_q_of_root, table, ids, features, ids, 0, 0, 0)
    address_of(log_q_of_level, BELOW)


class CompiledEagle:
    """The weights, and `open` for one lane's session."""

    def __init__(self, net: Net):
        config, root = net.config, net.config.hidden**0.5
        self.heads, self.head_dim, layer = config.heads, config.hidden // config.heads, net.layer
        for_token, for_feature = layer.qkv.weight.detach().split(config.hidden, 1)
        token = divide_by_length(net.embedding.detach(), net.norm_token.least) * net.norm_token.weight.detach() * root
        self.ends = EagleEnds(
            fuse=EightBit.of(net.fuse.weight),
            head=fold_norm_into_matrix(net.unembed, net.norm_out.weight),
            vocabulary=net.vocabulary.numpy(),
            stack=StackConstants.of(config.hidden, net.norm_out.eps),
        )
        said = (token @ for_token.T).numpy()
        self.layer = layer.to_eight_bits(net.norm_feature, for_feature)._replace(bias=said)
        self.rotary = net.rotary
        compile_forwards()  # so that loading takes the time and no race does

    def open(self, capacity: int) -> "CompiledEagleSession":
        return CompiledEagleSession(self, capacity)


class CompiledEagleSession:
    """`engine.nets.eagle.EagleSession`, compiled."""

    def __init__(self, net: CompiledEagle, capacity: int):
        self.cache = KVCache(1, net.heads, net.head_dim, capacity, torch.float32, torch.device("cpu"))
        outs = np.empty((capacity, net.heads * net.head_dim), np.float32)
        state = EagleLaneState(net.rotary.rotation_table(capacity), self.cache.numbers, outs)
        self.parts = NamedArrays(EagleArrays(net.layer, net.ends, state))
        self.count = 0  # this round's outputs so far

    def log_q_of_root(
        self, tokens: list[int], features: Tensor, feature_rows: list[int], position: int, first_row: int
    ) -> Tensor:
        rows = self.cache.rows
        self.cache.refuse_overflow(len(tokens))
        entering = np.array(tokens), features.numpy(), np.array(feature_rows), position, first_row, rows
        log_q = log_q_of_root(self.parts.table, *entering)
        self.cache.rows, self.count = rows + len(tokens), 1
        return torch.from_numpy(log_q)

    def log_q_of_level(
        self, tokens: list[int], parent_outputs: list[int], positions: list[int], visible: Tensor, first_row: int
    ) -> Tensor:
        rows, count = self.cache.rows, len(tokens)
        self.cache.refuse_overflow(count)
        ids, parents, places = np.array((tokens, parent_outputs, positions))
        log_q = log_q_of_level(
            self.parts.table, ids, parents, places, np.ascontiguousarray(visible.numpy()), first_row, rows, self.count
        )
        self.cache.rows, self.count = rows + count, self.count + count
        return torch.from_numpy(log_q)
