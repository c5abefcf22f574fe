"""Eight-bit products of a few rows, for drafts: rounding costs acceptance and never losslessness. Knows matrices; knows no model.

Large matrices are multiplied by all threads of the team that computes the target's forwards. An output is one thread's, so its bits
follow no number of threads.
"""

from typing import NamedTuple

import numpy as np
import torch
from numba import carray, types
from torch import Tensor

from engine.kernels.by_address import compile_and_get_address, make_call_by_address
from engine.kernels.compiling import compiled_assuming_no_nan, compiled_no_nan_without_python_entry
from engine.kernels.intrinsics import larger_float, pointer_from_address, write_int8_product_sums
from engine.kernels.named_arrays import (
    FIELDS,
    Ids,
    Int8Codes,
    Int16Matrix,
    LoopAddress,
    Matrix,
    Vector,
    count_arrays,
    numba_type_of,
    point_table_row_at_array,
    unpack_named_arrays,
)
from engine.kernels.sharing import (
    LINE,
    STATE,
    THREADS,
    WORK_ON,
    announce_call,
    claim_task_or_finish_phase,
    close_call_wait_and_return_error,
    count_usable_cores_capped,
    make_task_cursor,
    release_team,
    thread_team_of_size,
    try_hold_team,
)

OUTPUTS = 32  # outputs that are summed at a time, as two vectors of sixteen
SHARED = (
    1 << 18
)  # bytes of a matrix from which on threads share a product; a smaller one is done before they would join


