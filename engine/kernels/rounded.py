"""Products in eight bits: rows and matrices are rotated and rounded in groups of inputs. Knows matrices; knows no model.

A group of 64 inputs is rotated by a Hadamard matrix, in rows and matrices alike: products stay what they are, and a large number
spreads over its group (QuaRot, Ashkboos et al. 2024, arXiv 2404.00456, section 3). Then it is rounded to 127 steps of its largest
number. Sums of whole numbers are exact within a group. Groups are added in float32, in their order, so a row's bits depend on no
other row and on no thread. `engine.forward.rounded_linear` computes the very same numbers in PyTorch.
"""

import platform
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from llvmlite import binding, ir
from torch import Tensor

from engine.kernels.compiling import exactly_compiled_without_python_entry
from engine.kernels.intrinsics import (
    BYTE,
    LINE,
    REAL,
    WIDE,
    WORD,
    LlvmLoopBuilder,
    intrinsic_decorator_for,
    ir_constant_or_value,
    vector,
    void_signature_of_addresses,
)

FEATURES = binding.get_host_cpu_features()
ARM = platform.machine().lower() in ("arm64", "aarch64")
GROUP = 64  # inputs that are rotated together and share a scale
STEPS = 127  # a number is at most so many of its group's steps
LEAST = 1e-30  # a group whose numbers are smaller is rounded to zeros
PART = 2**20  # numbers of a matrix that are rounded at a time: more would need more memory beside it
WIDTH = 32  # outputs of a block
BLOCK_GROUP = GROUP * WIDTH + 2 * WIDTH  # bytes of a block's group: codes, and scales in bfloat16
ENTERED = GROUP + 8  # bytes of a row's group: codes, the step in float32, and what its whole sums begin with in int32
WIDENED = 2 * GROUP  # and behind all groups their codes in int16
# By how a processor adds up products of bytes: how many neighbouring inputs at a time, and what is added to a weight where it is stored
NEIGHBOURS, SHIFTS = {"vnni": 4, "dot": 4, "pairs": 2}, {"vnni": 128, "dot": 0, "pairs": 0}
WAYS = tuple(NEIGHBOURS)
VNNI = (FEATURES.get("avx512vnni") and WIDE) or FEATURES.get("avxvnni")
WAY = "vnni" if VNNI else "dot" if ARM and FEATURES.get("dotprod") else "pairs"
LANES = 16 if WIDE else 4 if ARM else 8
VECTORS = 4 if ARM else 2  # of a row's sums that are added up at a time
ROWS = 6 if WIDE or ARM else 4  # whose whole sums the registers hold
AHEAD = 4096  # bytes by which the weights of several tiles are asked for; the processor itself asks for what a single one reads


def hadamard_rotate_groups(x: Tensor) -> Tensor:
    """The rows `x [..., in]` float32, padded with zeros to whole groups, and every group rotated: `[..., groups, GROUP]`.

    It is a fast Walsh-Hadamard transform divided by sqrt(GROUP). It is its own inverse.
    """
    values, apart = torch.nn.functional.pad(x, (0, -x.shape[-1] % GROUP)), 1
    while apart < GROUP:
        left, right = values.unflatten(-1, (-1, 2, apart)).unbind(-2)
        values = torch.stack((left + right, left - right), -2).flatten(-3)
        apart *= 2
    return values.unflatten(-1, (-1, GROUP)) * GROUP**-0.5


