"""Attention of a few rows over a KV cache, with rotation and head norms. Knows arrays; knows no model and no tree."""

import numpy as np
import torch
from torch import Tensor

from engine.kernels.compiling import (
    compiled_assuming_no_nan,
    compiled_no_nan_without_python_entry,
    exactly_compiled_without_python_entry,
)
from engine.kernels.elementwise import LOWEST, clamped_float32_exp, copy_row, dot, sum_in_order
from engine.kernels.intrinsics import fma, larger_float, write_weighted_sums

TOGETHER = 8  # queries that meet a key at a time


def rotation_table_of(positions: Tensor, inverse_frequencies: Tensor) -> Tensor:
    """Cosines and sines `[n, 2, head_dim / 2]` of `positions [n]`, for `rotate_heads_in_place`; `inverse_frequencies [head_dim / 2]`
    are the frequencies.
    """
    angles = positions[:, None].float() * inverse_frequencies.float()
    return torch.stack([angles.cos(), angles.sin()], 1)


@exactly_compiled_without_python_entry
def rotate_head_in_place(head, cos, sin):
    """Rotate a `head [head_dim]` in place, by cosines and sines `[head_dim / 2]`."""
    half = len(cos)
    for k in range(half):
        a, b = head[k], head[half + k]
        head[k] = a * cos[k] - b * sin[k]
        head[half + k] = b * cos[k] + a * sin[k]


@compiled_assuming_no_nan
def rotate_heads_in_place(rows, head_count, rotations, positions):
    """Rotate the first `head_count` heads of `rows [N, n]`, in place, by their positions' `rotations [places, 2, head_dim / 2]`."""
    size = 2 * rotations.shape[2]
    for row in range(len(rows)):
        cos, sin = rotations[positions[row]]
        for head in range(head_count):
            rotate_head_in_place(rows[row, head * size : (head + 1) * size], cos, sin)


