"""A stack of Llama layers in one compiled loop, their matrices in eight bits. Knows arrays; knows no model and no tree.

A net describes its layers as `EightBitLayer`, makes the entries that go in, and hands in a mask. All nets call one loop,
`run_decoder_layers`, by its address. A matrix brings along the address of its product.

Targets have a forward of their own (`engine.kernels.phases`), whose sums have another order. On one thread it takes 1.04 to 1.3 times
as long for the embedded draft in eight bits, 1.3 to 1.6 times in 16 bits, and about twice as long for the small one.
"""

from typing import NamedTuple

import numpy as np
from numba import types
from torch import Tensor

from engine.kernels.attention import rms_norm_heads_in_place, rotate_heads_in_place, store_kv_and_attend
from engine.kernels.by_address import compile_and_get_address, make_call_by_address
from engine.kernels.compiling import compiled_assuming_no_nan, compiled_no_nan_without_python_entry
from engine.kernels.eight_bit import NO_MATRIX, EightBitMatrix, multiply_eight_bit
from engine.kernels.elementwise import add_row, apply_silu_gate, copy_row, divide_rows_by_norm, log_softmax_in_place
from engine.kernels.named_arrays import (
    FloatCube,
    FloatScalar,
    Ids,
    KVCacheArray,
    LoopAddress,
    Mask,
    Matrix,
    Table,
    Vector,
    count_arrays,
    numba_type_of,
    unpack_named_arrays,
)


class EightBitLayer(NamedTuple):
    """A layer's weights. `qkv` and `gate_up` hold the weights of the norms that they read, see `fold_norm_and_quantise`.

    The rest has no rows where a net does without. `previous_entry_shift [H, 2H]` reads an entry and the one before it; the layer
    begins with the entry plus that product. `bias [n, q + k + v]` is added to what `qkv` gives: one row to all entries, or a row
    by token. `head_norm_scales [heads + kv_heads, head_dim]` are the weights of the norms of queries and keys. `out_bias [H]` is
    that of attention's output.
    """

    qkv: EightBitMatrix
    out: EightBitMatrix
    gate_up: EightBitMatrix
    down: EightBitMatrix
    previous_entry_shift: EightBitMatrix = NO_MATRIX
    bias: Matrix = np.zeros((0, 0), np.float32)
    head_norm_scales: Matrix = np.zeros((0, 0), np.float32)
    out_bias: Vector = np.zeros(0, np.float32)


class StackConstants(NamedTuple):
    """What a net's layers share: `norm_floor` and `head_norm_floor` keep norms from zero, and `layers_loop_address` is the address of
    `run_decoder_layers_loop`.
    """

    norm_floor: FloatScalar
    head_norm_floor: FloatScalar
    layers_loop_address: LoopAddress

    @classmethod
    def for_rms_norms(cls, hidden: int, eps: float, head_dim: int = 0) -> "StackConstants":
        """For RMS norms with this eps, of the residual stream and of heads."""
        floor, head_floor = (np.sqrt(np.array(size * eps, np.float32)) for size in (hidden, head_dim))
        return cls(np.array(floor), np.array(head_floor), compile_and_get_address(run_decoder_layers_loop, THROUGH))


class DraftOuterWeights(NamedTuple):
    """What comes before and after a net's layers. It stands behind them.

    A token adds the row `token_entries [V, H]` to its entry. `features` is the matrix for the target's features, `condition` that
    for the state that a block goes on from, and `slots [K, H]` are entries of places without a token; these three have no rows
    where a net does without. The `head`, which holds the last norm's weight, gives logits of the tokens `vocabulary`.
    """

    token_entries: Matrix
    head: EightBitMatrix
    vocabulary: Ids
    stack: StackConstants
    features: EightBitMatrix = NO_MATRIX
    condition: EightBitMatrix = NO_MATRIX
    slots: Matrix = np.zeros((0, 0), np.float32)


class LaneArrays(NamedTuple):
    """A lane's arrays: `rotations` by position, the cache `kv`, and a round's `round_outputs [capacity, H]`, for nets that
    read them.
    """

    rotations: FloatCube
    kv: KVCacheArray
    round_outputs: Matrix = np.zeros((0, 0), np.float32)


def fold_norm_and_quantise(matrix: Tensor, norm: Tensor) -> EightBitMatrix:
    """A matrix `[out, n]` that reads an RMS norm with the weight `norm [n]`. It takes in the weight and sqrt(n): loops do without."""
    return EightBitMatrix.quantise(matrix * norm * len(norm) ** 0.5)


LAYER, ENDS, LANE = count_arrays(EightBitLayer), count_arrays(DraftOuterWeights), count_arrays(LaneArrays)
TAKES = (
    StackConstants,
    Table,
    FloatCube,
    KVCacheArray,
    Matrix,
    Ids,
    Ids,
    Ids,
    Mask,
    types.int64,
    types.int64,
    types.int64,
)
THROUGH = numba_type_of(Matrix)(*map(numba_type_of, TAKES))
call = make_call_by_address(THROUGH)


