"""Elementwise loops over a few rows: norms, gates, exponentials, features, noise. Knows arrays; knows no model and no tree.

Gumbel noise is counted: every number depends on (seed, position, token) alone. Seed and position choose a place in the sequence of
SplitMix64 (Steele, Lea and Flood 2014), and tokens count on from there. 52 bits become a uniform number u, and -log(-log(u)) is
computed in float32, without a loss where u is near 0 or 1. `engine.sampling.compute_gumbel_by_position` is the same in PyTorch;
tests/core/test_sampling.py holds both equal.
"""

import numpy as np

from engine.kernels.compiling import (
    compiled_assuming_no_nan,
    compiled_no_nan_without_python_entry,
    exactly_compiled,
    exactly_compiled_without_python_entry,
)
from engine.kernels.intrinsics import (
    SUMS,
    bits_of_float,
    dot_of_chunks,
    double_from_bits,
    float_from_bits,
    fma,
    larger_float,
    sum_of_chunks,
)

LOWEST = np.float32(-3e38)
BLOCK = 512  # exponentials that are added up at a time
GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # the constants of SplitMix64, as signed numbers
MIX = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
ONE = 0x3FF << 52  # the bits of 1.0 in float64
ROOT_HALF = 0x3F3504F3  # those of sqrt(1/2) in float32
LOG_2 = np.float32(0.6931471805599453)


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


@exactly_compiled
def mix_int64(number):
    """SplitMix64's mixing. Numbers wrap around as unsigned ones would."""
    number = (number ^ (number >> 30 & (1 << 34) - 1)) * MIX[0]
    number = (number ^ (number >> 27 & (1 << 37) - 1)) * MIX[1]
    return number ^ (number >> 31 & (1 << 33) - 1)


@exactly_compiled
def log_of_one_plus(part, exponent):
    """log((1 + `part`) * 2^`exponent`), of a part between sqrt(1/2) - 1 and sqrt(2) - 1."""
    ratio = part / (np.float32(2) + part)
    square = ratio * ratio
    series = np.float32(1 / 5) + square * (np.float32(1 / 7) + square * np.float32(1 / 9))
    series = np.float32(1) + square * (np.float32(1 / 3) + square * series)
    return exponent * LOG_2 + np.float32(2) * ratio * series


@exactly_compiled
def gumbel_of_token(place, token):
    """The number of a token at a position's place in the sequence."""
    bits = mix_int64(place + (token + 1) * GOLDEN) >> 12 & (1 << 52) - 1
    above_one = double_from_bits(bits | ONE)  # 1 + bits / 2^52
    missing = np.float32(2.0 - above_one - 2.0**-53)  # 1 - u
    uniform = np.float32(above_one - 1.0 + 2.0**-53)
    near_one, number = missing < np.float32(0.25), bits_of_float(uniform)
    exponent = (number - np.int32(ROOT_HALF)) >> 23
    part = float_from_bits(number - (exponent << 23)) - np.float32(1)
    part = -missing if near_one else part
    power = np.float32(0) if near_one else np.float32(exponent)
    number = bits_of_float(-log_of_one_plus(part, power))
    exponent = (number - np.int32(ROOT_HALF)) >> 23
    return -log_of_one_plus(float_from_bits(number - (exponent << 23)) - np.float32(1), np.float32(exponent))


@exactly_compiled
def place_in_sequence(seed, position):
    """Where a position's numbers begin."""
    return mix_int64(mix_int64(seed + GOLDEN) ^ mix_int64(position * MIX[0] + 1))


@exactly_compiled
def write_gumbel_row(seed, position, row):
    """Write a position's standard Gumbel noise into `row [V]`, float32."""
    place = place_in_sequence(seed, position)
    for token in range(len(row)):
        row[token] = gumbel_of_token(place, token)


@compiled_no_nan_without_python_entry
def write_gumbel_of_tokens(seed, position, tokens, out):
    """Write that of the `tokens [n]` alone into `out [n]`."""
    place = place_in_sequence(seed, position)
    for index in range(len(tokens)):
        out[index] = gumbel_of_token(place, tokens[index])
