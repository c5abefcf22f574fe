"""`engine.nets.medusa` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.medusa_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.kernels.compiling import compiled
from engine.kernels.eight_bit import EightBit, product
from engine.kernels.elementwise import exp, log_softmax, over_all
from engine.kernels.named_arrays import Ids, NamedArrays, Vector, arrays_of, unpacked
from engine.kernels.stack import NO_MATRIX
from engine.nets.layer import Net


class Head(NamedTuple):
    """One head, which guesses the tokens `vocabulary`.

    All heads of a net have the same `narrow`, which has no rows where the net is as wide as its target.
    """

    narrow: EightBit
    block: EightBit
    bias: Vector
    unembed: EightBit
    vocabulary: Ids


HEAD = arrays_of(Head)


@compiled
def guess(heads, final, k, vocab):
    """Log-probabilities `[n, V]` of head k from the target's `final [n, H]`."""
    head, entering = unpacked(Head, heads, HEAD * k), final
    x = np.empty((len(final), len(head.bias)), np.float32)
    if len(head.narrow.scale) > 0:
        entering = np.empty_like(x)
        product(final, head.narrow, entering)
    product(entering, head.block, x)
    for row in range(len(x)):
        for j in range(x.shape[1]):
            inner = x[row, j] + head.bias[j]
            x[row, j] = entering[row, j] + inner / (np.float32(1) + exp(-inner))
    log_q = np.empty((len(x), len(head.vocabulary)), np.float32)
    product(x, head.unembed, log_q)
    log_softmax(log_q)
    return log_q if len(head.vocabulary) == vocab else over_all(log_q, head.vocabulary, vocab)


class CompiledMedusa:
    def __init__(self, net: Net):
        self.vocab, narrow = net.config.vocab, EightBit.of(net.narrow.weight) if net.narrow else NO_MATRIX
        shared = EightBit.of(net.unembedding(0)) if net.config.own_vocab else None
        vocabulary = net.vocabulary.numpy() if shared else np.arange(self.vocab)
        self.heads = NamedArrays(
            *(
                Head(
                    narrow,
                    EightBit.of(block.weight),
                    block.bias.detach().numpy().copy(),
                    shared or EightBit.of(net.unembedding(k)),
                    vocabulary,
                )
                for k, block in enumerate(net.blocks)
            )
        )
        self(torch.zeros(1, net.config.reads), 0)  # compiling, or reading what was compiled before, belongs to loading

    def __call__(self, final: Tensor, k: int) -> Tensor:
        """As `engine.nets.medusa.Medusa.log_q`."""
        return torch.from_numpy(guess(self.heads.table, final.numpy(), k, self.vocab))