@compiled_assuming_no_nan
def run_decoder_layers(
    stack,
    weights,
    rotations,
    kv,
    x,
    tokens,
    previous_entries,
    positions,
    visible,
    first_visible_row,
    committed_rows,
    output_count,
):
    """What the last `output_count` of N entries are behind all layers, `[output_count, H]`. `x [N, H]` are the entries; it is
    written over.

    The `EightBitLayer` stand first in `weights`. `rotations` and `positions [N]` are as in `attention.rotate_heads_in_place`. Rows are
    written behind the first `committed_rows` of `kv`. `visible` bool `[n, M]` is as in `attention.attend_to_cache_rows`, for the last n
    entries, `output_count` at least; no entry sees a row before `first_visible_row`. Layers with a `bias` by token read `tokens
    [N]`, those with a `previous_entry_shift` the entry `previous_entries [N]` each.
    """
    return call(
        stack.layers_loop_address,
        stack,
        weights,
        rotations,
        kv,
        x,
        tokens,
        previous_entries,
        positions,
        visible,
        first_visible_row,
        committed_rows,
        output_count,
    )


@compiled_no_nan_without_python_entry
def run_decoder_layers_loop(
    stack,
    weights,
    rotations,
    kv,
    x,
    tokens,
    previous_entries,
    positions,
    visible,
    first_visible_row,
    committed_rows,
    output_count,
):
    """`run_decoder_layers`, which every net calls by its address."""
    for number in range(len(kv)):
        layer = unpack_named_arrays(EightBitLayer, weights, LAYER * number)
        if layer.previous_entry_shift.stored.shape[0] > 0:
            x = add_shift_from_entry_before(x, previous_entries, layer.previous_entry_shift)
        qkv = np.empty((len(x), layer.out.stored.shape[1] + 2 * kv.shape[2] * kv.shape[4]), np.float32)
        norm_project_and_rotate(
            x, stack, layer.qkv, layer.bias, layer.head_norm_scales, tokens, positions, rotations, kv.shape[2], qkv
        )
        if len(layer.out_bias) > 0:
            for row in range(len(x)):
                add_row(layer.out_bias, x[row])
        seeing = visible[len(visible) - output_count :] if number == len(kv) - 1 else visible
        x = attend_and_apply_mlp(x, qkv, kv[number], seeing, first_visible_row, committed_rows, layer, stack)
    return x


@compiled_no_nan_without_python_entry
def add_shift_from_entry_before(x, previous_entries, shift_matrix):
    """The entries `x [N, H]`, each plus the product of `shift_matrix` with itself and entry `previous_entries[i]`."""
    count, hidden = x.shape
    both, out = np.empty((count, 2 * hidden), np.float32), np.empty((count, hidden), np.float32)
    for row in range(count):
        copy_row(x[row], both[row, :hidden])
        copy_row(x[previous_entries[row]], both[row, hidden:])
    multiply_eight_bit(both, shift_matrix, out)
    for row in range(count):
        add_row(x[row], out[row])
    return out


@compiled_no_nan_without_python_entry
def norm_project_and_rotate(x, stack, qkv_matrix, bias, head_norm_scales, tokens, positions, rotations, kv_heads, out):
    """Write the heads of the entries `x [N, H]` into `out [N, n]`, of which the last are `kv_heads` values.

    They are the product of the normed entries and the `qkv_matrix`, plus the `bias`. All but the values are rotated; the first, as many
    as `head_norm_scales` has rows, are normed before.
    """
    normed = np.empty_like(x)
    divide_rows_by_norm(x, stack.norm_floor, normed)
    multiply_eight_bit(normed, qkv_matrix, out)
    if len(bias) > 0:
        for row in range(len(x)):
            add_row(bias[tokens[row] if len(bias) > 1 else 0], out[row])
    rms_norm_heads_in_place(out, head_norm_scales, stack.head_norm_floor)
    rotate_heads_in_place(out, out.shape[1] // (2 * rotations.shape[2]) - kv_heads, rotations, positions)


@compiled_no_nan_without_python_entry
def attend_and_apply_mlp(x, qkv, kv, visible, first_visible_row, committed_rows, layer, stack):
    """The residual stream `[n, H]` after a layer, for the last n of N entries `x [N, H]`, one a row of `visible`; see
    `store_kv_and_attend`.
    """
    count, hidden = len(visible), x.shape[1]
    stream = np.empty((count, hidden), np.float32)
    multiply_eight_bit(
        store_kv_and_attend(qkv, kv, visible, first_visible_row, committed_rows, count), layer.out, stream
    )
    for row in range(count):
        add_row(x[len(x) - count + row], stream[row])
    inner = layer.down.stored.shape[1]
    normed, gated = np.empty_like(stream), np.empty((count, inner), np.float32)
    gate_up = np.empty((count, 2 * inner), np.float32)
    divide_rows_by_norm(stream, stack.norm_floor, normed)
    multiply_eight_bit(normed, layer.gate_up, gate_up)
    for row in range(count):
        apply_silu_gate(gate_up[row, :inner], gate_up[row, inner:], gated[row])
    multiply_eight_bit(gated, layer.down, normed)
    for row in range(count):
        add_row(normed[row], stream[row])
    return stream


@compiled_no_nan_without_python_entry
def head_logits(x, outer_weights):
    """Logits `[N, own_vocab]` of what `run_decoder_layers` returned, `x [N, H]`."""
    normed, out = np.empty_like(x), np.empty((len(x), len(outer_weights.vocabulary)), np.float32)
    divide_rows_by_norm(x, outer_weights.stack.norm_floor, normed)
    multiply_eight_bit(normed, outer_weights.head, out)
    return out


@compiled_no_nan_without_python_entry
def head_log_q(x, outer_weights):
    """The log softmax of `head_logits`."""
    out = head_logits(x, outer_weights)
    log_softmax_in_place(out)
    return out
