"""Products of any number of rows with matrices in the type that a checkpoint stores, or in eight bits. Knows matrices; knows no model.

Weights of 16 bits widen to float32 in registers. An output adds its products in the order of the inputs, so a row's bits depend on
no other row, thread or vector length: a token alone and the same token in a tree get the same numbers.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numba import carray, types
from torch import Tensor

from engine.kernels.by_address import compile_and_get_address, make_call_by_address
from engine.kernels.compiling import exactly_compiled, exactly_compiled_without_python_entry
from engine.kernels.elementwise import LOWEST, max_of_row
from engine.kernels.exact_attention import exact_dot
from engine.kernels.intrinsics import (
    AHEAD,
    LINE,
    REAL,
    WIDE,
    WORD,
    intrinsic_decorator_for,
    pointer_from_address,
    vector,
    void_signature_of_addresses,
)
from engine.kernels.named_arrays import Bytes, Ids, LoopAddress, Vector
from engine.kernels.rounded import (
    ENTERED,
    GROUP,
    WAY,
    WAYS,
    WIDENED,
    WIDTH,
    lay_out_rounded_blocks,
    make_rounded_block_multiplier,
    rotate_and_round_matrix,
)

LANES = 16 if WIDE else 8
PIECE = 1 << 26  # bytes
BLOCK, HALF_BLOCK = 64, 32  # outputs that lie side by side; half as many where that shares the work better
KINDS = (torch.float32, torch.float16, torch.bfloat16, torch.int8)  # by their number in `StoredMatrix.shape`
ROUNDED = KINDS.index(torch.int8)
LIKELIEST = 16  # logits of a row, at least, that a head in eight bits computes again without rounding
SPAN = 128  # neighbouring logits, of which only the highest is compared to find those
NONE = np.zeros(0, np.float32)
MULTIPLY = types.void(*[types.intp] * 7)  # what `make_stored_block_multiplier` and `make_rounded_block_multiplier` make
multiply = make_call_by_address(MULTIPLY)


class StoredMatrix(NamedTuple):
    """A matrix `[out, in]` and its bias `[out]`, or `[0]` without one.

    `codes` are the bytes of `[blocks, in, width]`, padded with zeros; `shape` is out, in, width and the type's place in `KINDS`.
    In eight bits they are laid out by `engine.kernels.rounded`, with their scales.
    `product_loop_address` is that of the loop that multiplies by a block of it. It is compiled when the first matrix of its type
    and width is stored.
    """

    codes: Bytes
    shape: Ids
    bias: Vector
    product_loop_address: LoopAddress

    @classmethod
    def store_exactly(cls, matrix: Tensor, bias: Tensor | None = None, thread_count: int = 1) -> "StoredMatrix":
        """The matrix in the smallest of `KINDS` that holds it exactly, laid out for so many threads."""
        matrix = matrix.detach().float()
        kind = next((each for each in KINDS[1:ROUNDED] if torch.equal(matrix.to(each).float(), matrix)), torch.float32)
        outputs, inputs = matrix.shape
        blocks = -(-outputs // BLOCK)
        width = BLOCK if blocks % thread_count == 0 or blocks > 8 * thread_count else HALF_BLOCK
        padded = torch.nn.functional.pad(matrix.to(kind), (0, 0, 0, -outputs % width))
        tiled = padded.view(-1, width, inputs).transpose(1, 2).contiguous()
        shape, loop = (
            np.array([outputs, inputs, width, KINDS.index(kind)]),
            make_stored_block_multiplier(KINDS.index(kind), width),
        )
        return cls(
            tiled.view(torch.uint8).flatten().numpy(),
            shape,
            bias_or_empty_array(bias),
            compile_and_get_address(loop, MULTIPLY),
        )

    @classmethod
    def from_rounded_codes(
        cls, codes: Tensor, scales: Tensor, inputs: int, bias: Tensor | None = None
    ) -> "StoredMatrix":
        """The matrix of so many inputs whose `codes` and `scales` are those of `rounded.rotate_and_round_matrix`."""
        shape = np.array([len(codes), inputs, WIDTH, ROUNDED])
        loop = compile_and_get_address(make_rounded_block_multiplier(WAYS.index(WAY)), MULTIPLY)
        return cls(lay_out_rounded_blocks(codes, scales), shape, bias_or_empty_array(bias), loop)

    @classmethod
    def store_in_eight_bits(cls, matrix: Tensor) -> "StoredMatrix":
        """The matrix as `rounded.rotate_and_round_matrix` rounds it."""
        return cls.from_rounded_codes(*rotate_and_round_matrix(matrix), matrix.shape[1])


def bias_or_empty_array(tensor: Tensor | None) -> np.ndarray:
    return NONE if tensor is None else tensor.detach().float().numpy()


class LargePageMemory:
    """Large pieces of memory for matrices that are read in one go. In large pages the processor rarely looks up where they lie."""

    def __init__(self) -> None:
        self.left = np.empty(0, np.uint8)

    def copy_into_pages(self, matrix: StoredMatrix) -> StoredMatrix:
        """The matrix with a copy of its codes in a piece; what no matrix fills yet takes no memory."""
        codes = matrix.codes
        size = len(codes) + -len(codes) % LINE
        if len(self.left) < size:
            piece = np.empty(max(PIECE, size) + LINE, np.uint8)
            self.left = piece[-piece.ctypes.data % LINE :]
        held, self.left = self.left[: len(codes)], self.left[size:]
        held[:] = codes
        return matrix._replace(codes=held)


@intrinsic_decorator_for(void_signature_of_addresses(8), literal_argument_count=2)
def multiply_stored_tile(
    builder, vectors, dtype_index, rows, weights, input_stride, x, row_stride, inputs, out, out_stride
):
    """Write the products of one to six rows with `vectors * LANES` neighbouring outputs of a block of this type in `KINDS`.

    The first two are constants. All behind `rows` are addresses and distances in bytes: the weights and from one input to the next, the
    rows `x` and from one to the next, the number of inputs, and the results `out` and from one row to the next.
    """
    dtype_index, wide, words = KINDS[dtype_index], vector(REAL, LANES), vector(WORD, LANES)
    half = ir.HalfType() if dtype_index == torch.float16 else ir.IntType(16)
    size, stored = dtype_index.itemsize, vector(REAL if dtype_index == torch.float32 else half, LANES)

    def widened(weights: ir.Value) -> ir.Value:
        if dtype_index == torch.float16:
            return builder.fpext(weights, wide)
        if dtype_index == torch.bfloat16:
            return builder.bitcast(builder.shl(builder.zext(weights, words), ir.Constant(words, [16] * LANES)), wide)
        return weights

    def write(rows: int) -> None:
        def body(k, totals):
            base = builder.address_plus(weights, (k, input_stride))
            builder.prefetch(builder.address_plus(base, AHEAD), vectors * LANES * size, 1)
            those = [
                widened(builder.load_value(builder.address_plus(base, number * LANES * size), stored))
                for number in range(vectors)
            ]
            ones = [
                builder.broadcast_to_lanes(
                    builder.load_value(builder.address_plus(x, (row_stride, row), (k, 4)), REAL), LANES
                )
                for row in range(rows)
            ]
            pairs = [(one, each) for one in ones for each in those]
            return [builder.emit_multiply_add(total, *pair) for total, pair in zip(totals, pairs, strict=True)]

        for number, value in enumerate(builder.accumulate_in_loop(wide, rows * vectors, inputs, body)):
            row, column = divmod(number, vectors)
            builder.store_value(value, builder.address_plus(out, (out_stride, row), 4 * LANES * column))

    builder.switch_over_cases(rows, range(1, 7), write)


@cache
def make_stored_block_multiplier(dtype_index: int, block_width: int) -> Callable:
    """A loop that writes the products of all rows with one block of this width and type in `KINDS`, six rows at most in registers.

    numba finds compiled code again by the values that a loop closes over, so these are numbers only.
    """
    vectors = min(block_width // LANES, 4 if WIDE else 2)
    size, step = KINDS[dtype_index].itemsize, vectors * LANES

    @exactly_compiled_without_python_entry
    def multiply(weights, x, across, count, inputs, out, apart):
        for column in range(0, block_width, step):
            those, target, source, left = weights + column * size, out + 4 * column, x, count
            while left > 0:
                rows = 4 if left == 7 or left == 8 else min(left, 6)
                multiply_stored_tile(
                    vectors, dtype_index, rows, those, block_width * size, source, across, inputs, target, apart
                )
                left -= rows
                source += rows * across
                target += rows * apart

    return multiply


@exactly_compiled
def bytes_of_rounded_row(inputs):
    """Bytes of a row of so many numbers that `rounded.rotate_and_round_row` writes."""
    return -(-inputs // GROUP) * (ENTERED + WIDENED)


class BlockProductArguments(NamedTuple):
    """What all blocks of a product share, in numbers alone: a task is handed these, and no arrays.

    `rows` have entered the matrix, `inputs` numbers each. `x` is the address of what is multiplied, `row_stride_bytes` its bytes
    from row to row.
    A block has `width` of all `outputs`, and `bytes_per_block` bytes of weights. `weights` and `bias` are the first block's addresses;
    `bias` is 0 for a matrix without one. `product_loop_address` is that of the loop that multiplies.
    """

    product_loop_address: int
    weights: int
    bytes_per_block: int
    x: int
    row_stride_bytes: int
    rows: int
    inputs: int
    outputs: int
    width: int
    bias: int


@exactly_compiled_without_python_entry
def block_arguments_of(x, rounded_rows, matrix):
    """The `BlockProductArguments` of rows `x [N, in]` and a matrix. Into one in eight bits enters what they became, `rounded_rows`
    uint8 `[N, bytes_of_rounded_row(in)]`.
    """
    rows, inputs = x.shape
    outputs, width = matrix.shape[0], matrix.shape[2]
    source, across = np.int64(x.ctypes.data), 4 * inputs
    if matrix.shape[3] == ROUNDED:
        source, across = np.int64(rounded_rows.ctypes.data), rounded_rows.shape[1]
    return BlockProductArguments(
        np.int64(matrix.product_loop_address),
        np.int64(matrix.codes.ctypes.data),
        len(matrix.codes) // -(-outputs // width),
        source,
        across,
        rows,
        inputs,
        outputs,
        width,
        np.int64(matrix.bias.ctypes.data if len(matrix.bias) else 0),
    )


@exactly_compiled_without_python_entry
def multiply_block_and_add_bias(product, block_index, out, out_stride, spare):
    """Write the results of one block of a `BlockProductArguments`, plus its bias, from the address `out` on.

    Rows of results lie `out_stride` bytes apart. Fewer than a whole block are written at the matrix's end. They and those with a bias
    go by way of room at the address `spare`, `[N, BLOCK]` float32.
    """
    first = block_index * product.width
    here = min(product.width, product.outputs - first)
    straight = here == product.width and product.bias == 0
    target, between = (out, out_stride) if straight else (spare, np.int64(4 * BLOCK))
    multiply(
        product.product_loop_address,
        product.weights + block_index * product.bytes_per_block,
        product.x,
        product.row_stride_bytes,
        product.rows,
        product.inputs,
        target,
        between,
    )
    if straight:
        return
    for row in range(product.rows):
        source_row = carray(pointer_from_address(spare + row * between), (here,), np.float32)
        target_row = carray(pointer_from_address(out + row * out_stride), (here,), np.float32)
        if product.bias:
            bias = carray(pointer_from_address(product.bias + 4 * first), (here,), np.float32)
            for k in range(here):
                target_row[k] = source_row[k] + bias[k]
        else:
            for k in range(here):
                target_row[k] = source_row[k]


@exactly_compiled_without_python_entry
def recompute_likeliest_logits(logits, x, unrounded_head, bias):
    """Compute at least the `LIKELIEST` highest `logits [V]` of a row again, from `x [H]` and the `unrounded_head [V, H]`.

    So many spans have a logit that is not below the threshold. So the highest of all are not below it either.
    """
    spans, threshold = -(-len(logits) // SPAN), LOWEST
    highest = np.empty(spans, np.float32)
    for span in range(spans):
        highest[span] = max_of_row(logits[SPAN * span : SPAN * (span + 1)])
    if spans > LIKELIEST:
        threshold = np.partition(highest, spans - LIKELIEST)[spans - LIKELIEST]
    for span in range(spans):
        if highest[span] >= threshold:
            for token in range(SPAN * span, min(SPAN * (span + 1), len(logits))):
                if logits[token] >= threshold:
                    logits[token] = exact_dot(x, unrounded_head[token])
                    if len(bias) > 0:
                        logits[token] += bias[token]
