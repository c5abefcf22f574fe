"""Exact attention: sums over keys in the order of their rows, whatever rows come between. Knows arrays; knows no model and no tree.

A key that a query may not see gets the weight 0, which changes no sum. So a tree's node gets the bits that its path gets alone.
"""

from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.kernels.compiling import exactly_within, within
from engine.kernels.elementwise import LOWEST, exp
from engine.kernels.intrinsics import (
    LINE,
    REAL,
    WIDE,
    added_up,
    ask,
    ask_for,
    constant,
    larger,
    loaded,
    multiplied_and_added,
    place,
    put_down,
    spread,
    vector,
)

LANES = 8
TOGETHER = 4 if WIDE else 2  # queries that meet a key at a time
NEAR = 1 << 18  # bytes of keys; a second cache holds as many, their values, and the next head's keys


def dotting(queries: int, keys: int) -> Callable:
    """An intrinsic that writes the dot products of `queries` rows with `keys` rows of `8 * chunks` numbers.

    Its arguments are addresses and distances in bytes: the queries and from one to the next, the keys and from one to the next,
    chunks, and the results and from one query's to the next one's. Eight partial sums are added in pairs at the end.
    """
    wide = vector(REAL, LANES)

    def halved(code: ir.IRBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
        """The sums of neighbours in both vectors, side by side."""
        lanes = left.type.count + right.type.count
        evens, odds = (
            ir.Constant(vector(ir.IntType(32), lanes // 2), list(range(first, lanes, 2))) for first in (0, 1)
        )
        return code.fadd(code.shuffle_vector(left, right, evens), code.shuffle_vector(left, right, odds))

    def build(context, code, signature, arguments):
        asking, between, key, along, chunks, out, apart = arguments

        def body(chunk, totals):
            shift = code.mul(chunk, constant(4 * LANES))
            ones = [loaded(code, place(code, asking, shift, (between, row)), wide) for row in range(queries)]
            those = [loaded(code, place(code, key, shift, (along, row)), wide) for row in range(keys)]
            pairs = [(one, each) for one in ones for each in those]
            return [multiplied_and_added(code, total, *pair) for total, pair in zip(totals, pairs, strict=True)]

        added = added_up(code, wide, queries * keys, chunks, body)
        for row in range(queries):
            then = added[row * keys : (row + 1) * keys]
            while len(then) > 1:
                then = [halved(code, *then[at : at + 2]) for at in range(0, len(then), 2)]
            total = then[0]
            while total.type.count > keys:
                total = halved(code, total, ir.Constant(total.type, ir.Undefined))
                lanes = list(range(total.type.count // 2))
                total = code.shuffle_vector(total, total, ir.Constant(vector(ir.IntType(32), len(lanes)), lanes))
            put_down(code, total, place(code, out, (apart, row)))
        return context.get_dummy_value()

    @intrinsic
    def dots(typing, asking, between, key, along, chunks, out, apart):
        return types.void(*[types.intp] * 7), build

    return dots


def mixing(queries: int, vectors: int) -> Callable:
    """An intrinsic that writes, for each query, the weighted sum of `8 * vectors` columns of all values, and the sum of its weights.

    Its arguments are addresses and distances in bytes: the weights and from one query's to the next one's, the values and from one
    to the next, what is asked for meanwhile at the same distances, how many values there are, the results and from one to the next, and
    the sums of weights `[queries]`.
    """
    wide, each_has = vector(REAL, LANES), vectors + 1  # a query has its columns and the sum of its weights

    def build(context, code, signature, arguments):
        weights, between, values, along, following, terms, out, apart, totals = arguments

        def body(term, totals_so_far):
            base, added = place(code, values, (term, along)), []
            ask_for(code, place(code, following, (term, along)), 4 * LANES * vectors, 2)
            those = [loaded(code, place(code, base, constant(4 * LANES * number)), wide) for number in range(vectors)]
            for row in range(queries):
                one = spread(code, loaded(code, place(code, weights, (between, row), (term, 4)), REAL), LANES)
                *mixed, total = totals_so_far[row * each_has : (row + 1) * each_has]
                added += [multiplied_and_added(code, mix, one, each) for mix, each in zip(mixed, those, strict=True)]
                added.append(code.fadd(total, one))
            return added

        added = added_up(code, wide, queries * each_has, terms, body)
        for row in range(queries):
            *mixed, total = added[row * each_has : (row + 1) * each_has]
            for number, value in enumerate(mixed):
                put_down(code, value, place(code, out, (apart, row), constant(4 * LANES * number)))
            put_down(code, code.extract_element(total, constant(0)), place(code, totals, constant(4 * row)))
        return context.get_dummy_value()

    @intrinsic
    def mix(typing, weights, between, values, along, following, terms, out, apart, totals):
        return types.void(*[types.intp] * 9), build

    return mix


# Queries by keys, and queries by columns of values: as many as the registers hold.
four_by_four, four_by_one = dotting(4, 4), dotting(4, 1)
two_by_four, two_by_one = dotting(2, 4), dotting(2, 1)
one_by_eight, one_by_one = dotting(1, 8), dotting(1, 1)
four_of_32, four_of_8, two_of_32, two_of_8 = mixing(4, 4), mixing(4, 1), mixing(2, 4), mixing(2, 1)
one_of_64, one_of_8 = mixing(1, 8), mixing(1, 1)


@exactly_within
def dot(a, b):
    """The dot product of two rows of `8 n` numbers."""
    out = np.empty(1, np.float32)
    one_by_one(a.ctypes.data, 0, b.ctypes.data, 0, len(a) // LANES, out.ctypes.data, 0)
    return out[0]


@within
def most_of(row):
    """The largest number."""
    most = LOWEST
    for k in range(len(row)):
        most = larger(most, row[k])
    return most


@exactly_within
def ask_rows(address, rows, along):
    """Ask for so many rows of `along` bytes from the address on."""
    for line in range(0, rows * along, LINE):
        ask(address + line)


@exactly_within
def attend_exactly(asking, keys, values, following, visible, ends, scores, mixed, totals):
    """Write the attention of one, two or four queries `asking [q, head_dim]`, scaled already, into `mixed [q, head_dim]`.

    Query i sees those of the last M rows of `keys` and `values` `[rows, head_dim]` that `visible[i]`, bool `[M]`, marks, and all rows
    before them; behind row `ends[i]` it sees none. `scores [q, rows]` and `totals [q]` are room for the work. `head_dim` is a
    multiple of 8.

    Memory is read while the processor computes: values are asked for while keys are multiplied, and keys from the address `following`
    on while values are. Longer contexts than `NEAR` would only drive each other out of the cache.
    """
    count, size = asking.shape
    rows = len(keys)
    end = ends[0]
    for query in range(1, count):
        end = max(end, ends[query])
    chunks, before = size // LANES, rows - visible.shape[1]
    source, key, value = asking.ctypes.data, keys.ctypes.data, values.ctypes.data
    along, target, apart = 4 * size, scores.ctypes.data, 4 * scores.shape[1]
    near = end * along <= NEAR
    if not near:
        following = value
    whole = end - end % (8 if count == 1 else 4)
    if count == 4:
        for row in range(0, whole, 4):
            if near:
                ask_rows(value + row * along, 4, along)
            four_by_four(source, along, key + row * along, along, chunks, target + 4 * row, apart)
        for row in range(whole, end):
            four_by_one(source, along, key + row * along, along, chunks, target + 4 * row, apart)
    elif count == 2:
        for row in range(0, whole, 4):
            if near:
                ask_rows(value + row * along, 4, along)
            two_by_four(source, along, key + row * along, along, chunks, target + 4 * row, apart)
        for row in range(whole, end):
            two_by_one(source, along, key + row * along, along, chunks, target + 4 * row, apart)
    else:
        for row in range(0, whole, 8):
            if near:
                ask_rows(value + row * along, 8, along)
            one_by_eight(source, along, key + row * along, along, chunks, target + 4 * row, apart)
        for row in range(whole, end):
            one_by_one(source, along, key + row * along, along, chunks, target + 4 * row, apart)
    for query in range(count):
        some = scores[query, :end]
        for row in range(max(0, before), end):
            if not visible[query, row - before]:
                some[row] = LOWEST
        most = most_of(some)
        for row in range(end):
            score = some[row]
            weight = exp(score - most)
            some[row] = weight if score > LOWEST else np.float32(0)
    column, sums = 0, totals.ctypes.data
    while column < size:
        ahead = following + 4 * column
        at, out, left = value + 4 * column, mixed.ctypes.data + 4 * column, size - column
        if count == 1 and left >= 64:
            one_of_64(target, apart, at, along, ahead, end, out, along, sums)
            column += 64
        elif count == 4 and left >= 32:
            four_of_32(target, apart, at, along, ahead, end, out, along, sums)
            column += 32
        elif count == 2 and left >= 32:
            two_of_32(target, apart, at, along, ahead, end, out, along, sums)
            column += 32
        else:
            if count == 4:
                four_of_8(target, apart, at, along, ahead, end, out, along, sums)
            elif count == 2:
                two_of_8(target, apart, at, along, ahead, end, out, along, sums)
            else:
                one_of_8(target, apart, at, along, ahead, end, out, along, sums)
            column += 8
    for query in range(count):
        for k in range(size):
            mixed[query, k] /= totals[query]
