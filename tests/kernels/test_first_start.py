"""The same bits in the process that compiles and in every later one: no loop is compiled in a way that gives its copies other bits."""

from engine.kernels.compiling import FAST


def test_no_loop_may_be_compiled_so_that_a_copy_of_it_has_other_bits():
    """numba keeps one copy of a loop for all that call it. Each of these lets copies add, divide or round in ways of their own."""
    assert FAST.isdisjoint({"fast", "reassoc", "contract", "arcp", "afn", "nsz"})
