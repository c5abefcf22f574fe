"""A head of `engine.nets.medusa.Medusa` as a CPU drafts with it: eight-bit weights, one compiled call."""

import numpy as np

from engine.kernels.compiling import compiled
from engine.kernels.eight_bit import product
from engine.kernels.elementwise import exp, log_softmax
from engine.kernels.packed_weights import rounded, vector

ARRAYS = 5  # of a head in the bundle


@compiled
def guess(numbers, codes, layout, final, k, vocab):
    """Log-probabilities `[n, V]` of head k from `final [n, H]`, in eight-bit weights."""
    at, x = ARRAYS * k, np.empty_like(final)
    product(final, rounded(numbers, codes, layout, at), x)
    bias = vector(numbers, layout, at + 2)
    for row in range(len(x)):
        for j in range(x.shape[1]):
            inner = x[row, j] + bias[j]
            x[row, j] = final[row, j] + inner / (np.float32(1) + exp(-inner))
    log_q = np.empty((len(x), vocab), np.float32)
    product(x, rounded(numbers, codes, layout, at + 3), log_q)
    log_softmax(log_q)
    return log_q
