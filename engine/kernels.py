"""Kernels: what a small drafter computes for a few rows, as loops that numba compiles. Knows arrays; knows no model and no tree.

A level of a small drafter is so little arithmetic that calling its dozens of tensor operations takes longer than they do; one call of
a compiled loop has no such cost. One thread, eight-bit weights, inputs in sixteen bits, float32 between the products: for drafters
only, whose precision costs acceptance and never losslessness. Compiled at first use and kept on disk.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

OUTPUTS = 32  # of a product that are summed at a time, two vectors of sixteen
LOWEST = np.float32(-3e38)
# Sums may be reordered; infinities stay what they are.
FAST = {"nnan", "nsz", "reassoc", "contract", "arcp", "afn"}


def compiled(function: Callable) -> Callable:
    """The function compiled for the types it is called with, without the interpreter's lock."""
    return njit(function, cache=True, nogil=True, fastmath=FAST, error_model="numpy")


class Rounded(NamedTuple):
    """A matrix `[out, in]` in eight bits, scaled by row: `weight` int8 `[out / 32, in / 2, 32, 2]`, both sizes rounded up, and `scale`
    `[out]`, rounded up likewise."""

    weight: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, matrix: torch.Tensor) -> "Rounded":
        outputs, inputs = matrix.shape
        matrix = torch.nn.functional.pad(matrix.detach().float(), (0, inputs % 2, 0, -outputs % OUTPUTS))
        scale = matrix.abs().amax(1).clamp(min=1e-30) / 127
        tiled = (matrix / scale[:, None]).round().to(torch.int8).view(len(matrix) // OUTPUTS, OUTPUTS, -1, 2)
        return cls(tiled.transpose(1, 2).contiguous().numpy(), scale.numpy())


class LayerWeights(NamedTuple):
    """A Llama layer behind its query/key/value product, the second norm's weight folded into `gate_up`."""

    out: Rounded
    gate_up: Rounded
    down: Rounded


def summing(rows: int) -> Callable:
    """An intrinsic that sums products over pairs of inputs for so many rows and `OUTPUTS` outputs: arguments are the addresses of the
    weights, of the first row (int16), the bytes from row to row, the number of pairs, and the address of the sums (int32)."""
    wide, words, pairs_of = (ir.VectorType(ir.IntType(bits), count) for bits, count in ((32, 16), (32, 32), (16, 32)))
    undefined, zeros = ir.Constant(wide, ir.Undefined), ir.Constant(wide, [0] * 16)
    evens, odds = (ir.Constant(wide, list(range(first, 32, 2))) for first in (0, 1))
    byte, long = ir.IntType(8), ir.IntType(64)

    def build(context, code, signature, arguments):
        weights, first, stride, count, sums = arguments

        def at(address, offset, kind):
            return code.inttoptr(code.add(address, offset), kind.as_pointer())

        def times(value, factor):
            return code.mul(value, ir.Constant(long, factor))

        before, loop, after = code.block, code.append_basic_block(), code.append_basic_block()
        code.branch(loop)
        code.position_at_end(loop)
        pair, totals = code.phi(long), [code.phi(wide) for _ in range(2 * rows)]
        halves = [
            code.sext(
                code.load(
                    at(
                        weights,
                        times(pair, 64) if half == 0 else code.add(times(pair, 64), ir.Constant(long, 32)),
                        ir.VectorType(byte, 32),
                    ),
                    align=1,
                ),
                words,
            )
            for half in (0, 1)
        ]
        added = []
        for row in range(rows):
            two = code.load(at(first, code.add(times(stride, row), times(pair, 4)), ir.IntType(32)), align=1)
            spread = code.shuffle_vector(
                code.insert_element(undefined, two, ir.Constant(ir.IntType(32), 0)), undefined, zeros
            )
            inputs = code.sext(code.bitcast(spread, pairs_of), words)
            for half in halves:  # sign-extended products of neighbours, added: processors have one instruction for that
                products = code.mul(half, inputs)
                sums_of_two = code.add(
                    code.shuffle_vector(products, products, evens), code.shuffle_vector(products, products, odds)
                )
                added.append(code.add(totals[len(added)], sums_of_two))
        following = code.add(pair, ir.Constant(long, 1))
        for phi, start, value in (
            (pair, ir.Constant(long, 0), following),
            *((t, zeros, a) for t, a in zip(totals, added, strict=True)),
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(value, loop)
        code.cbranch(code.icmp_signed("<", following, count), loop, after)
        code.position_at_end(after)
        for index, value in enumerate(added):
            code.store(value, at(sums, ir.Constant(long, 64 * index), wide), align=1)
        return context.get_dummy_value()

    @intrinsic
    def sums_of(typing, weights, first, stride, count, sums):
        return types.void(*[types.intp] * 5), build

    return sums_of


one_row, two_rows, four_rows, eight_rows = summing(1), summing(2), summing(4), summing(8)


@intrinsic
def larger(typing, a, b):
    """The larger of two float32, in a form that compilers put side by side; `max` is not."""

    def build(context, code, signature, arguments):
        flags = ("nnan", "nsz")
        return code.select(code.fcmp_ordered(">", *arguments, flags=flags), *arguments, flags=flags)

    return types.float32(types.float32, types.float32), build


@compiled
def product(x, matrix, out):
    """Into `out [N, out]` the product of `x [N, in]` and a transposed `Rounded`."""
    count, size = x.shape
    weight, scale = matrix
    pairs = weight.shape[1]
    limit = np.float32(min(32766, 2**31 // (254 * pairs) - 1))  # no sum leaves 32 bits
    # A row more than there are, for three rows take longer than four.
    inputs, sums = np.zeros((count + 1, 2 * pairs), np.int16), np.empty((count + 1, OUTPUTS), np.int32)
    steps = np.empty(count, np.float32)
    for row in range(count):
        most = np.float32(1e-30)
        for k in range(size):
            most = larger(most, abs(x[row, k]))
        steps[row] = most / limit
        for k in range(size):
            inputs[row, k] = np.int16(np.floor(x[row, k] * (limit / most) + np.float32(0.5)))
    for block in range(len(weight)):
        weights, row = weight.ctypes.data + block * pairs * 64, 0
        while row < count:
            source, stride, target = inputs.ctypes.data + row * 4 * pairs, 4 * pairs, sums.ctypes.data + row * 128
            if count - row >= 8:
                eight_rows(weights, source, stride, pairs, target)
                row += 8
            elif count - row >= 3:
                four_rows(weights, source, stride, pairs, target)
                row += 4
            elif count - row == 2:
                two_rows(weights, source, stride, pairs, target)
                row += 2
            else:
                one_row(weights, source, stride, pairs, target)
                row += 1
        scales = scale[block * OUTPUTS : (block + 1) * OUTPUTS]
        for row in range(count):
            some = out[row, block * OUTPUTS : (block + 1) * OUTPUTS]
            for j in range(len(some)):
                some[j] = np.float32(sums[row, j]) * scales[j] * steps[row]


@intrinsic
def as_float(typing, bits):
    """The float32 of these 32 bits."""

    def build(context, code, signature, arguments):
        return code.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), build


@compiled
def exp(x):
    """e^x to six digits, between e^-87 and e^88, in operations that compilers put side by side."""
    power = min(max(x, np.float32(-87)), np.float32(88)) * np.float32(1.4426950409)
    whole = np.floor(power + np.float32(0.5))
    part = (power - whole) * np.float32(0.6931471806)
    series = np.float32(1 / 120) + part * np.float32(1 / 720)
    series = np.float32(1 / 6) + part * (np.float32(1 / 24) + part * series)
    series = np.float32(1) + part * (np.float32(1) + part * (np.float32(0.5) + part * series))
    return series * as_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))


@compiled
def unit_rows(x, least, out):
    """Into `out` the rows of `x [N, n]` over their lengths, which `least` keeps from zero."""
    for row in range(len(x)):
        total = least * least
        for k in range(x.shape[1]):
            total += x[row, k] * x[row, k]
        factor = np.float32(1) / np.sqrt(total)
        for k in range(x.shape[1]):
            out[row, k] = x[row, k] * factor


@compiled
def turn(rows, heads, turns, positions):
    """Rotate the first `heads` heads of `rows [N, n]` by the angles of their positions: `turns [places, 2, head_dim / 2]`, cosines and
    sines."""
    half = turns.shape[2]
    for row in range(len(rows)):
        cos, sin = turns[positions[row]]
        for head in range(heads):
            first = 2 * half * head
            for i in range(half):
                a, b = rows[row, first + i], rows[row, first + half + i]
                rows[row, first + i] = a * cos[i] - b * sin[i]
                rows[row, first + half + i] = b * cos[i] + a * sin[i]


@compiled
def attend(queries, kv, visible, start, end, out):
    """Into `out [N, heads * head_dim]` the attention of `queries [N, >= heads * head_dim]` over the rows from `start` to `end` of
    `kv [2, kv_heads, capacity, head_dim]`. `visible [N, M]` says which of the last M rows a query sees; it sees all before them."""
    kv_heads, size = kv.shape[1], kv.shape[3]
    groups = out.shape[1] // size // kv_heads
    scores, one, mixed = np.empty(end - start, np.float32), np.empty(size, np.float32), np.empty(size, np.float32)
    factor, seen_by_all = np.float32(1 / np.sqrt(size)), end - start - visible.shape[1]
    for head in range(kv_heads * groups):
        keys, values = kv[0, head // groups, start:end], kv[1, head // groups, start:end]
        for row in range(len(out)):
            for i in range(size):
                one[i] = queries[row, head * size + i] * factor
                mixed[i] = 0
            most = LOWEST
            for j in range(len(keys)):
                score = np.float32(0)
                for i in range(size):
                    score += one[i] * keys[j, i]
                if j >= seen_by_all and not visible[row, j - seen_by_all]:
                    score = LOWEST
                scores[j] = score
                most = larger(most, score)
            total = np.float32(0)
            for j in range(len(keys)):
                scores[j] = exp(scores[j] - most)
                total += scores[j]
            for j in range(len(keys)):
                weight = scores[j] / total
                for i in range(size):
                    mixed[i] += weight * values[j, i]
            for i in range(size):
                out[row, head * size + i] = mixed[i]


@compiled
def layer(x, qkv, kv, visible, start, rows, weights, least):
    """The residual stream `[n, H]` behind a layer, for the last n entries, as many as `visible` has rows: from `x [N, H]` before it and
    `qkv [N, (heads + 2 kv_heads) * head_dim]` of all N, queries and keys rotated already. The keys and values of all N are written
    behind the first `rows` rows of `kv`."""
    kv_heads, size = kv.shape[1], kv.shape[3]
    width = qkv.shape[1] - 2 * kv_heads * size
    for row in range(len(qkv)):
        for head in range(kv_heads):
            for i in range(size):
                kv[0, head, rows + row, i] = qkv[row, width + head * size + i]
                kv[1, head, rows + row, i] = qkv[row, width + (kv_heads + head) * size + i]
    count, hidden = len(visible), x.shape[1]
    first, inner = len(x) - count, weights.down.weight.shape[1] * 2
    attended, stream = np.empty((count, width), np.float32), np.empty((count, hidden), np.float32)
    attend(qkv[first:], kv, visible, start, rows + len(x), attended)
    product(attended, weights.out, stream)
    stream += x[first:]
    normed, gate_up = np.empty((count, hidden), np.float32), np.empty((count, 2 * inner), np.float32)
    unit_rows(stream, least, normed)
    product(normed, weights.gate_up, gate_up)
    gated = np.empty((count, inner), np.float32)
    for row in range(count):
        for k in range(inner):
            gate = gate_up[row, k]
            gated[row, k] = gate / (np.float32(1) + exp(-gate)) * gate_up[row, inner + k]
    product(gated, weights.down, normed)
    stream += normed
    return stream


@compiled
def log_softmax(rows):
    """In place, row by row of `rows [N, n]`."""
    for row in range(len(rows)):
        most, total = LOWEST, np.float32(0)
        for k in range(rows.shape[1]):
            most = larger(most, rows[row, k])
        for k in range(rows.shape[1]):
            total += exp(rows[row, k] - most)
        most += np.log(total)
        for k in range(rows.shape[1]):
            rows[row, k] -= most
