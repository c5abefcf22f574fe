"""Kernels: what models compute for a few rows, as loops that numba compiles. Knows arrays; knows no model and no tree.

Few rows are so little arithmetic that calling dozens of tensor operations takes longer than they do; one call of a compiled loop has no
such cost. One thread. Drafters run in them whole, with eight-bit weights and inputs in sixteen (`product`), which costs acceptance and
never losslessness; targets take what stands between their products from here, all of it in float32. Compiled at first use and kept on
disk.
"""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import torch
from numba import njit

from engine.vectors import as_float, blending, larger, summing

TOGETHER = 8  # queries that meet a key at a time
OUTPUTS = 32  # of a product that are summed at a time, two vectors of sixteen
LOWEST = np.float32(-3e38)
# Sums may be reordered; infinities stay what they are.
FAST = {"nnan", "nsz", "reassoc", "contract", "arcp", "afn"}


def folder_for(package: Path, parent: Path) -> Path:
    """Where to keep the compiled code of a package: another folder in `parent` whenever a file that has such code changes, for numba
    looks at a function's own file alone and not at those of the functions it calls. Folders of earlier code are removed."""
    sources = [path.read_bytes() for path in sorted(package.rglob("*.py"))]
    marks = b"@compiled", b"@exactly_compiled", b"@intrinsic", b"@overload"
    digest = hashlib.blake2b(b"".join(each for each in sources if any(mark in each for mark in marks)), digest_size=8)
    folder = parent / f"treerace-{digest.hexdigest()}"
    for earlier in set(parent.glob("treerace-*")) - {folder}:
        shutil.rmtree(earlier, ignore_errors=True)
    return folder


HERE = Path(__file__).parent
numba.config.CACHE_DIR = str(folder_for(HERE, Path(numba.config.CACHE_DIR or HERE / "__pycache__")))


def exactly_compiled(function: Callable, **options: object) -> Callable:
    """The function compiled for the types it is called with, without the interpreter's lock."""
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        return njit(function, cache=True, **options)
    except RuntimeError:  # there is no folder to keep it in
        return njit(function, **options)


def compiled(function: Callable) -> Callable:
    """The same for loops whose sums may be reordered. Constants that one such function hands to another are made `np.int64` or
    `np.bool_`, for of bare ones numba compiles a version each."""
    return exactly_compiled(function, fastmath=FAST)


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


one_row, two_rows, four_rows, eight_rows = summing(1), summing(2), summing(4), summing(8)
one_blend, eight_blends = blending(1), blending(8)


@compiled
def put(row, into):
    """Copy `row [n]`. Written out, like `add`, for slices and whole arrays take numba many times as long to compile."""
    for k in range(len(into)):
        into[k] = row[k]


@compiled
def add(row, into):
    """Add `row [n]` to another, in place."""
    for k in range(len(into)):
        into[k] += row[k]


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


@compiled
def exp(x):
    """e^x to float32's digits, between e^-87 and e^88, in operations that compilers put side by side."""
    x = min(max(x, np.float32(-87)), np.float32(88))
    whole = np.floor(x * np.float32(1.4426950409) + np.float32(0.5))
    # ln 2 in two parts, of which the first has few digits.
    part = x - whole * np.float32(0.693359375) + whole * np.float32(2.12194440e-4)
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


