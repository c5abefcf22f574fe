"""Calls by address: arguments, answers and errors pass as in any call, and what another loop returns is refused."""

import numpy as np
import pytest
from numba import types

from engine.kernels.by_address import address_of, calling
from engine.kernels.compiling import exactly_compiled

MATRIX = types.Array(types.float32, 2, "C")
KIND = MATRIX(MATRIX, types.int64)
call = calling(KIND)


@exactly_compiled
def repeated(x, times):
    if times < 0:
        raise ValueError("cannot be undone")
    out = np.empty((times, x.shape[1]), np.float32)
    for row in range(times):
        out[row] = x[0]
    return out


@exactly_compiled
def tripled(x, times):
    return x * np.float32(times) * 3


@exactly_compiled
def total(address, x, times):
    return call(address, x, times).sum() + call(address, x, 2)[0, 0]


def test_one_compiled_loop_calls_whichever_it_is_given():
    x = np.full((1, 4), 2, np.float32)
    assert total(address_of(repeated, KIND), x, 3) == 3 * 4 * 2 + 2
    assert total(address_of(tripled, KIND), x, 3) == 9 * 4 * 2 + 12
    assert len(total.signatures) == 1


def test_an_error_comes_through():
    with pytest.raises(ValueError, match="cannot be undone"):
        total(address_of(repeated, KIND), np.zeros((1, 4), np.float32), -1)


def test_a_loop_that_returns_something_else_is_refused():
    with pytest.raises(TypeError, match="repeated returns array"):
        address_of(repeated, types.none(MATRIX, types.int64))