def rotate_and_round_matrix(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes int8 `[out, groups * GROUP]` and scales `[out, groups]`, float32 that bfloat16 holds, of the rotated matrix `[out, in]`."""
    parts = []
    for part in matrix.detach().split(max(1, PART // matrix.shape[1])):
        groups = hadamard_rotate_groups(part.float())
        steps = groups.abs().amax(-1).clamp(min=LEAST) / STEPS
        scales = ((steps.view(torch.int32) + 0xFFFF) & -0x10000).view(torch.float32)  # rounded up, so that codes fit
        parts.append(((groups / scales[..., None]).round().to(torch.int8).flatten(-2), scales))
    codes, scales = map(torch.cat, zip(*parts, strict=True))
    return codes, scales


def lay_out_rounded_blocks(codes: Tensor, scales: Tensor, instruction_set: str = WAY) -> np.ndarray:
    """The bytes of what `rotate_and_round_matrix` made, by block of `WIDTH` outputs and group: `BLOCK_GROUP` bytes.

    Codes lie there as `[GROUP / neighbours, WIDTH, neighbours]`, shifted. Zeros fill the last block.
    """
    near, missing = NEIGHBOURS[instruction_set], -len(codes) % WIDTH
    codes, scales = (torch.nn.functional.pad(each, (0, 0, 0, missing)) for each in (codes, scales))
    tiled = codes.view(-1, WIDTH, scales.shape[1], GROUP // near, near).permute(0, 2, 3, 1, 4).flatten(2)
    beside = scales.view(-1, WIDTH, scales.shape[1]).transpose(1, 2).bfloat16().contiguous()
    shifted = (tiled.to(torch.int16) + SHIFTS[instruction_set]).to(torch.uint8)
    return torch.cat((shifted, beside.view(torch.uint8)), -1).flatten().numpy()


def emit_int8_product_accumulation(
    builder: LlvmLoopBuilder, instruction_set: str, total: ir.Value, weights: ir.Value, inputs: ir.Value
) -> ir.Value:
    """`total` int32 `[LANES]` plus the products of `weights` and `inputs` `[LANES * neighbours]`, so many neighbours a lane.

    Weights are bytes, without a sign where they are shifted. Ones are bytes, or int16 for "pairs". The processor's own instruction does
    it where it has one, and plain code the same elsewhere.
    """
    words, near = total.type, NEIGHBOURS[instruction_set]
    if instruction_set == WAY != "pairs":
        if instruction_set == "vnni":
            name, those = f"llvm.x86.avx512.vpdpbusd.{32 * words.count}", words
        else:
            name, those = "llvm.aarch64.neon.sdot.v4i32.v16i8", weights.type
        dot = builder.module.declare_intrinsic(name, (), ir.FunctionType(words, (words, those, those)))
        return builder.call(dot, [total, builder.bitcast(weights, those), builder.bitcast(inputs, those)])
    wide = vector(WORD, near * words.count)
    widened = builder.zext(weights, wide) if SHIFTS[instruction_set] else builder.sext(weights, wide)
    products = builder.mul(widened, builder.sext(inputs, wide))
    lanes = [ir.Constant(words, list(range(first, near * words.count, near))) for first in range(near)]
    sums = [builder.shuffle_vector(products, products, each) for each in lanes]
    while len(sums) > 1:
        sums = [builder.add(*sums[at : at + 2]) for at in range(0, len(sums), 2)]
    return builder.add(total, sums[0])


@intrinsic_decorator_for(void_signature_of_addresses(10), literal_argument_count=2)
def multiply_rounded_tile(
    builder, way, prefetches, rows, weights, column, prefetch_address, prefetch_stride, x, row_stride, groups, out,
    out_stride,
):  # fmt: skip
    """Write the products of so many rows, at most `ROWS`, with `VECTORS * LANES` neighbouring outputs of a block from `column` on.

    `way` is a constant, the place of a way in `WAYS`, and so is `prefetches`, 1 for one of several tiles. All behind `rows` are
    numbers, addresses, and distances in bytes: the block's weights and its first output, what is asked for meanwhile and how far some
    inputs move it, the rows that `rotate_and_round_row` wrote and from one to the next, the groups, and the results and from one row
    to the next.
    """
    way, near, words, reals = WAYS[way], NEIGHBOURS[WAYS[way]], vector(WORD, LANES), vector(REAL, LANES)
    packed, size, times = vector(BYTE, LANES * near), LANES * near, GROUP // near
    # What one instruction multiplies enters as it is: widening a row's codes for every block costs as much as the products
    wide, code_bytes = (2, WIDENED) if way == "pairs" else (1, ENTERED)
    one, spread = ir.IntType(8 * wide * near), vector(ir.IntType(8 * wide), LANES * near)

    first_code = builder.mul(groups, ir_constant_or_value(ENTERED if way == "pairs" else 0))

    def write(rows: int) -> None:
        def add_group(group, totals):
            first = builder.address_plus(weights, (group, BLOCK_GROUP))
            entered = [builder.address_plus(x, (row_stride, row), (group, ENTERED)) for row in range(rows)]
            codes = [builder.address_plus(x, first_code, (row_stride, row), (group, code_bytes)) for row in range(rows)]

            def body(k, sums):
                base = builder.address_plus(first, (column, near), (k, WIDTH * near))
                if prefetches:
                    builder.prefetch(builder.address_plus(base, AHEAD), VECTORS * size, 1)
                    inputs = builder.address_plus(k, (group, times))
                    builder.prefetch(builder.address_plus(prefetch_address, (inputs, prefetch_stride)), LINE, 2)
                those = [
                    builder.load_value(builder.address_plus(base, number * size), packed) for number in range(VECTORS)
                ]
                starts = [builder.address_plus(row, (k, wide * near)) for row in codes]
                ones = [
                    builder.bitcast(builder.broadcast_to_lanes(builder.load_value(start, one), LANES), spread)
                    for start in starts
                ]
                pairs = [(each, row) for row in ones for each in those]
                return [
                    emit_int8_product_accumulation(builder, way, total, *pair)
                    for total, pair in zip(sums, pairs, strict=True)
                ]

            begins = [
                builder.broadcast_to_lanes(builder.load_value(builder.address_plus(row, GROUP + 4), WORD), LANES)
                for row in entered
            ]
            firsts = [each for each in begins for _ in range(VECTORS)] if SHIFTS[way] else None
            steps_of_group = builder.hide_value_from_optimiser(ir_constant_or_value(times))
            sums = builder.accumulate_in_loop(words, rows * VECTORS, steps_of_group, body, firsts)
            scales = []
            for number in range(VECTORS):
                place = builder.address_plus(first, GROUP * WIDTH + 2 * LANES * number, (column, 2))
                halves = builder.zext(builder.load_value(place, vector(ir.IntType(16), LANES)), words)
                scales.append(builder.bitcast(builder.shl(halves, ir.Constant(words, [16] * LANES)), reals))
            steps = [
                builder.broadcast_to_lanes(builder.load_value(builder.address_plus(row, GROUP), REAL), LANES)
                for row in entered
            ]
            factors = [builder.fmul(scale, step) for step in steps for scale in scales]
            return [
                builder.fadd(total, builder.fmul(builder.sitofp(whole, reals), factor))
                for total, whole, factor in zip(totals, sums, factors, strict=True)
            ]

        for number, value in enumerate(builder.accumulate_in_loop(reals, rows * VECTORS, groups, add_group)):
            row, vectors = divmod(number, VECTORS)
            builder.store_value(value, builder.address_plus(out, (out_stride, row), 4 * LANES * vectors))

    builder.switch_over_cases(rows, range(ROWS // 2 if prefetches else 1, ROWS + 1), write)


@cache
def make_rounded_block_multiplier(instruction_set_index: int) -> Callable:
    """A loop that writes the products of all rows with one block, at most `ROWS` at a time. It takes what `stored.MULTIPLY` says.

    The first of several tiles would wait for the block's weights. So each of them asks for its share of the next block.
    """
    step, along = VECTORS * LANES, WIDTH * NEIGHBOURS[WAYS[instruction_set_index]]

    @exactly_compiled_without_python_entry
    def multiply(weights, x, across, count, inputs, out, apart):
        groups, tiles = -(-inputs // GROUP), -(-count // ROWS)
        for column in range(0, WIDTH, step):
            if tiles == 1:
                target = out + 4 * column
                multiply_rounded_tile(
                    instruction_set_index, 0, count, weights, column, 0, 0, x, across, groups, target, apart
                )
                continue
            done, following, pace = 0, weights + groups * BLOCK_GROUP, along // tiles
            while done < count:
                left = count - done
                rows = -(-left // -(-left // ROWS))  # tiles of nearly the same height
                source, target = x + done * across, out + 4 * column + done * apart
                multiply_rounded_tile(
                    instruction_set_index,
                    1,
                    rows,
                    weights,
                    column,
                    following,
                    pace,
                    source,
                    across,
                    groups,
                    target,
                    apart,
                )
                done += rows
                following += groups * (BLOCK_GROUP // along) * pace

    return multiply


@intrinsic_decorator_for(void_signature_of_addresses(3))
def rotate_and_round_group(builder, x, out, widened_out):
    """Rotate and round `GROUP` float32 at the address `x`. They become `ENTERED` bytes at `out`, and `WIDENED` behind them at
    `widened_out`.
    """
    reals, words = vector(REAL, GROUP), vector(WORD, GROUP)

    def every(number: float) -> ir.Value:
        return ir.Constant(reals, [number] * GROUP)

    def call(name: str, result: ir.Type, value: ir.Value, flags: tuple[str, ...] = ()) -> ir.Value:
        kind = f"v{GROUP}{'f' if value.type == reals else 'i'}32"
        function = builder.module.declare_intrinsic(f"llvm.{name}.{kind}", (), ir.FunctionType(result, (value.type,)))
        return builder.call(function, [value], fastmath=flags)

    values, apart = builder.load_value(x, reals), 1
    while apart < GROUP:
        others = builder.shuffle_vector(values, values, ir.Constant(words, [lane ^ apart for lane in range(GROUP)]))
        signs = ir.Constant(reals, [-1.0 if lane & apart else 1.0 for lane in range(GROUP)])
        values, apart = builder.fadd(others, builder.fmul(values, signs)), 2 * apart
    values = builder.fmul(values, every(GROUP**-0.5))
    most = call("vector.reduce.fmax", REAL, call("fabs", reals, values), ("nnan",))
    enough = builder.fcmp_ordered(">", most, ir.Constant(REAL, np.float32(LEAST)))
    factor = builder.select(enough, builder.fdiv(ir.Constant(REAL, STEPS), most), ir.Constant(REAL, 0))
    whole = builder.fptosi(call("rint", reals, builder.fmul(values, builder.broadcast_to_lanes(factor, GROUP))), words)
    builder.store_value(builder.trunc(whole, vector(BYTE, GROUP)), out)
    builder.store_value(builder.trunc(whole, vector(ir.IntType(16), GROUP)), widened_out)
    builder.store_value(builder.fdiv(most, ir.Constant(REAL, STEPS)), builder.address_plus(out, GROUP))
    builder.store_value(
        builder.mul(call("vector.reduce.add", WORD, whole), ir.Constant(WORD, -SHIFTS["vnni"])),
        builder.address_plus(out, GROUP + 4),
    )


@exactly_compiled_without_python_entry
def rotate_and_round_row(x, rounded_row, first_group, group_workspace):
    """Write the numbers `x [n]` in groups, from group `first_group` on, into `rounded_row` uint8, `ENTERED + WIDENED` bytes for each of
    the whole row's groups. `group_workspace [GROUP]` is room for one that is not full.
    """
    whole, source = len(x) // GROUP, np.int64(x.ctypes.data)
    target = np.int64(rounded_row.ctypes.data) + ENTERED * first_group
    widened = (
        np.int64(rounded_row.ctypes.data) + len(rounded_row) // (ENTERED + WIDENED) * ENTERED + WIDENED * first_group
    )
    for group in range(whole):
        rotate_and_round_group(source + 4 * GROUP * group, target + ENTERED * group, widened + WIDENED * group)
    if GROUP * whole < len(x):
        for k in range(GROUP):
            group_workspace[k] = x[GROUP * whole + k] if GROUP * whole + k < len(x) else np.float32(0)
        rotate_and_round_group(
            np.int64(group_workspace.ctypes.data), target + ENTERED * whole, widened + WIDENED * whole
        )
