"""`engine.drafters.model` grown at once; held equal by tests/fast/test_equal_to_reference.py[drafters.model_compiled]."""

from typing import NamedTuple

import numpy as np

from engine.forward.llama_eight_bit import forward_logits
from engine.kernels.attention import causal_mask
from engine.kernels.compiling import compiled, within
from engine.kernels.elementwise import log_softmax
from engine.kernels.growing_compiled import GrowthRoot, call_grow
from engine.kernels.intrinsics import ticks
from engine.kernels.named_arrays import Cache, unpack_nest


class DraftCache(NamedTuple):
    """The cache of a draft model. It stands last in the drafter's table, behind the weights of `engine.forward.llama_eight_bit`."""

    kv: Cache


@within
def log_q_of_level(parts, tokens, parent_outputs, positions, visible, first_row, rows, first_output):
    """As `engine.kernels.growing_compiled.BELOW`."""
    kv = unpack_nest(DraftCache, parts, len(parts) - 1).kv
    log_q = forward_logits(parts, tokens, positions, visible, kv, rows, np.bool_(False))
    log_softmax(log_q)
    return log_q


@compiled
def grow_with_model(grow, below, parts, tokens, rows, expansion, noise):
    """Grow a tree behind the last of `tokens [N]`, of which the first stands behind the `rows` of the context.

    `grow` and `below` are the addresses of `engine.kernels.growing_compiled.grow` and of `log_q_of_level`.
    """
    begun, count, kv = ticks(), len(tokens), unpack_nest(DraftCache, parts, len(parts) - 1).kv
    log_q = forward_logits(parts, tokens, np.arange(rows, rows + count), causal_mask(count), kv, rows, np.bool_(True))
    log_softmax(log_q)
    root = GrowthRoot(tokens[count - 1], rows + count - 1, rows + count, kv.shape[3], 0)
    call_grow(grow, begun, below, parts, 0, root, log_q, expansion, noise)
