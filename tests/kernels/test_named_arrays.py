"""Named arrays: what is handed over as addresses comes back under its names, as it was, and can be written to."""

from typing import NamedTuple

import numpy as np
import pytest

from engine.kernels.compiling import compiled_assuming_no_nan
from engine.kernels.named_arrays import FloatScalar, Ids, Matrix, NamedArrays, count_arrays, unpack_named_arrays


class Inner(NamedTuple):
    ids: Ids
    least: FloatScalar


class Outer(NamedTuple):
    first: Matrix
    inner: Inner
    last: Matrix


@compiled_assuming_no_nan
def told(table, at):
    outer = unpack_named_arrays(Outer, table, at)
    outer.last[1, 0] += outer.inner.least
    return outer.first.shape, outer.inner.ids.sum(), outer.last[0, 2]


def nest(seed: int) -> Outer:
    inner = Inner(np.arange(seed, seed + 4), np.array(0.5, np.float32))
    return Outer(np.zeros((seed, 2), np.float32), inner, np.full((2, 3), seed, np.float32))


def test_a_nest_comes_back_under_its_names_from_any_row_of_the_table():
    nests = nest(3), nest(7)
    named = NamedArrays(*nests)
    assert count_arrays(Outer) == 4 and len(named.table) == 8
    assert told(named.table, 0) == ((3, 2), 3 + 4 + 5 + 6, 3.0)
    assert told(named.table, count_arrays(Outer)) == ((7, 2), 7 + 8 + 9 + 10, 7.0)
    assert nests[0].last[1, 0] == 3.5 and nests[1].last[1, 0] == 7.5


def test_only_contiguous_arrays_are_handed_over():
    with pytest.raises(ValueError, match="read contiguous arrays, this one has strides"):
        NamedArrays(nest(3)._replace(first=np.zeros((4, 4), np.float32)[:, :2]))


def test_named_arrays_keep_what_they_point_to():
    """Only the table is in use when the nest's other references are gone."""
    named = NamedArrays(*(nest(number) for number in range(3, 40)))
    for row in range(0, len(named.table), count_arrays(Outer)):
        number = 3 + row // count_arrays(Outer)
        assert told(named.table, row) == ((number, 2), 4 * number + 6, float(number))
