"""Eight-bit products of a few rows, for drafts: rounding costs acceptance and never losslessness. Knows matrices; knows no model.

They are the products of `engine.kernels.stored`. Large matrices are multiplied by all threads of the team that computes the target's
forwards. An output is one thread's, so its bits follow no number of threads.
"""

from typing import NamedTuple

import numpy as np
from numba import carray, types
from torch import Tensor

from engine.kernels.by_address import compile_and_get_address, make_call_by_address
from engine.kernels.compiling import compiled_assuming_no_nan, compiled_no_nan_without_python_entry
from engine.kernels.intrinsics import pointer_from_address
from engine.kernels.named_arrays import (
    FIELDS,
    ByteRows,
    Ids,
    LoopAddress,
    Matrix,
    count_arrays,
    numba_type_of,
    point_table_row_at_array,
    table_row_of,
    unpack_named_arrays,
)
from engine.kernels.rounded import GROUP, rotate_and_round_row
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
from engine.kernels.stored import (
    BLOCK,
    NONE,
    StoredMatrix,
    block_arguments_of,
    bytes_of_rounded_row,
    multiply_block_and_add_bias,
)

SHARED = (
    1 << 18
)  # bytes of a matrix from which on threads share a product; a smaller one is done before they would join


class EightBitMatrix(NamedTuple):
    """A matrix `[out, in]` in eight bits, as `engine.kernels.rounded` rounds it.

    `product_loop_address` is that of `multiply_eight_bit_loop`. A matrix whose products threads share has the address of their team's
    state, else 0, and that of `multiply_claimed_eight_bit_blocks`.
    """

    stored: StoredMatrix
    product_loop_address: LoopAddress = 0
    team_state_address: LoopAddress = 0
    shared_loop_address: LoopAddress = 0

    @classmethod
    def quantise(cls, matrix: Tensor) -> "EightBitMatrix":
        stored, threads, team, loop = StoredMatrix.store_in_eight_bits(matrix), count_usable_cores_capped(), 0, 0
        if threads > 1 and stored.codes.nbytes >= SHARED:
            team = thread_team_of_size(threads).state.ctypes.data
            loop = compile_and_get_address(multiply_claimed_eight_bit_blocks, WORK_ON)
        return cls(stored, compile_and_get_address(multiply_eight_bit_loop, PRODUCT), team, loop)


NO_MATRIX = EightBitMatrix(StoredMatrix(np.zeros(0, np.uint8), np.zeros(4, np.int64), NONE, 0))  # has no rows


class SharedProduct(NamedTuple):
    """A product that threads share: rows `x [N, in]` and what they became, a matrix, and the results `out [N, out]`."""

    claims: Ids
    x: Matrix
    rounded_rows: ByteRows
    stored: StoredMatrix
    out: Matrix


PRODUCT = types.void(*map(numba_type_of, (Matrix, EightBitMatrix, Matrix)))
ARRAYS, STORED, OUT = (
    count_arrays(SharedProduct),
    table_row_of(SharedProduct, "stored"),
    count_arrays(SharedProduct) - 1,
)
call = make_call_by_address(PRODUCT)


@compiled_assuming_no_nan
def multiply_eight_bit(x, matrix, out):
    """Write the product of `x [N, in]` and a transposed `EightBitMatrix` into `out [N, out]`."""
    call(matrix.product_loop_address, x, matrix, out)


@compiled_no_nan_without_python_entry
def multiply_eight_bit_loop(x, matrix, out):
    """`multiply_eight_bit`, which every loop calls by its address."""
    rounded_rows, group = np.empty((len(x), bytes_of_rounded_row(x.shape[1])), np.uint8), np.empty(GROUP, np.float32)
    for row in range(len(x)):
        rotate_and_round_row(x[row], rounded_rows[row], np.int64(0), group)
    if matrix.team_state_address != 0:
        state = carray(pointer_from_address(matrix.team_state_address), (STATE,), np.int64)
        if try_hold_team(state):
            share_product(state, matrix, x, rounded_rows, out)
            release_team(state)
            return
    multiply_all_blocks(x, rounded_rows, matrix.stored, out)


@compiled_no_nan_without_python_entry
def multiply_all_blocks(x, rounded_rows, stored, out):
    """Write the product `out`. The caller keeps `rounded_rows` alive, of which blocks are handed the address alone."""
    product, spare = block_arguments_of(x, rounded_rows, stored), np.empty((len(x), BLOCK), np.float32)
    for block in range(-(-product.outputs // product.width)):
        multiply_block_of_rows(product, block, out, spare)


@compiled_no_nan_without_python_entry
def multiply_block_of_rows(product, block, out, spare):
    """Write a block's columns of `out [N, out]`. `spare` is float32 `[N, BLOCK]`."""
    target, apart = out.ctypes.data + 4 * block * product.width, 4 * out.shape[1]
    multiply_block_and_add_bias(product, block, np.int64(target), np.int64(apart), np.int64(spare.ctypes.data))


@compiled_no_nan_without_python_entry
def share_product(state, matrix, x, rounded_rows, out):
    """Write the product `out` with the team of this `state`, which the caller holds."""
    table, claims = np.empty((ARRAYS, FIELDS), np.int64), np.zeros(LINE * (state[THREADS] + 1), np.int64)
    point_table_row_at_array(table, 0, claims.ctypes.data, claims.shape)
    point_table_row_at_array(table, 1, x.ctypes.data, x.shape)
    point_table_row_at_array(table, 2, rounded_rows.ctypes.data, rounded_rows.shape)
    point_table_row_at_array(table, STORED, matrix.stored.codes.ctypes.data, matrix.stored.codes.shape)
    point_table_row_at_array(table, STORED + 1, matrix.stored.shape.ctypes.data, matrix.stored.shape.shape)
    point_table_row_at_array(table, STORED + 2, matrix.stored.bias.ctypes.data, matrix.stored.bias.shape)
    table[STORED + 3, 0] = matrix.stored.product_loop_address
    point_table_row_at_array(table, OUT, out.ctypes.data, out.shape)
    announce_call(state, matrix.shared_loop_address, table, claims)
    multiply_claimed_eight_bit_blocks(table, np.int64(0))
    close_call_wait_and_return_error(state)


@compiled_no_nan_without_python_entry
def multiply_claimed_eight_bit_blocks(table, thread_index):
    """This thread's part of the `SharedProduct` whose arrays stand in `table`."""
    shared = unpack_named_arrays(SharedProduct, table, 0)
    product = block_arguments_of(shared.x, shared.rounded_rows, shared.stored)
    blocks, spare = -(-product.outputs // product.width), np.empty((len(shared.x), BLOCK), np.float32)
    cursor = make_task_cursor(shared.claims, thread_index, len(shared.claims) // LINE - 1)
    block = claim_task_or_finish_phase(cursor, blocks)
    while block >= 0:
        multiply_block_of_rows(product, block, shared.out, spare)
        block = claim_task_or_finish_phase(cursor, blocks)
