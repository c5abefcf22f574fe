"""Products in eight bits: the very numbers of bitsandbytes, in every way of multiplying bytes that this processor can run."""

import bitsandbytes.functional as reference
import numpy as np
import pytest
import torch

from engine.kernels import rounded
from engine.kernels.by_address import address_of
from engine.kernels.compiling import exactly_compiled
from engine.kernels.named_arrays import NamedArrays, unpacked
from engine.kernels.stored import BLOCK, MULTIPLY, Entering, Stored, block_product, enter_product

RUNNABLE = ["pairs", *({rounded.WAY} - {"pairs"})]


@exactly_compiled
def product(table, x, out, codes, mosts, sums, spare):
    matrix, entering = unpacked(Stored, table, np.int64(0)), Entering(codes, mosts, sums)
    made, target, apart = enter_product(x, matrix, entering), np.int64(out.ctypes.data), np.int64(4 * out.shape[1])
    for block in range(-(-made.outputs // made.width)):
        block_product(made, block, target + 4 * block * made.width, apart, np.int64(spare.ctypes.data))


def multiplied(matrix: Stored, x: torch.Tensor) -> torch.Tensor:
    rows, inputs = x.shape
    out = np.empty((rows, int(matrix.shape[0])), np.float32)
    spaces = np.empty((rows, inputs + 8), np.int8), np.empty(rows, np.float32), np.empty(rows, np.int32)
    product(NamedArrays(matrix).table, x.numpy(), out, *spaces, np.empty((rows, BLOCK), np.float32))
    return torch.from_numpy(out)


@pytest.mark.parametrize("way", RUNNABLE)
@pytest.mark.parametrize(("outputs", "inputs"), [(64, 64), (100, 34), (33, 700), (640, 3072)])
def test_products_are_those_of_bitsandbytes_to_the_last_bit(outputs, inputs, way):
    """Any number of rows, one of them zeros, one beyond the others by far."""
    generator = torch.Generator().manual_seed(inputs)
    matrix, bias = (torch.randn(*shape, generator=generator) for shape in ((outputs, inputs), (outputs,)))
    codes, scale = rounded.rounded_rows(matrix)
    expected_codes, expected_scale, _ = reference.int8_vectorwise_quant(matrix.half())
    assert torch.equal(codes, expected_codes) and torch.equal(scale, expected_scale)
    stored = Stored.in_eight_bits(codes, scale, bias)._replace(
        codes=rounded.laid_out(codes, way),
        loop=address_of(rounded.multiplying_rounded(rounded.WAYS.index(way)), MULTIPLY),
    )
    for rows in (*range(1, rounded.ROWS + 3), 2 * rounded.ROWS + 1):
        x = torch.randn(rows, inputs, generator=generator) * 3
        x[rows // 2] *= 1000
        found = multiplied(stored, x)
        whole, most, _ = reference.int8_vectorwise_quant(x.half())
        wanted = torch.ops.bitsandbytes.int8_scaled_mm.default(
            whole, codes, most, scale, bias=bias, dtype=torch.float32
        )
        assert torch.equal(found, wanted)
        x[0] = 0
        assert torch.equal(multiplied(stored, x)[0], bias)
        assert torch.equal(multiplied(stored, x)[1:], found[1:])
