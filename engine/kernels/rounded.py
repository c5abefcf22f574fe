"""Products in eight bits: rows and weights are rounded to whole numbers, and sums of whole numbers are exact in any order.

It is LLM.int8 without columns of outliers (Dettmers et al. 2022, section 3), as bitsandbytes computes it. A row is rounded on its
own, by way of float16, to 127 steps of its largest number. So its bits depend on no other row and on no thread.
"""

import platform
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from llvmlite import binding, ir
from numba import types
from torch import Tensor

from engine.kernels.compiling import exactly_within, within
from engine.kernels.elementwise import LOWEST
from engine.kernels.intrinsics import AHEAD, BYTE, LINE, REAL, WIDE, WORD, Builder, addresses, larger, vector, written

FEATURES = binding.get_host_cpu_features()
ARM = platform.machine().lower() in ("arm64", "aarch64")
STEPS = 127  # a number is at most so many of its row's steps
RESTORED = np.float32(6.200124e-05)  # 1 / 127 / 127, as bitsandbytes writes it
WIDTH = 32  # outputs of a block
# By how a processor adds up products of bytes: how many neighbouring inputs at a time, and what is added to a weight where it is stored
GROUPS, SHIFTS = {"vnni": 4, "dot": 4, "pairs": 2}, {"vnni": 128, "dot": 0, "pairs": 0}
WAYS, MOST_IN_A_GROUP = tuple(GROUPS), max(GROUPS.values())
VNNI = (FEATURES.get("avx512vnni") and WIDE) or FEATURES.get("avxvnni")
WAY = "vnni" if VNNI else "dot" if ARM and FEATURES.get("dotprod") else "pairs"
LANES = 16 if WIDE else 4 if ARM else 8
VECTORS = 4 if ARM else 2  # of a row's sums that are added up at a time
ROWS = 12 if WIDE else 6 if ARM else 4  # whose sums the registers hold


