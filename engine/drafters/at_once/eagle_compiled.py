"""`engine.drafters.eagle` grown at once; held equal by tests/fast/test_equal_to_reference.py[drafters.at_once.eagle_compiled]."""

from engine.kernels.compiling import compiled
from engine.kernels.growing_compiled import Root, call_grow
from engine.kernels.intrinsics import ticks
from engine.kernels.named_arrays import unpacked
from engine.nets.eagle_compiled import State, behind_root


@compiled
def grow_with_eagle(grow, below, session, tokens, features, chosen, position, start, rows, expansion, noise):
    """Grow a tree behind the last of `tokens [N]`; the rest is as in `engine.nets.eagle_compiled.behind_root`.

    `grow` and `below` are the addresses of `engine.kernels.growing_compiled.grow` and of `engine.nets.eagle_compiled.behind_level`.
    """
    begun, count = ticks(), len(tokens)
    log_q = behind_root(session, tokens, features, chosen, position, start, rows)
    capacity = len(unpacked(State, session, 0).outs)
    root = Root(tokens[count - 1], position + count - 1, rows + count, capacity, 0)
    call_grow(grow, begun, below, session, start, root, log_q, expansion, noise)
