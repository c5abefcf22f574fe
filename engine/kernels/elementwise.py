"""Elementwise loops over a few rows: norms, gates, exponentials, features. Knows arrays; knows no model and no tree."""

import numpy as np

from engine.kernels.compiling import (
    compiled_assuming_no_nan,
    compiled_no_nan_without_python_entry,
    exactly_compiled,
    exactly_compiled_without_python_entry,
)
from engine.kernels.intrinsics import SUMS, dot_of_chunks, float_from_bits, fma, larger_float, sum_of_chunks

LOWEST = np.float32(-3e38)
BLOCK = 512  # exponentials that are added up at a time


@compiled_no_nan_without_python_entry
def copy_row(row, out):
    """Copy `row [n]`. This and `add_row` are loops because numba compiles slices and whole arrays many times more slowly."""
    for k in range(len(out)):
        out[k] = row[k]


@compiled_no_nan_without_python_entry
def add_row(row, total):
    """Add `row [n]` to another, in place."""
    for k in range(len(total)):
        total[k] += row[k]


@compiled_no_nan_without_python_entry
def insert_into_best_indices(keys, best_indices, count, index):
    """Insert a place into `best_indices`, the `count` places of the highest `keys`; of equals the earlier goes first. Returns the
    new count.
    """
    at, key = count, keys[index]
    if count == len(best_indices):
        if count == 0 or key <= keys[best_indices[count - 1]]:
            return count
        at = count - 1
    count = at + 1
    while at > 0 and key > keys[best_indices[at - 1]]:
        best_indices[at] = best_indices[at - 1]
        at -= 1
    best_indices[at] = index
    return count


@exactly_compiled
def clamped_float32_exp(x):
    """e^x to float32's precision, with x limited to [-87, 88]. Compilers can vectorise every operation here, and reorder none."""
    x = min(max(x, np.float32(-87)), np.float32(88))
    whole = np.floor(fma(x, np.float32(1.4426950409), np.float32(0.5)))
    # ln 2 comes in two parts. The first has few digits, so that its product with `whole` is exact.
    part = fma(whole, np.float32(2.12194440e-4), fma(whole, np.float32(-0.693359375), x))
    series = fma(part, np.float32(1 / 720), np.float32(1 / 120))
    series = fma(part, fma(part, series, np.float32(1 / 24)), np.float32(1 / 6))
    series = fma(part, fma(part, fma(part, series, np.float32(0.5)), np.float32(1)), np.float32(1))
    return series * float_from_bits(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))


@compiled_no_nan_without_python_entry
def sum_in_order(row):
    """The sum of `row [n]`, added in one order wherever that is compiled. A loop would add one number after another."""
    chunks, total = len(row) // SUMS, np.float32(0)
    if chunks > 0:
        total = sum_of_chunks(row.ctypes.data, chunks)
    for k in range(SUMS * chunks, len(row)):
        total += row[k]
    return total


@compiled_no_nan_without_python_entry
def dot(left, right):
    """The dot product of `left [n]` and `right [n]`, added as in `sum_in_order`."""
    chunks, total = len(left) // SUMS, np.float32(0)
    if chunks > 0:
        total = dot_of_chunks(left.ctypes.data, right.ctypes.data, chunks)
    for k in range(SUMS * chunks, len(left)):
        total = fma(left[k], right[k], total)
    return total


@compiled_no_nan_without_python_entry
def max_of_row(row):
    """The largest number."""
    most = LOWEST
    for k in range(len(row)):
        most = larger_float(most, row[k])
    return most


@compiled_no_nan_without_python_entry
def log_sum_exp(row):
    """The logarithm of the sum of e to the powers of `row [n]`."""
    maximum = max_of_row(row)
    powers, total = np.empty(BLOCK, np.float32), np.float32(0)
    for first in range(0, len(row), BLOCK):
        part = row[first : first + BLOCK]
        for k in range(len(part)):
            powers[k] = clamped_float32_exp(part[k] - maximum)
        total += sum_in_order(powers[: len(part)])
    return maximum + np.log(total)


@compiled_assuming_no_nan
def divide_rows_by_norm(x, norm_floor, out):
    """Write the rows of `x [N, n]`, each divided by its length, into `out [N, n]`; `norm_floor` keeps the lengths from zero."""
    for row in range(len(x)):
        total = norm_floor * norm_floor + dot(x[row], x[row])
        factor = np.float32(1) / np.sqrt(total)
        for k in range(x.shape[1]):
            out[row, k] = x[row, k] * factor


@exactly_compiled_without_python_entry
def apply_silu_gate(gate, up, out):
    """Write silu(gate) * up, of `gate [n]` and `up [n]`, into `out [<= n]`."""
    for k in range(len(out)):
        out[k] = gate[k] / (np.float32(1) + clamped_float32_exp(-gate[k])) * up[k]


@compiled_no_nan_without_python_entry
def join_feature_taps_without_last(features):
    """The taps of `features [N, taps + 1, H]`, joined to `[N, taps * H]`; the last one is left out."""
    taps, hidden = features.shape[1] - 1, features.shape[2]
    out = np.empty((len(features), taps * hidden), np.float32)
    for row in range(len(features)):
        for tap in range(taps):
            copy_row(features[row, tap], out[row, tap * hidden : (tap + 1) * hidden])
    return out


@compiled_no_nan_without_python_entry
def expand_log_q_to_full_vocab(draft_log_q, target_ids, vocab_size):
    """Log-probabilities `[N, vocab_size]` from those of the tokens `target_ids [n]`, `draft_log_q [N, n]`; -inf for all other
    tokens.
    """
    log_q = np.empty((len(draft_log_q), vocab_size), np.float32)
    for row in range(len(draft_log_q)):
        for token in range(vocab_size):
            log_q[row, token] = -np.inf
        for k in range(len(target_ids)):
            log_q[row, target_ids[k]] = draft_log_q[row, k]
    return log_q


@compiled_assuming_no_nan
def log_softmax_in_place(rows):
    """Turn every row of `rows [N, n]` into its log softmax, in place."""
    for row in range(len(rows)):
        total = log_sum_exp(rows[row])
        for k in range(rows.shape[1]):
            rows[row, k] -= total
