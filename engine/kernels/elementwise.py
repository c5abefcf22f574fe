"""Elementwise loops over a few rows: norms, gates, exponentials, features. Knows arrays; knows no model and no tree."""

import numpy as np

from engine.kernels.compiling import compiled, exactly_compiled, exactly_within, within
from engine.kernels.intrinsics import SUMS, as_float, dot_of_chunks, fma, larger, sum_of_chunks

LOWEST = np.float32(-3e38)
BLOCK = 512  # exponentials that are added up at a time


@within
def copy_row(row, out):
    """Copy `row [n]`. This and `add_row` are loops because numba compiles slices and whole arrays many times more slowly."""
    for k in range(len(out)):
        out[k] = row[k]


@within
def add_row(row, total):
    """Add `row [n]` to another, in place."""
    for k in range(len(total)):
        total[k] += row[k]


@within
def insert_ranked(keys, best, count, place):
    """Insert a place into `best`, the `count` places of the highest `keys`; of equals the earlier goes first. Returns the new count."""
    at, key = count, keys[place]
    if count == len(best):
        if count == 0 or key <= keys[best[count - 1]]:
            return count
        at = count - 1
    count = at + 1
    while at > 0 and key > keys[best[at - 1]]:
        best[at] = best[at - 1]
        at -= 1
    best[at] = place
    return count


@exactly_compiled
def exp(x):
    """e^x to float32's precision, with x limited to [-87, 88]. Compilers can vectorise every operation here, and reorder none."""
    x = min(max(x, np.float32(-87)), np.float32(88))
    whole = np.floor(fma(x, np.float32(1.4426950409), np.float32(0.5)))
    # ln 2 comes in two parts. The first has few digits, so that its product with `whole` is exact.
    part = fma(whole, np.float32(2.12194440e-4), fma(whole, np.float32(-0.693359375), x))
    series = fma(part, np.float32(1 / 720), np.float32(1 / 120))
    series = fma(part, fma(part, series, np.float32(1 / 24)), np.float32(1 / 6))
    series = fma(part, fma(part, fma(part, series, np.float32(0.5)), np.float32(1)), np.float32(1))
    return series * as_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))


@within
def sum_in_order(row):
    """The sum of `row [n]`, added in one order wherever that is compiled. A loop would add one number after another."""
    chunks, total = len(row) // SUMS, np.float32(0)
    if chunks > 0:
        total = sum_of_chunks(row.ctypes.data, chunks)
    for k in range(SUMS * chunks, len(row)):
        total += row[k]
    return total


@within
def dot(left, right):
    """The dot product of `left [n]` and `right [n]`, added as in `sum_in_order`."""
    chunks, total = len(left) // SUMS, np.float32(0)
    if chunks > 0:
        total = dot_of_chunks(left.ctypes.data, right.ctypes.data, chunks)
    for k in range(SUMS * chunks, len(left)):
        total = fma(left[k], right[k], total)
    return total


@within
def most_of(row):
    """The largest number."""
    most = LOWEST
    for k in range(len(row)):
        most = larger(most, row[k])
    return most


@within
def log_sum_exp(row):
    """The logarithm of the sum of e to the powers of `row [n]`."""
    maximum = most_of(row)
    powers, total = np.empty(BLOCK, np.float32), np.float32(0)
    for first in range(0, len(row), BLOCK):
        part = row[first : first + BLOCK]
        for k in range(len(part)):
            powers[k] = exp(part[k] - maximum)
        total += sum_in_order(powers[: len(part)])
    return maximum + np.log(total)


@compiled
def divide_rows_by_length(x, min_length, out):
    """Write the rows of `x [N, n]`, each divided by its length, into `out [N, n]`; `min_length` keeps the lengths from zero."""
    for row in range(len(x)):
        total = min_length * min_length + dot(x[row], x[row])
        factor = np.float32(1) / np.sqrt(total)
        for k in range(x.shape[1]):
            out[row, k] = x[row, k] * factor


@exactly_within
def apply_silu_gate(gate, up, out):
    """Write silu(gate) * up, of `gate [n]` and `up [n]`, into `out [<= n]`."""
    for k in range(len(out)):
        out[k] = gate[k] / (np.float32(1) + exp(-gate[k])) * up[k]


@within
def join_feature_rows(features):
    """The taps of `features [N, taps + 1, H]`, joined to `[N, taps * H]`; the last one is left out."""
    taps, hidden = features.shape[1] - 1, features.shape[2]
    out = np.empty((len(features), taps * hidden), np.float32)
    for row in range(len(features)):
        for tap in range(taps):
            copy_row(features[row, tap], out[row, tap * hidden : (tap + 1) * hidden])
    return out


@within
def spread_over_vocabulary(own_log_q, vocabulary, vocab):
    """Log-probabilities `[N, vocab]` from those of the tokens `vocabulary [n]`, `own_log_q [N, n]`; -inf for all other tokens."""
    log_q = np.empty((len(own_log_q), vocab), np.float32)
    for row in range(len(own_log_q)):
        for token in range(vocab):
            log_q[row, token] = -np.inf
        for k in range(len(vocabulary)):
            log_q[row, vocabulary[k]] = own_log_q[row, k]
    return log_q


@compiled
def log_softmax_in_place(rows):
    """Turn every row of `rows [N, n]` into its log softmax, in place."""
    for row in range(len(rows)):
        total = log_sum_exp(rows[row])
        for k in range(rows.shape[1]):
            rows[row, k] -= total
