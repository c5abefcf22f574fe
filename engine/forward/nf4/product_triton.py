"""`engine.forward.nf4.product` in one Triton kernel; held equal by tests/forward/test_four_bit.py.

A program computes `COLUMNS` outputs of all rows and walks along the inputs, so packed weights are read once however many rows there
are. bitsandbytes 0.50 has a kernel for four rows and, on large GPUs, widens all weights for more. Sums are added up in float32 and in
one order for up to `FEW` rows, so that a tree of so many nodes has the bits of plain decoding; more rows have an order of their own.
"""

import triton
import triton.language as tl
from torch import Tensor

from engine.forward.nf4.product import BLOCK, MOST

FEW = 16  # rows that are added up alike
COLUMNS, STEP = 32, 128  # outputs of a program, and inputs that it reads at a time: whole blocks


@triton.jit
def multiply_nf4_kernel(
    x, packed, factors, values, out, count, outputs, inputs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    pairs = tl.arange(0, STEP // 2)
    there, inside = rows[:, None] < count, columns[:, None] < outputs
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, inputs, STEP):
        even = start + 2 * pairs[None, :]
        known = even < inputs
        first = tl.load(x + rows[:, None] * inputs + even, there & known, 0.0)
        second = tl.load(x + rows[:, None] * inputs + even + 1, there & known, 0.0)
        place = columns[:, None].to(tl.int64) * inputs + even
        both = tl.load(packed + place // 2, inside & known, 0).to(tl.int32)
        factor = tl.load(factors + place // BLOCK, inside & known, 0.0)
        high = (tl.load(values + (both >> 4)) * factor).to(first.dtype)
        low = (tl.load(values + (both & 15)) * factor).to(first.dtype)
        total = tl.dot(first, tl.trans(high), total, input_precision="ieee")
        total = tl.dot(second, tl.trans(low), total, input_precision="ieee")
    kept = there & (columns[None, :] < outputs)
    tl.store(out + rows[:, None] * outputs + columns[None, :], total.to(out.dtype.element_ty), kept)


def multiply_nf4(x: Tensor, packed: Tensor, factors: Tensor, values: Tensor, outputs: int) -> Tensor:
    """As `engine.forward.nf4.product.multiply_nf4`, for up to `MOST` rows. `values [16]` float32 are `VALUES` on the device.

    Raises `ValueError` for more rows, and for blocks across two outputs.
    """
    count, inputs = x.shape
    if count > MOST or inputs % BLOCK:
        raise ValueError(
            f"This takes {MOST} rows and inputs in multiples of {BLOCK}, got {count} rows of {inputs} inputs."
        )
    out, rows = x.new_empty(count, outputs), FEW if count <= FEW else MOST
    grid = (triton.cdiv(outputs, COLUMNS),)
    multiply_nf4_kernel[grid](x, packed, factors, values, out, count, outputs, inputs, rows, COLUMNS, STEP, BLOCK)
    return out
