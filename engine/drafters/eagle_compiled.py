"""`engine.drafters.eagle` grown in one compiled call; held equal by tests/fast/test_equal_to_reference.py[drafters.eagle_compiled]."""

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from engine.kernels.compiling import compiled
from engine.kernels.growing_compiled import Root, below, grow
from engine.kernels.intrinsics import ticks
from engine.kernels.named_arrays import unpacked
from engine.nets.eagle_compiled import State, behind_level, behind_root


class Eagle(NamedTuple):
    """An EAGLE session at work, none of whose entries sees a row before `start`."""

    session: np.ndarray
    start: int


@overload(below)
def below_eagle(at_work, ids, above, positions, visible, rows, asked):
    if getattr(at_work, "instance_class", None) is not Eagle:
        return None

    def log_q_below(at_work, ids, above, positions, visible, rows, asked):
        return behind_level(at_work.session, ids, above, positions, visible, at_work.start, rows, asked)

    return log_q_below


@compiled
def grow_with_eagle(session, tokens, features, chosen, position, start, rows, expansion, noise):
    """Grow a tree behind the last of `tokens [N]`; the rest is as in `engine.nets.eagle_compiled.behind_root`."""
    begun, count = ticks(), len(tokens)
    log_q = behind_root(session, tokens, features, chosen, position, start, rows)
    capacity = len(unpacked(State, session, 0).outs)
    root = Root(tokens[count - 1], position + count - 1, rows + count, capacity)
    grow(begun, Eagle(session, start), root, log_q, expansion, noise)
