"""Eight-bit products of a few rows, for drafts: rounding costs acceptance and never losslessness. Knows matrices; knows no model."""

from typing import NamedTuple

import numpy as np
import torch
from numba import types
from torch import Tensor

from engine.kernels.by_address import compile_and_get_address, make_call_by_address
from engine.kernels.compiling import compiled_assuming_no_nan, compiled_no_nan_without_python_entry
from engine.kernels.intrinsics import larger_float, write_int8_product_sums
from engine.kernels.named_arrays import Int8Codes, LoopAddress, Matrix, Vector, numba_type_of

OUTPUTS = 32  # outputs that are summed at a time, as two vectors of sixteen


class EightBitMatrix(NamedTuple):
    """A matrix `[out, in]` in eight bits, with one scale a row. `product_loop_address` is that of `multiply_eight_bit_loop`.

    `weight` is int8 `[out / 32, in / 2, 32, 2]`, both rounded up, and `scale [out]` is padded to whole blocks of 32.
    """

    weight: Int8Codes
    scale: Vector
    product_loop_address: LoopAddress

    @classmethod
    def quantise(cls, matrix: Tensor) -> "EightBitMatrix":
        outputs, inputs = matrix.shape
        matrix = torch.nn.functional.pad(matrix.detach().float(), (0, inputs % 2, 0, -outputs % OUTPUTS))
        scale = matrix.abs().amax(1).clamp(min=1e-30) / 127
        tiled = (matrix / scale[:, None]).round().to(torch.int8).view(len(matrix) // OUTPUTS, OUTPUTS, -1, 2)
        return cls(
            tiled.transpose(1, 2).contiguous().numpy(),
            scale.numpy(),
            compile_and_get_address(multiply_eight_bit_loop, PRODUCT),
        )


PRODUCT = types.void(*map(numba_type_of, (Matrix, EightBitMatrix, Matrix)))
call = make_call_by_address(PRODUCT)


@compiled_assuming_no_nan
def multiply_eight_bit(x, matrix, out):
    """Write the product of `x [N, in]` and a transposed `EightBitMatrix` into `out [N, out]`."""
    call(matrix.product_loop_address, x, matrix, out)


@compiled_no_nan_without_python_entry
def multiply_eight_bit_loop(x, matrix, out):
    """`multiply_eight_bit`, which every loop calls by its address."""
    count, size = x.shape
    weight, scale = matrix.weight, matrix.scale
    pairs = weight.shape[1]
    limit = np.float32(min(32766, 2**31 // (254 * pairs) - 1))  # no sum leaves 32 bits
    # There is one row to spare, because three rows are computed as four: that is faster.
    inputs, sums = np.zeros((count + 1, 2 * pairs), np.int16), np.empty((count + 1, OUTPUTS), np.int32)
    steps = np.empty(count, np.float32)
    for row in range(count):
        most = np.float32(1e-30)
        for k in range(size):
            most = larger_float(most, abs(x[row, k]))
        steps[row] = most / limit
        for k in range(size):
            inputs[row, k] = np.int16(np.floor(x[row, k] * (limit / most) + np.float32(0.5)))
    for block in range(len(weight)):
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