def turns_of(places: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """Cosines and sines `[n, 2, head_dim / 2]` of `places [n]`, for `turn`; `inverse [head_dim / 2]` are the frequencies."""
    angles = places[:, None].float() * inverse.float()
    return torch.stack([angles.cos(), angles.sin()], 1)


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
def attend_singly(queries, kv, visible, start, end, out):
    """`attend`, query by query."""
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
def blend(numbers, across, along, vectors, sums):
    """Into `sums [rows, TOGETHER]` those of numbers, `across` apart from row to row and `along` from term to term, times the rows of
    `vectors [terms, TOGETHER]`."""
    rows, terms = len(sums), len(vectors)
    for row in range(0, rows - rows % 8, 8):
        source, target = numbers.ctypes.data + 4 * across * row, sums.ctypes.data + 4 * TOGETHER * row
        eight_blends(source, 4 * across, 4 * along, vectors.ctypes.data, terms, target)
    for row in range(rows - rows % 8, rows):
        source, target = numbers.ctypes.data + 4 * across * row, sums.ctypes.data + 4 * TOGETHER * row
        one_blend(source, 4 * across, 4 * along, vectors.ctypes.data, terms, target)


@compiled
def column_tops(rows, tops):
    """Into the first of `tops [at least M / 2, lanes]` the largest number of each column of `rows [M, lanes]`, by halves: whole rows
    are compared at once."""
    count, lanes = rows.shape
    source, target = rows.reshape(-1), tops.reshape(-1)
    half = (count + 1) // 2
    for index in range(half * lanes):
        target[index] = source[index]
    source = source[half * lanes :]
    while True:
        for index in range((count - half) * lanes):
            target[index] = larger(target[index], source[index])
        if half == 1:
            break
        count, half = half, (half + 1) // 2
        source = target[half * lanes :]


@compiled
def attend_together(queries, kv, visible, start, end, out):
    """`attend`, `TOGETHER` queries at a time: every number of a key and of a value meets all of them at once."""
    kv_heads, size = kv.shape[1], kv.shape[3]
    groups = out.shape[1] // size // kv_heads
    count = len(out) * groups  # queries that share a head's keys
    rows = end - start
    asking, mixed = np.zeros((size, TOGETHER), np.float32), np.empty((size, TOGETHER), np.float32)
    scores, tops = np.empty((rows, TOGETHER), np.float32), np.empty((rows // 2 + 1, TOGETHER), np.float32)
    ones, total = np.empty(rows, np.float32), np.empty((1, TOGETHER), np.float32)
    for row in range(rows):
        ones[row] = 1
    factor, seen_by_all = np.float32(1 / np.sqrt(size)), end - start - visible.shape[1]
    for head in range(kv_heads):
        keys, values = kv[0, head, start:end], kv[1, head, start:end]
        for first in range(0, count, TOGETHER):
            here = min(TOGETHER, count - first)
            for lane in range(here):
                row, part = (first + lane) // groups, head * groups + (first + lane) % groups
                one = queries[row, part * size : (part + 1) * size]
                for i in range(size):
                    asking[i, lane] = one[i] * factor
            blend(keys, size, 1, asking, scores)
            for lane in range(here):
                seen = visible[(first + lane) // groups]
                for j in range(len(seen)):
                    if not seen[j]:
                        scores[seen_by_all + j, lane] = LOWEST
            column_tops(scores, tops)
            for j in range(len(scores)):
                for lane in range(TOGETHER):
                    scores[j, lane] -= tops[0, lane]
            flat = scores.reshape(-1)
            for index in range(len(flat)):
                flat[index] = exp(flat[index])
            blend(ones, 0, 1, scores, total)
            blend(values, 1, size, scores, mixed)
            for lane in range(here):
                row, part = (first + lane) // groups, head * groups + (first + lane) % groups
                answer = out[row, part * size : (part + 1) * size]
                for i in range(size):
                    answer[i] = mixed[i, lane] / total[0, lane]


@compiled
def attend(queries, kv, visible, start, end, out):
    """Into `out [N, heads * head_dim]` the attention of `queries [N, >= heads * head_dim]` over the rows from `start` to `end` of
    `kv [2, kv_heads, capacity, head_dim]`. `visible [N, M]` says which of the last M rows a query sees; it sees all before them."""
    if len(out) * out.shape[1] <= 3 * kv.shape[1] * kv.shape[3]:  # three queries of a head's keys, or fewer
        attend_singly(queries, kv, visible, start, end, out)
    else:
        attend_together(queries, kv, visible, start, end, out)


@compiled
def attended(qkv, kv, visible, start, rows, asking):
    """Attention `[asking, heads * head_dim]` of the last entries of `qkv [N, (heads + 2 kv_heads) * head_dim]`, its queries and keys
    rotated already, after the keys and values of all N were written behind the first `rows` rows of `kv`; the rest as in `attend`."""
    kv_heads, size = kv.shape[1], kv.shape[3]
    width = qkv.shape[1] - 2 * kv_heads * size
    for row in range(len(qkv)):
        for head in range(kv_heads):
            first = width + head * size
            put(qkv[row, first : first + size], kv[0, head, rows + row])
            first += kv_heads * size
            put(qkv[row, first : first + size], kv[1, head, rows + row])
    out = np.empty((asking, width), np.float32)
    attend(qkv[len(qkv) - asking :], kv, visible, start, rows + len(qkv), out)
    return out


@compiled
def scale_heads(rows, scales, least):
    """Norm the heads of `rows [N, n]` that `scales [heads, head_dim]` has a row for, in place."""
    size = scales.shape[1]
    for row in range(len(rows)):
        for head in range(len(scales)):
            part, scale, total = rows[row, head * size : (head + 1) * size], scales[head], least * least
            for k in range(size):
                total += part[k] * part[k]
            factor = np.float32(1) / np.sqrt(total)
            for k in range(size):
                part[k] *= factor * scale[k]


@compiled
def attention(qkv, kv, visible, rows, positions, turns, turned, scales, least):
    """`attended` by all entries, whose first `turned` heads are still to be normed, where there are `scales`, and rotated."""
    scale_heads(qkv, scales, least)
    turn(qkv, turned, turns, positions)
    return attended(qkv, kv, visible, np.int64(0), rows, len(qkv))


@compiled
def gated(gate_up):
    """silu(gate) * up `[N, n]` of `gate_up [N, 2n]`."""
    out = np.empty((len(gate_up), gate_up.shape[1] // 2), np.float32)
    for row in range(len(out)):
        gate, up = gate_up[row, : out.shape[1]], gate_up[row, out.shape[1] :]
        for k in range(out.shape[1]):
            out[row, k] = gate[k] / (np.float32(1) + exp(-gate[k])) * up[k]
    return out


@compiled
def layer(x, qkv, kv, visible, start, rows, weights, least):
    """The residual stream `[n, H]` behind a layer, for the last n entries, as many as `visible` has rows: from `x [N, H]` before it and
    the `qkv` of all N, written and attended to as in `attended`."""
    count, hidden = len(visible), x.shape[1]
    stream = np.empty((count, hidden), np.float32)
    product(attended(qkv, kv, visible, start, rows, count), weights.out, stream)
    for row in range(count):
        add(x[len(x) - count + row], stream[row])
    normed, gate_up = np.empty_like(stream), np.empty((count, 4 * weights.down.weight.shape[1]), np.float32)
    unit_rows(stream, least, normed)
    product(normed, weights.gate_up, gate_up)
    product(gated(gate_up), weights.down, normed)
    for row in range(count):
        add(normed[row], stream[row])
    return stream


@compiled
def normed_sum(x, more, weight, least):
    """`x + more` and its RMS norm, each `[N, H]`; `weight` is the norm's times sqrt(H), `least` is sqrt(H eps)."""
    total, normed = np.empty_like(x), np.empty_like(x)
    for row in range(len(x)):
        before, added, sums, out = x[row], more[row], total[row], normed[row]
        length = least * least
        for k in range(x.shape[1]):
            sums[k] = before[k] + added[k]
            length += sums[k] * sums[k]
        factor = np.float32(1) / np.sqrt(length)
        for k in range(x.shape[1]):
            out[k] = sums[k] * weight[k] * factor
    return total, normed


@compiled
def features_of(tapped, last):
    """`[N, taps + 1, H]`: each of the taps' rows over its root mean square, and `last [N, H]` as it is."""
    count, hidden = last.shape
    out = np.empty((count, len(tapped) + 1, hidden), np.float32)
    for tap, states in enumerate(tapped):
        for row in range(count):
            before, after, total = states[row], out[row, tap], np.float32(1e-12)
            for k in range(hidden):
                total += before[k] * before[k]
            factor = np.sqrt(np.float32(hidden) / total)
            for k in range(hidden):
                after[k] = before[k] * factor
    for row in range(count):
        put(last[row], out[row, len(tapped)])
    return out


@compiled
def side_by_side(features, chosen):
    """`[n, taps * H]`: all but the last of each chosen row of `features [N, taps + 1, H]`, one behind the other."""
    taps, hidden = features.shape[1] - 1, features.shape[2]
    out = np.empty((len(chosen), taps * hidden), np.float32)
    for row in range(len(chosen)):
        for tap in range(taps):
            put(features[chosen[row], tap], out[row, tap * hidden : (tap + 1) * hidden])
    return out


@compiled
def causal(count):
    """bool `[count, count]`: each sees itself and those before."""
    seen = np.empty((count, count), np.bool_)
    for row in range(count):
        for other in range(count):
            seen[row, other] = other <= row
    return seen


@compiled
def move_rows(kv, base, moves):
    """Copy rows of `kv [layers, 2, heads, capacity, head_dim]`, pair by pair of `moves [n, 2]`: to, from, both counted from `base`."""
    for layer in range(kv.shape[0]):
        for half in range(2):
            for head in range(kv.shape[2]):
                rows = kv[layer, half, head]
                for index in range(len(moves)):
                    put(rows[base + moves[index, 1]], rows[base + moves[index, 0]])


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