def rounded_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes int8 `[out, in]` and scales float32 `[out]` of a matrix, by way of float16: what bitsandbytes makes of it."""
    half = matrix.detach().half().float()
    scales = half.abs().amax(1)
    return (half * (STEPS / scales.clamp(min=1e-30)[:, None])).round().to(torch.int8), scales


def laid_out(codes: Tensor, way: str = WAY) -> np.ndarray:
    """The bytes of codes `[out, in]` as `[blocks, inputs / group, WIDTH, group]`, padded with zeros and shifted."""
    group, (outputs, inputs) = GROUPS[way], codes.shape
    padded = torch.nn.functional.pad(codes, (0, -inputs % group, 0, -outputs % WIDTH))
    tiled = padded.view(-1, WIDTH, padded.shape[1] // group, group).transpose(1, 2).contiguous()
    return (tiled.to(torch.int16) + SHIFTS[way]).to(torch.uint8).flatten().numpy()


def added_products(code: Builder, way: str, total: ir.Value, weights: ir.Value, ones: ir.Value) -> ir.Value:
    """`total` int32 `[LANES]` plus the products of `weights` and `ones`, int8 `[LANES * group]`, a group a lane."""
    words = total.type
    if way == "pairs":
        wide, lanes = vector(WORD, 2 * words.count), range(0, 2 * words.count, 2)
        products = code.mul(code.sext(weights, wide), code.sext(ones, wide))
        evens, odds = (ir.Constant(words, [first + lane for lane in lanes]) for first in (0, 1))
        sides = [code.shuffle_vector(products, products, each) for each in (evens, odds)]
        return code.add(total, code.add(*sides))
    if way == "vnni":
        name, those = f"llvm.x86.avx512.vpdpbusd.{32 * words.count}", words
    else:
        name, those = "llvm.aarch64.neon.sdot.v4i32.v16i8", weights.type
    dot = code.module.declare_intrinsic(name, (), ir.FunctionType(words, (words, those, those)))
    return code.call(dot, [total, code.bitcast(weights, those), code.bitcast(ones, those)])


@written(addresses(13), constants=1)
def tile(code, way, rows, weights, along, following, pace, x, across, groups, out, apart, scales, mosts, sums):
    """Write the products of so many rows, at most `ROWS`, with `VECTORS * LANES` neighbouring outputs of a block.

    `way` is a constant, the place of a way in `WAYS`. All behind `rows` are numbers, addresses, and distances in bytes: the weights
    and from one group of inputs to the next, what is asked for meanwhile and how far a group moves it, the rows' codes and from one
    to the next, the groups, the results and from one row to the next, the outputs' scales, and the rows' largest numbers and sums.
    """
    way, group, words, reals = WAYS[way], GROUPS[WAYS[way]], vector(WORD, LANES), vector(REAL, LANES)
    packed, one, size = vector(BYTE, LANES * group), ir.IntType(8 * group), LANES * group
    restored, shift = ir.Constant(reals, [RESTORED] * LANES), ir.Constant(WORD, SHIFTS[way])

    def write(rows: int) -> None:
        def body(k, totals):
            base = code.place(weights, (k, along))
            code.ask_for(code.place(base, AHEAD), VECTORS * size, 1)
            code.ask_for(code.place(following, (k, pace)), LINE, 2)
            those = [code.loaded(code.place(base, number * size), packed) for number in range(VECTORS)]
            ones = [
                code.bitcast(code.spread(code.loaded(code.place(x, (across, row), (k, group)), one), LANES), packed)
                for row in range(rows)
            ]
            pairs = [(each, row) for row in ones for each in those]
            return [added_products(code, way, total, *pair) for total, pair in zip(totals, pairs, strict=True)]

        for number, value in enumerate(code.added_up(words, rows * VECTORS, groups, body)):
            row, column = divmod(number, VECTORS)
            more = code.mul(code.loaded(code.place(sums, 4 * row), WORD), shift)
            whole = code.sitofp(code.sub(value, code.spread(more, LANES)), reals)
            most = code.spread(code.loaded(code.place(mosts, 4 * row), REAL), LANES)
            scale = code.loaded(code.place(scales, 4 * LANES * column), reals)
            real = code.fmul(code.fmul(whole, code.fmul(most, scale)), restored)
            code.put_down(real, code.place(out, (apart, row), 4 * LANES * column))

    code.switched(rows, range(1, ROWS + 1), write)


@cache
def multiplying_rounded(way: int) -> Callable:
    """A loop that writes the products of all rows with one block, at most `ROWS` at a time. It takes what `stored.MULTIPLY` says.

    The first tile waits for the block's weights. So each of several tiles asks for its share of the next block.
    """
    group, step = GROUPS[WAYS[way]], VECTORS * LANES
    along = WIDTH * group

    @exactly_within
    def multiply(weights, x, across, count, inputs, out, apart, scales, mosts, sums):
        groups, tiles = -(-inputs // group), -(-count // ROWS)
        pace = along // tiles if tiles > 1 else 0
        for column in range(0, WIDTH, step):
            those, scale, done, following = weights + column * group, scales + 4 * column, 0, weights
            if tiles > 1:
                following += groups * along
            while done < count:
                left = count - done
                rows = -(-left // -(-left // ROWS))  # tiles of nearly the same height
                source, target = x + done * across, out + 4 * column + done * apart
                most, total = mosts + 4 * done, sums + 4 * done
                tile(
                    way, rows, those, along, following, pace, source, across, groups, target, apart, scale, most, total
                )
                done += rows
                following += groups * pace

    return multiply


@written(types.float32(types.float32))
def by_way_of_half(code, x):
    """The float32 nearest to `x` that float16 holds."""
    return code.fpext(code.fptrunc(x, ir.HalfType()), REAL)


@within
def most_of_row(x):
    """The largest absolute number of a row, by way of float16, which keeps the order of numbers."""
    most = LOWEST
    for k in range(len(x)):
        most = larger(most, abs(x[k]))
    return by_way_of_half(most)


@exactly_within
def round_row(x, codes):
    """Write the row `x [in]` as whole numbers into `codes` int8, with zeros behind them up to a whole group of inputs.

    Returns what a step is a 127th of, and the sum of the codes. Numbers beyond float16 make no sense of a row.
    """
    most, total = most_of_row(x), np.int32(0)
    # bitsandbytes rounds the reciprocal first
    factor = np.float32(1) / most * np.float32(STEPS) if most > 0 else np.float32(0)
    for k in range(len(x)):
        code = np.int32(np.rint(by_way_of_half(x[k]) * factor))
        codes[k], total = np.int8(code), np.int32(total + code)
    for k in range(len(x), len(x) + -len(x) % MOST_IN_A_GROUP):
        codes[k] = np.int8(0)
    return most, total