@compiled_no_nan_without_python_entry
def attend_one_query_at_a_time(queries, kv, visible, first_row, end_row, out):
    """`attend_to_cache_rows`, one query at a time."""
    kv_heads, size = kv.shape[1], kv.shape[3]
    groups = out.shape[1] // size // kv_heads
    scores, one, mixed = (
        np.empty(end_row - first_row, np.float32),
        np.empty(size, np.float32),
        np.empty(size, np.float32),
    )
    factor, seen_by_all = np.float32(1 / np.sqrt(size)), end_row - first_row - visible.shape[1]
    for head in range(kv_heads * groups):
        keys, values = kv[0, head // groups, first_row:end_row], kv[1, head // groups, first_row:end_row]
        for row in range(len(out)):
            for i in range(size):
                one[i] = queries[row, head * size + i] * factor
                mixed[i] = 0
            most = LOWEST
            for j in range(len(keys)):
                score = dot(one, keys[j])
                if j >= seen_by_all and not visible[row, j - seen_by_all]:
                    score = LOWEST
                scores[j] = score
                most = larger_float(most, score)
            for j in range(len(keys)):
                scores[j] = clamped_float32_exp(scores[j] - most)
            total = sum_in_order(scores)
            for j in range(len(keys)):
                weight = scores[j] / total
                for i in range(size):
                    mixed[i] = fma(weight, values[j, i], mixed[i])
            for i in range(size):
                out[row, head * size + i] = mixed[i]


@compiled_no_nan_without_python_entry
def write_weighted_row_sums(weights, row_stride, term_stride, vectors, out):
    """Weighted sums of rows of `vectors`, into `out`, `TOGETHER` columns each. `row_stride` and `term_stride` are the steps between
    weights.
    """
    row = 0
    while row < len(out):
        source, target = weights.ctypes.data + 4 * row_stride * row, out.ctypes.data + 4 * TOGETHER * row
        some = 8 if len(out) - row >= 8 else 1
        write_weighted_sums(some, source, 4 * row_stride, 4 * term_stride, vectors.ctypes.data, len(vectors), target)
        row += some


@compiled_no_nan_without_python_entry
def write_column_maxima(rows, maxima):
    """Write the largest of each column of `rows [M, lanes]` into the first of `maxima [>= M / 2, lanes]`, by halving the rows."""
    count, lanes = rows.shape
    source, target = rows.reshape(-1), maxima.reshape(-1)
    half = (count + 1) // 2
    for index in range(half * lanes):
        target[index] = source[index]
    source = source[half * lanes :]
    while True:
        for index in range((count - half) * lanes):
            target[index] = larger_float(target[index], source[index])
        if half == 1:
            break
        count, half = half, (half + 1) // 2
        source = target[half * lanes :]


@compiled_no_nan_without_python_entry
def attend_queries_in_groups(queries, kv, visible, first_cache_row, end_cache_row, out):
    """`attend_to_cache_rows`, `TOGETHER` queries at a time, so that a key or a value is read once for all of them."""
    kv_heads, size = kv.shape[1], kv.shape[3]
    groups = out.shape[1] // size // kv_heads
    count = len(out) * groups  # queries that share a head's keys
    rows = end_cache_row - first_cache_row
    asking, mixed = np.zeros((size, TOGETHER), np.float32), np.empty((size, TOGETHER), np.float32)
    scores, tops = np.empty((rows, TOGETHER), np.float32), np.empty((rows // 2 + 1, TOGETHER), np.float32)
    ones, total = np.ones(rows, np.float32), np.empty((1, TOGETHER), np.float32)
    factor, seen_by_all = np.float32(1 / np.sqrt(size)), end_cache_row - first_cache_row - visible.shape[1]
    for head in range(kv_heads):
        keys, values = kv[0, head, first_cache_row:end_cache_row], kv[1, head, first_cache_row:end_cache_row]
        for first in range(0, count, TOGETHER):
            here = min(TOGETHER, count - first)
            for lane in range(here):
                row, part = (first + lane) // groups, head * groups + (first + lane) % groups
                one = queries[row, part * size : (part + 1) * size]
                for i in range(size):
                    asking[i, lane] = one[i] * factor
            write_weighted_row_sums(keys, size, 1, asking, scores)
            for lane in range(here):
                seen = visible[(first + lane) // groups]
                for j in range(len(seen)):
                    if not seen[j]:
                        scores[seen_by_all + j, lane] = LOWEST
            write_column_maxima(scores, tops)
            for j in range(len(scores)):
                for lane in range(TOGETHER):
                    scores[j, lane] -= tops[0, lane]
            flat = scores.reshape(-1)
            for index in range(len(flat)):
                flat[index] = clamped_float32_exp(flat[index])
            write_weighted_row_sums(ones, 0, 1, scores, total)
            write_weighted_row_sums(values, 1, size, scores, mixed)
            for lane in range(here):
                row, part = (first + lane) // groups, head * groups + (first + lane) % groups
                answer = out[row, part * size : (part + 1) * size]
                for i in range(size):
                    answer[i] = mixed[i, lane] / total[0, lane]


@compiled_assuming_no_nan
def attend_to_cache_rows(queries, kv, visible, first_row, end_row, out):
    """Write the attention of `queries [N, >= heads * head_dim]` into `out [N, heads * head_dim]`.

    It reads the rows from `first_row` to `end_row` of `kv [2, kv_heads, capacity, head_dim]`. A query sees those of the last M rows
    that `visible` bool `[N, M]` marks, and all rows before them.
    """
    if len(out) * out.shape[1] <= 3 * kv.shape[1] * kv.shape[3]:  # at most three queries share a head's keys
        attend_one_query_at_a_time(queries, kv, visible, first_row, end_row, out)
    else:
        attend_queries_in_groups(queries, kv, visible, first_row, end_row, out)


@exactly_compiled_without_python_entry
def write_kv_row(qkv, kv, row):
    """Write the last numbers of `qkv [n]`, which are keys and then values, into a row of `kv`, as in `attend_to_cache_rows`."""
    kv_heads, size = kv.shape[1], kv.shape[3]
    first = len(qkv) - 2 * kv_heads * size
    for half in range(2):
        for head in range(kv_heads):
            copy_row(qkv[first : first + size], kv[half, head, row])
            first += size


@compiled_no_nan_without_python_entry
def store_kv_and_attend(qkv, kv, visible, first_row, written_rows, query_count):
    """Attention `[query_count, heads * head_dim]` of the last `query_count` of N entries; `kv`, `visible` and `first_row` are as in
    `attend_to_cache_rows`.

    `qkv [N, (heads + 2 kv_heads) * head_dim]` has its queries and keys rotated already. The keys and values of all N entries are
    first written behind the first `written_rows` rows of `kv`.
    """
    for row in range(len(qkv)):
        write_kv_row(qkv[row], kv, written_rows + row)
    out = np.empty((query_count, qkv.shape[1] - 2 * kv.shape[1] * kv.shape[3]), np.float32)
    attend_to_cache_rows(qkv[len(qkv) - query_count :], kv, visible, first_row, written_rows + len(qkv), out)
    return out


@compiled_no_nan_without_python_entry
def rms_norm_heads_in_place(rows, scales, norm_floor):
    """Norm the first heads of `rows [N, n]` in place, as many as `scales [heads, head_dim]` has rows."""
    size = scales.shape[1]
    for row in range(len(rows)):
        for head in range(len(scales)):
            part, scale = rows[row, head * size : (head + 1) * size], scales[head]
            total = norm_floor * norm_floor + dot(part, part)
            factor = np.float32(1) / np.sqrt(total)
            for k in range(size):
                part[k] *= factor * scale[k]


@compiled_no_nan_without_python_entry
def causal_mask(count):
    """A causal mask, bool `[count, count]`: each row sees itself and those before."""
    seen = np.empty((count, count), np.bool_)
    for row in range(count):
        for other in range(count):
            seen[row, other] = other <= row
    return seen


@compiled_assuming_no_nan
def move_cache_rows(kv, base_row, offset_pairs):
    """Copy rows of `kv [layers, 2, heads, capacity, head_dim]`: each of `offset_pairs [n, 2]` says to and from, behind `base_row`."""
    for layer in range(kv.shape[0]):
        for half in range(2):
            for head in range(kv.shape[2]):
                rows = kv[layer, half, head]
                for index in range(len(offset_pairs)):
                    copy_row(rows[base_row + offset_pairs[index, 1]], rows[base_row + offset_pairs[index, 0]])
