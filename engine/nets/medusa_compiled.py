"""`engine.nets.medusa` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.medusa_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.kernels.compiling import compiled_assuming_no_nan
from engine.kernels.eight_bit import NO_MATRIX, EightBitMatrix, multiply_eight_bit
from engine.kernels.elementwise import clamped_float32_exp, expand_log_q_to_full_vocab, log_softmax_in_place
from engine.kernels.named_arrays import Ids, NamedArrays, Vector, count_arrays, unpack_named_arrays
from engine.nets.layer import Net


class MedusaHead(NamedTuple):
    """One head, which guesses the tokens `vocabulary`.

    All heads of a net have the same `narrow`, which has no rows where the net is as wide as its target.
    """

    narrow: EightBitMatrix
    block: EightBitMatrix
    bias: Vector
    unembed: EightBitMatrix
    vocabulary: Ids


HEAD = count_arrays(MedusaHead)


@compiled_assuming_no_nan
def log_q_of_head(heads_table, final, head_index, vocab_size):
    """Log-probabilities `[n, V]` of head k from the target's `final [n, H]`."""
    head, entering = unpack_named_arrays(MedusaHead, heads_table, HEAD * head_index), final
    x = np.empty((len(final), len(head.bias)), np.float32)
    if head.narrow.stored.shape[0] > 0:
        entering = np.empty_like(x)
        multiply_eight_bit(final, head.narrow, entering)
    multiply_eight_bit(entering, head.block, x)
    for row in range(len(x)):
        for j in range(x.shape[1]):
            inner = x[row, j] + head.bias[j]
            x[row, j] = entering[row, j] + inner / (np.float32(1) + clamped_float32_exp(-inner))
    log_q = np.empty((len(x), len(head.vocabulary)), np.float32)
    multiply_eight_bit(x, head.unembed, log_q)
    log_softmax_in_place(log_q)
    return (
        log_q if len(head.vocabulary) == vocab_size else expand_log_q_to_full_vocab(log_q, head.vocabulary, vocab_size)
    )


class CompiledMedusa:
    def __init__(self, net: Net):
        self.vocab, narrow = net.config.vocab, EightBitMatrix.quantise(net.narrow.weight) if net.narrow else NO_MATRIX
        shared = EightBitMatrix.quantise(net.unembedding_of_head(0)) if net.config.own_vocab else None
        vocabulary = net.vocabulary.numpy() if shared else np.arange(self.vocab)
        self.heads = NamedArrays(
            *(
                MedusaHead(
                    narrow,
                    EightBitMatrix.quantise(block.weight),
                    block.bias.detach().numpy().copy(),
                    shared or EightBitMatrix.quantise(net.unembedding_of_head(k)),
                    vocabulary,
                )
                for k, block in enumerate(net.blocks)
            )
        )
        self(
            torch.zeros(1, net.config.feature_size), 0
        )  # compiling, or reading what was compiled before, belongs to loading

    def __call__(self, final: Tensor, head_index: int) -> Tensor:
        """As `engine.nets.medusa.Medusa.log_q`."""
        return torch.from_numpy(log_q_of_head(self.heads.table, final.numpy(), head_index, self.vocab))
