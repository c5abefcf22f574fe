"""A stack of Llama layers in one compiled loop, their matrices in eight bits. Knows arrays; knows no model and no tree.

A net describes its layers as `EightBitLayer`, makes the entries that go in, and hands in a mask. All nets call one loop, `run_layers`,
by its address. A matrix brings along the address of its product.

Targets have a forward of their own (`engine.kernels.phases`), whose sums have another order. On one thread it takes 1.04 to 1.3 times
as long for the embedded draft in eight bits, 1.3 to 1.6 times in 16 bits, and about twice as long for the small one.
"""

from typing import NamedTuple

import numpy as np
from numba import types
from torch import Tensor

from engine.kernels.attention import rms_norm_heads_in_place, rotate_heads_in_place, store_kv_and_attend
from engine.kernels.by_address import address_of, make_call_by_address
from engine.kernels.compiling import compiled, within
from engine.kernels.eight_bit import EightBit, multiply_eight_bit
from engine.kernels.elementwise import add_row, apply_silu_gate, copy_row, divide_rows_by_length, log_softmax_in_place
from engine.kernels.named_arrays import (
    Cache,
    Code,
    Cube,
    Ids,
    Mask,
    Matrix,
    Number,
    Table,
    Vector,
    count_arrays,
    numba_type_of,
    unpack_nest,
)

NO_MATRIX = EightBit(np.zeros((0, 1, 1, 1), np.int8), np.zeros(0, np.float32), 0)


class EightBitLayer(NamedTuple):
    """A layer's weights. `qkv` and `gate_up` hold the weights of the norms that they read, see `fold_norm_and_quantise`.

    The rest has no rows where a net does without. `shift [H, 2H]` reads an entry and the one before it; the layer begins with the entry
    plus that product. `bias [n, q + k + v]` is added to what `qkv` gives: one row to all entries, or a row by token. `scales [heads +
    kv_heads, head_dim]` are the weights of the norms of queries and keys. `out_bias [H]` is that of attention's output.
    """

    qkv: EightBit
    out: EightBit
    gate_up: EightBit
    down: EightBit
    shift: EightBit = NO_MATRIX
    bias: Matrix = np.zeros((0, 0), np.float32)
    scales: Matrix = np.zeros((0, 0), np.float32)
    out_bias: Vector = np.zeros(0, np.float32)


class StackConstants(NamedTuple):
    """What a net's layers share: `least` and `head_least` keep norms from zero, and `loop` is the address of `run_layers_loop`."""

    least: Number
    head_least: Number
    loop: Code

    @classmethod
    def for_rms_norms(cls, hidden: int, eps: float, head_dim: int = 0) -> "StackConstants":
        """For RMS norms with this eps, of the residual stream and of heads."""
        least, head_least = (np.sqrt(np.array(size * eps, np.float32)) for size in (hidden, head_dim))
        return cls(np.array(least), np.array(head_least), address_of(run_layers_loop, THROUGH))


class NetEnds(NamedTuple):
    """What comes before and after a net's layers. It stands behind them.

    A token adds the row `said [V, H]` to its entry. `features` is the matrix for the target's features, `condition` that for the state
    that a block goes on from, and `slots [K, H]` are entries of places without a token; these three have no rows where a net does
    without. The `head`, which holds the last norm's weight, gives logits of the tokens `vocabulary`.
    """

    said: Matrix
    head: EightBit
    vocabulary: Ids
    stack: StackConstants
    features: EightBit = NO_MATRIX
    condition: EightBit = NO_MATRIX
    slots: Matrix = np.zeros((0, 0), np.float32)


class LaneState(NamedTuple):
    """A lane's arrays: rotations `turns` by position, the cache `kv`, and a round's `outs [capacity, H]`, for nets that read them."""

    turns: Cube
    kv: Cache
    outs: Matrix = np.zeros((0, 0), np.float32)


def fold_norm_and_quantise(matrix: Tensor, norm: Tensor) -> EightBit:
    """A matrix `[out, n]` that reads an RMS norm with the weight `norm [n]`. It takes in the weight and sqrt(n): loops do without."""
    return EightBit.quantise(matrix * norm * len(norm) ** 0.5)


LAYER, ENDS, LANE = count_arrays(EightBitLayer), count_arrays(NetEnds), count_arrays(LaneState)
TAKES = StackConstants, Table, Cube, Cache, Matrix, Ids, Ids, Ids, Mask, types.int64, types.int64, types.int64
THROUGH = numba_type_of(Matrix)(*map(numba_type_of, TAKES))
call = make_call_by_address(THROUGH)


