"""`engine.drafters.model` grown in one compiled call; held equal by tests/fast/test_equal_to_reference.py[drafters.model_compiled]."""

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from engine.forward.llama_eight_bit import logits_of
from engine.kernels.attention import causal
from engine.kernels.compiling import compiled
from engine.kernels.elementwise import log_softmax
from engine.kernels.growing_compiled import Root, below, grow
from engine.kernels.intrinsics import ticks


class Model(NamedTuple):
    """A draft model at work: its weights as `engine.forward.llama_eight_bit` has them, and its cache's `kv`."""

    weights: np.ndarray
    kv: np.ndarray


@overload(below)
def below_model(at_work, ids, above, positions, visible, rows, asked):
    if getattr(at_work, "instance_class", None) is not Model:
        return None

    def log_q_below(at_work, ids, above, positions, visible, rows, asked):
        log_q = logits_of(at_work.weights, ids, positions, visible, at_work.kv, rows, np.bool_(False))
        log_softmax(log_q)
        return log_q

    return log_q_below


@compiled
def grow_with_model(weights, kv, tokens, rows, expansion, noise):
    """Grow a tree behind the last of `tokens [N]`, of which the first stands behind the `rows` of the context."""
    begun, count = ticks(), len(tokens)
    log_q = logits_of(weights, tokens, np.arange(rows, rows + count), causal(count), kv, rows, np.bool_(True))
    log_softmax(log_q)
    root = Root(tokens[count - 1], rows + count - 1, rows + count, kv.shape[3])
    grow(begun, Model(weights, kv), root, log_q, expansion, noise)
