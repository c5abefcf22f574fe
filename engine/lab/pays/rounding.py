"""Rounding: how far two logits' difference may move between runs that compute the same in another order. Knows one forward's logits.

A run adds up the same products in another order when another number of rows shares its forward, or when other kernels serve it. Each
rounding errs by at most u, half the type's spacing at 1. Errors of n roundings add up like a random walk, so to about sqrt(n) u of
what was rounded (Higham and Mary 2019). Two kinds count:

- Every layer adds twice to the hidden state, and each sum is stored in the type of the model. These reach the logits' spread.
- Every product of a matrix adds up as many terms as the matrix is wide, in float32 at least.
- The logit itself is rounded once, at its own size.

Four such errors meet: two logits in each of two runs. `tests/lab/test_doctor.py` holds the threshold against real forwards.
"""

import math

import torch

from engine.models.loading import DTYPES
from engine.models.pairs import QUANTISATIONS, LoadedPair

MEETING = 4  # two logits in each of two runs
# The type that a 4-bit target computes in, at the coarsest. An 8-bit one rounds to 127 steps either way, which is as coarse.
WHILE_QUANTISED = "bf16"


def rounding_threshold_of(pair: LoadedPair, logits: torch.Tensor, run_dtypes: list[str]) -> float:
    """The largest difference of two `logits [V]` that rounding may turn around, in the coarsest of `run_dtypes` and the pair's own
    type.
    """
    kinds = [DTYPES[WHILE_QUANTISED if name in QUANTISATIONS else name] for name in run_dtypes]
    config = pair.target.config
    wide = max(config.hidden_size, config.intermediate_size)
    units = [torch.finfo(kind).eps / 2 for kind in [*kinds, pair.target.dtype, torch.float32]]  # relative errors, u
    one = max(units[:-1]) + math.sqrt(wide) * units[-1]
    roundings = math.sqrt(2 * config.num_hidden_layers + 1)
    return MEETING * one * (roundings * float(logits.std()) + float(logits.abs().max()))