@compiled
def run_layers(stack, weights, turns, kv, x, tokens, before, positions, visible, start, rows, output_count):
    """What the last `output_count` of N entries are behind all layers, `[asking, H]`. `x [N, H]` are the entries; it is written over.

    The `EightBitLayer` stand first in `weights`. `turns` and `positions [N]` are as in `attention.rotate_heads_in_place`. Rows are
    written behind the first `rows` of `kv`. `visible` bool `[n, M]` is as in `attention.attend_to_cache_rows`, for the last n
    entries, `output_count`
    at least; no entry sees a row before `start`. Layers with a `bias` by token read `tokens [N]`, those with a `shift` the entry
    `before [N]` each.
    """
    return call(stack.loop, stack, weights, turns, kv, x, tokens, before, positions, visible, start, rows, output_count)


@within
def run_layers_loop(stack, weights, turns, kv, x, tokens, before, positions, visible, start, rows, output_count):
    """`run_layers`, which every net calls by its address."""
    for number in range(len(kv)):
        layer = unpack_nest(EightBitLayer, weights, LAYER * number)
        if len(layer.shift.scale) > 0:
            x = add_shift_from_entry_before(x, before, layer.shift)
        qkv = np.empty((len(x), 2 * layer.out.weight.shape[1] + 2 * kv.shape[2] * kv.shape[4]), np.float32)
        norm_project_and_rotate(
            x, stack, layer.qkv, layer.bias, layer.scales, tokens, positions, turns, kv.shape[2], qkv
        )
        if len(layer.out_bias) > 0:
            for row in range(len(x)):
                add_row(layer.out_bias, x[row])
        seeing = visible[len(visible) - output_count :] if number == len(kv) - 1 else visible
        x = attend_and_apply_mlp(x, qkv, kv[number], seeing, start, rows, layer, stack)
    return x


@within
def add_shift_from_entry_before(x, before, shift):
    """The entries `x [N, H]`, each plus the product of `shift` with itself and entry `before[i]`."""
    count, hidden = x.shape
    both, out = np.empty((count, 2 * hidden), np.float32), np.empty((count, hidden), np.float32)
    for row in range(count):
        copy_row(x[row], both[row, :hidden])
        copy_row(x[before[row]], both[row, hidden:])
    multiply_eight_bit(both, shift, out)
    for row in range(count):
        add_row(x[row], out[row])
    return out


@within
def norm_project_and_rotate(x, stack, qkv_matrix, bias, scales, tokens, positions, turns, kv_heads, out):
    """Write the heads of the entries `x [N, H]` into `out [N, n]`, of which the last are `kv_heads` values.

    They are the product of the normed entries and the `qkv_matrix`, plus the `bias`. All but the values are rotated; the first, as many
    as `scales` has rows, are normed before.
    """
    normed = np.empty_like(x)
    divide_rows_by_length(x, stack.least, normed)
    multiply_eight_bit(normed, qkv_matrix, out)
    if len(bias) > 0:
        for row in range(len(x)):
            add_row(bias[tokens[row] if len(bias) > 1 else 0], out[row])
    rms_norm_heads_in_place(out, scales, stack.head_least)
    rotate_heads_in_place(out, out.shape[1] // (2 * turns.shape[2]) - kv_heads, turns, positions)


@within
def attend_and_apply_mlp(x, qkv, kv, visible, start, rows, layer, stack):
    """The residual stream `[n, H]` after a layer, for the last n of N entries `x [N, H]`, one a row of `visible`; see
    `store_kv_and_attend`.
    """
    count, hidden = len(visible), x.shape[1]
    stream = np.empty((count, hidden), np.float32)
    multiply_eight_bit(store_kv_and_attend(qkv, kv, visible, start, rows, count), layer.out, stream)
    for row in range(count):
        add_row(x[len(x) - count + row], stream[row])
    inner = 2 * layer.down.weight.shape[1]
    normed, gated = np.empty_like(stream), np.empty((count, inner), np.float32)
    gate_up = np.empty((count, 2 * inner), np.float32)
    divide_rows_by_length(stream, stack.least, normed)
    multiply_eight_bit(normed, layer.gate_up, gate_up)
    for row in range(count):
        apply_silu_gate(gate_up[row, :inner], gate_up[row, inner:], gated[row])
    multiply_eight_bit(gated, layer.down, normed)
    for row in range(count):
        add_row(normed[row], stream[row])
    return stream


@within
def head_logits(x, ends):
    """Logits `[N, own_vocab]` of what `run_layers` returned, `x [N, H]`."""
    normed, out = np.empty_like(x), np.empty((len(x), len(ends.vocabulary)), np.float32)
    divide_rows_by_length(x, ends.stack.least, normed)
    multiply_eight_bit(normed, ends.head, out)
    return out


@within
def head_log_q(x, ends):
    """The log softmax of `head_logits`."""
    out = head_logits(x, ends)
    log_softmax_in_place(out)
    return out
