"""Calls by address: arguments, answers and errors pass as in any call, at once or later, and what another loop returns is refused."""

import numpy as np
import pytest
from numba import types

from engine.kernels.by_address import (
    compile_and_get_address,
    make_call_by_address,
    make_error_returning_call_by_address,
    raise_returned_error,
)
from engine.kernels.compiling import exactly_compiled

MATRIX = types.Array(types.float32, 2, "C")
KIND = MATRIX(MATRIX, types.int64)
call = make_call_by_address(KIND)
FILLED = types.void(MATRIX, types.int64)
tried = make_error_returning_call_by_address(FILLED)


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
    assert total(compile_and_get_address(repeated, KIND), x, 3) == 3 * 4 * 2 + 2
    assert total(compile_and_get_address(tripled, KIND), x, 3) == 9 * 4 * 2 + 12
    assert len(total.signatures) == 1


def test_an_error_comes_through():
    with pytest.raises(ValueError, match="cannot be undone"):
        total(compile_and_get_address(repeated, KIND), np.zeros((1, 4), np.float32), -1)


@exactly_compiled
def filled(x, value):
    if value < 0:
        raise OverflowError("too little")
    x[:] = value


@exactly_compiled
def filled_twice(address, x, first, second):
    """Both are tried; what the first raised is raised behind them."""
    raised = tried(address, x, first)
    tried(address, x, second)
    raise_returned_error(raised)


def test_an_error_waits_until_it_is_raised_again():
    x, address = np.zeros((1, 4), np.float32), compile_and_get_address(filled, FILLED)
    filled_twice(address, x, 2, -1)
    assert (x == 2).all()
    with pytest.raises(OverflowError, match="too little"):
        filled_twice(address, x, -1, 3)
    assert (x == 3).all()


def test_a_loop_that_returns_something_else_is_refused():
    with pytest.raises(TypeError, match="repeated returns array"):
        compile_and_get_address(repeated, types.none(MATRIX, types.int64))
