"""Exact attention: sums over keys in the order of their rows. A key that a query may not see weighs 0, which changes no sum."""

from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba.core.cgutils import for_range

from engine.kernels.compiling import exactly_compiled_without_python_entry
from engine.kernels.elementwise import LOWEST, clamped_float32_exp, max_of_row
from engine.kernels.intrinsics import (
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

LANES = 8
TOGETHER = 4 if WIDE else 2  # queries that meet a key at a time
NEAR = 1 << 18  # bytes of keys; a second cache holds as many, their values, and the next head's keys


def make_query_key_product_intrinsic(keys_by_query_count: dict[int, int]) -> Callable:
    """An intrinsic that writes the dot products of some queries with rows of `8 * chunks` numbers, `keys_by_query_count[queries]`
    rows at a time.

    Its arguments are numbers, and addresses and distances in bytes: how many queries, the queries and from one to the next, how many
    keys, the keys and from one to the next, chunks, the results and from one query's to the next one's, and what is asked for
    meanwhile, so many lines every time. Eight partial sums are added in pairs at the end.
    """
    wide = vector(REAL, LANES)

    def add_neighbours(code: LlvmLoopBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
        """The sums of neighbours in both vectors, side by side."""
        lanes = left.type.count + right.type.count
        evens, odds = (ir.Constant(vector(WORD, lanes // 2), list(range(first, lanes, 2))) for first in (0, 1))
        return code.fadd(code.shuffle_vector(left, right, evens), code.shuffle_vector(left, right, odds))

    @intrinsic_decorator_for(void_signature_of_addresses(11))
    def dots(code, queries, asking, between, rows, key, along, chunks, out, apart, following, lines):
        def write(queries: int) -> None:
            count = keys_by_query_count[queries]

            def body(chunk, totals):
                shift = code.mul(chunk, ir_constant_or_value(4 * LANES))
                ones = [
                    code.load_value(code.address_plus(asking, shift, (between, row)), wide) for row in range(queries)
                ]
                those = [code.load_value(code.address_plus(base, shift, (along, row)), wide) for row in range(count)]
                pairs = [(one, each) for one in ones for each in those]
                return [code.emit_multiply_add(total, *pair) for total, pair in zip(totals, pairs, strict=True)]

            with for_range(code, code.sdiv(rows, ir_constant_or_value(count))) as group:
                first = code.mul(group.index, ir_constant_or_value(count))
                base = code.address_plus(key, (first, along))
                with for_range(code, lines) as line:
                    code.prefetch(code.address_plus(following, (first, along), (line.index, LINE)), LINE, 2)
                added = code.accumulate_in_loop(wide, queries * count, chunks, body)
                for row in range(queries):
                    then = added[row * count : (row + 1) * count]
                    while len(then) > 1:
                        then = [add_neighbours(code, *then[at : at + 2]) for at in range(0, len(then), 2)]
                    total = then[0]
                    while total.type.count > count:
                        total = add_neighbours(code, total, ir.Constant(total.type, ir.Undefined))
                        lanes = list(range(total.type.count // 2))
                        total = code.shuffle_vector(total, total, ir.Constant(vector(WORD, len(lanes)), lanes))
                    code.store_value(total, code.address_plus(out, (apart, row), (first, 4)))

        code.switch_over_cases(queries, keys_by_query_count, write)

    return dots


def make_weighted_value_sum_intrinsic(vectors_by_query_count: dict[int, int]) -> Callable:
    """An intrinsic that writes, for some queries, the weighted sum of `8 * vectors_by_query_count[queries]` columns of all values,
    and of its weights.

    Its arguments are the number of queries, and addresses and distances in bytes: the weights and from one query's to the next
    one's, the values and from one to the next, what is asked for meanwhile as far apart, how many values there are, the results and
    from one to the next, and the sums of weights.
    """
    wide = vector(REAL, LANES)

    @intrinsic_decorator_for(void_signature_of_addresses(10))
    def mix(code, queries, weights, between, values, along, following, terms, out, apart, totals):
        def write(queries: int) -> None:
            count = vectors_by_query_count[queries]
            each_has = count + 1  # a query has its columns and the sum of its weights

            def body(term, so_far):
                base, added = code.address_plus(values, (term, along)), []
                code.prefetch(code.address_plus(following, (term, along)), 4 * LANES * count, 2)
                those = [code.load_value(code.address_plus(base, 4 * LANES * number), wide) for number in range(count)]
                for row in range(queries):
                    one = code.broadcast_to_lanes(
                        code.load_value(code.address_plus(weights, (between, row), (term, 4)), REAL), LANES
                    )
                    *mixed, total = so_far[row * each_has : (row + 1) * each_has]
                    added += [code.emit_multiply_add(mix, one, each) for mix, each in zip(mixed, those, strict=True)]
                    added.append(code.fadd(total, one))
                return added

            added = code.accumulate_in_loop(wide, queries * each_has, terms, body)
            for row in range(queries):
                *mixed, total = added[row * each_has : (row + 1) * each_has]
                for number, value in enumerate(mixed):
                    code.store_value(value, code.address_plus(out, (apart, row), 4 * LANES * number))
                code.store_value(
                    code.extract_element(total, ir_constant_or_value(0)), code.address_plus(totals, 4 * row)
                )

        code.switch_over_cases(queries, vectors_by_query_count, write)

    return mix


# Keys, and vectors of values' columns, that so many queries meet at a time: as many as the registers hold, or one
MOST, SINGLE = {1: 8, 2: 4, 4: 4}, {1: 1, 2: 1, 4: 1}
dots_of_most, dots_of_one, mix_most, mix_one = (
    make_query_key_product_intrinsic(MOST),
    make_query_key_product_intrinsic(SINGLE),
    make_weighted_value_sum_intrinsic(MOST),
    make_weighted_value_sum_intrinsic(SINGLE),
)


@exactly_compiled_without_python_entry
def exact_dot(a, b):
    """The dot product of two rows of `8 n` numbers."""
    out = np.empty(1, np.float32)
    dots_of_one(1, a.ctypes.data, 0, 1, b.ctypes.data, 0, len(a) // LANES, out.ctypes.data, 0, 0, 0)
    return out[0]


@exactly_compiled_without_python_entry
def attend_in_key_order(queries, keys, values, prefetch_address, visible, key_ends, scores, attended, totals):
    """Write the attention of one, two or four queries `queries [q, head_dim]`, scaled already, into `attended [q, head_dim]`.

    Query i sees those of the last M rows of `keys` and `values` `[rows, head_dim]` that `visible[i]`, bool `[M]`, marks, and all rows
    before them; behind row `key_ends[i]` it sees none. `scores [q, rows]` and `totals [q]` are room for the work. `head_dim` is a
    multiple of 8.

    Memory is read while the processor computes: values are asked for while keys are multiplied, and keys from the address
    `prefetch_address` on while values are. Longer contexts than `NEAR` would only drive each other out of the cache.
    """
    count, size = queries.shape
    rows = len(keys)
    end = key_ends[0]
    for query in range(1, count):
        end = max(end, key_ends[query])
    chunks, before = size // LANES, rows - visible.shape[1]
    source, key, value = queries.ctypes.data, keys.ctypes.data, values.ctypes.data
    along, target, apart = 4 * size, scores.ctypes.data, 4 * scores.shape[1]
    near = end * along <= NEAR
    if not near:
        prefetch_address = value
    most = 8 if count == 1 else 4  # see `MOST`
    whole, lines = end - end % most, most * along // LINE if near else 0
    dots_of_most(count, source, along, whole, key, along, chunks, target, apart, value, lines)
    key += whole * along
    dots_of_one(count, source, along, end - whole, key, along, chunks, target + 4 * whole, apart, value, 0)
    for query in range(count):
        some = scores[query, :end]
        for row in range(max(0, before), end):
            if not visible[query, row - before]:
                some[row] = LOWEST
        highest = max_of_row(some)
        for row in range(end):
            score = some[row]
            weight = clamped_float32_exp(score - highest)
            some[row] = weight if score > LOWEST else np.float32(0)
    column, sums = 0, totals.ctypes.data
    while column < size:
        ahead, at, out = prefetch_address + 4 * column, value + 4 * column, attended.ctypes.data + 4 * column
        if size - column >= LANES * most:
            mix_most(count, target, apart, at, along, ahead, end, out, along, sums)
            column += LANES * most
        else:
            mix_one(count, target, apart, at, along, ahead, end, out, along, sums)
            column += LANES
    for query in range(count):
        for k in range(size):
            attended[query, k] /= totals[query]