class EightBitMatrix(NamedTuple):
    """A matrix `[out, in]` in eight bits, with one scale a row. `product_loop_address` is that of `multiply_eight_bit_loop`.

    `weight` is int8 `[out / 32, in / 2, 32, 2]`, both rounded up, and `scale [out]` is padded to whole blocks of 32. A matrix whose
    products threads share has the address of their team's state, else 0, and that of `multiply_claimed_eight_bit_blocks`.
    """

    weight: Int8Codes
    scale: Vector
    product_loop_address: LoopAddress = 0
    team_state_address: LoopAddress = 0
    shared_loop_address: LoopAddress = 0

    @classmethod
    def quantise(cls, matrix: Tensor) -> "EightBitMatrix":
        outputs, inputs = matrix.shape
        matrix = torch.nn.functional.pad(matrix.detach().float(), (0, inputs % 2, 0, -outputs % OUTPUTS))
        scale = matrix.abs().amax(1).clamp(min=1e-30) / 127
        tiled = (matrix / scale[:, None]).round().to(torch.int8).view(len(matrix) // OUTPUTS, OUTPUTS, -1, 2)
        threads, team, loop = count_usable_cores_capped(), 0, 0
        if threads > 1 and tiled.numel() >= SHARED:
            team = thread_team_of_size(threads).state.ctypes.data
            loop = compile_and_get_address(multiply_claimed_eight_bit_blocks, WORK_ON)
        own_loop = compile_and_get_address(multiply_eight_bit_loop, PRODUCT)
        return cls(tiled.transpose(1, 2).contiguous().numpy(), scale.numpy(), own_loop, team, loop)


class SharedProduct(NamedTuple):
    """A product that threads share: `inputs [N + 1, in]` with their `steps [N]`, a matrix, and the results `out [N, out]`."""

    claims: Ids
    weight: Int8Codes
    scale: Vector
    inputs: Int16Matrix
    steps: Vector
    out: Matrix


PRODUCT = types.void(*map(numba_type_of, (Matrix, EightBitMatrix, Matrix)))
ARRAYS = count_arrays(SharedProduct)
call = make_call_by_address(PRODUCT)


@compiled_assuming_no_nan
def multiply_eight_bit(x, matrix, out):
    """Write the product of `x [N, in]` and a transposed `EightBitMatrix` into `out [N, out]`."""
    call(matrix.product_loop_address, x, matrix, out)


@compiled_no_nan_without_python_entry
def multiply_eight_bit_loop(x, matrix, out):
    """`multiply_eight_bit`, which every loop calls by its address."""
    count, size = x.shape
    pairs = matrix.weight.shape[1]
    limit = np.float32(min(32766, 2**31 // (254 * pairs) - 1))  # no sum leaves 32 bits
    # There is one row to spare, because three rows are computed as four: that is faster.
    inputs, steps = np.zeros((count + 1, 2 * pairs), np.int16), np.empty(count, np.float32)
    for row in range(count):
        most = np.float32(1e-30)
        for k in range(size):
            most = larger_float(most, abs(x[row, k]))
        steps[row] = most / limit
        for k in range(size):
            inputs[row, k] = np.int16(np.floor(x[row, k] * (limit / most) + np.float32(0.5)))
    if matrix.team_state_address != 0:
        state = carray(pointer_from_address(matrix.team_state_address), (STATE,), np.int64)
        if try_hold_team(state):
            share_product(state, matrix, inputs, steps, out)
            release_team(state)
            return
    sums = np.empty((count + 1, OUTPUTS), np.int32)
    for block in range(len(matrix.weight)):
        multiply_eight_bit_block(block, matrix.weight, matrix.scale, inputs, steps, sums, out)


@compiled_no_nan_without_python_entry
def multiply_eight_bit_block(block, weight, scale, inputs, steps, sums, out):
    """Write a block's `OUTPUTS` columns of `out [N, out]`, see `SharedProduct`. `sums` int32 `[N + 1, OUTPUTS]` is working space."""
    count, pairs = len(steps), weight.shape[1]
    weights, row = weight.ctypes.data + block * pairs * 64, 0
    while row < count:
        source, target, left = inputs.ctypes.data + row * 4 * pairs, sums.ctypes.data + row * 128, count - row
        some = 8 if left >= 8 else 4 if left >= 3 else left
        write_int8_product_sums(some, weights, source, 4 * pairs, pairs, target)
        row += some
    scales = scale[block * OUTPUTS : (block + 1) * OUTPUTS]
    for row in range(count):
        some = out[row, block * OUTPUTS : (block + 1) * OUTPUTS]
        for j in range(len(some)):
            some[j] = np.float32(sums[row, j]) * scales[j] * steps[row]


@compiled_no_nan_without_python_entry
def share_product(state, matrix, inputs, steps, out):
    """Write the product `out` with the team of this `state`, which the caller holds."""
    table, claims = np.empty((ARRAYS, FIELDS), np.int64), np.zeros(LINE * (state[THREADS] + 1), np.int64)
    point_table_row_at_array(table, 0, claims.ctypes.data, claims.shape)
    point_table_row_at_array(table, 1, matrix.weight.ctypes.data, matrix.weight.shape)
    point_table_row_at_array(table, 2, matrix.scale.ctypes.data, matrix.scale.shape)
    point_table_row_at_array(table, 3, inputs.ctypes.data, inputs.shape)
    point_table_row_at_array(table, 4, steps.ctypes.data, steps.shape)
    point_table_row_at_array(table, 5, out.ctypes.data, out.shape)
    announce_call(state, matrix.shared_loop_address, table, claims)
    multiply_claimed_eight_bit_blocks(table, np.int64(0))
    close_call_wait_and_return_error(state)


@compiled_no_nan_without_python_entry
def multiply_claimed_eight_bit_blocks(table, thread_index):
    """This thread's part of the `SharedProduct` whose arrays stand in `table`."""
    product = unpack_named_arrays(SharedProduct, table, 0)
    blocks, sums = len(product.weight), np.empty((len(product.steps) + 1, OUTPUTS), np.int32)
    cursor = make_task_cursor(product.claims, thread_index, len(product.claims) // LINE - 1)
    block = claim_task_or_finish_phase(cursor, blocks)
    while block >= 0:
        multiply_eight_bit_block(block, product.weight, product.scale, product.inputs, product.steps, sums, product.out)
        block = claim_task_or_finish_phase(cursor, blocks)
