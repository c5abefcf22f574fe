"""A Llama layer in one compiled loop, its matrices in eight bits. Knows arrays; knows no model and no tree."""

from typing import NamedTuple

import numpy as np
import torch
from numba import types

from engine.kernels.attention import attended
from engine.kernels.by_address import address_of, calling
from engine.kernels.compiling import compiled, within
from engine.kernels.eight_bit import EightBit, product
from engine.kernels.elementwise import add, gated, unit_rows
from engine.kernels.named_arrays import Code, Mask, Matrix, Number, Rows, compiled_type


class LayerWeights(NamedTuple):
    """A Llama layer's matrices after its query/key/value product. The second norm's weight is folded into `gate_up`.

    `loop` is the address of `layer_itself`.
    """

    out: EightBit
    gate_up: EightBit
    down: EightBit
    loop: Code

    @classmethod
    def of(cls, out: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> "LayerWeights":
        return cls(EightBit.of(out), EightBit.of(gate_up), EightBit.of(down), address_of(layer_itself, LAYER))


TAKES = Matrix, Matrix, Rows, Mask, types.int64, types.int64, LayerWeights, Number
LAYER = compiled_type(Matrix)(*map(compiled_type, TAKES))
call = calling(LAYER)


@compiled
def layer(x, qkv, kv, visible, start, rows, weights, least):
    """The residual stream `[n, H]` after a layer, for the last n of N entries, where n is the number of `visible`'s rows.

    `x [N, H]` is the stream before the layer. `qkv` of all N entries, `kv`, `visible`, `start` and `rows` are as in `attended`.
    """
    return call(weights.loop, x, qkv, kv, visible, start, rows, weights, least)


@within
def layer_itself(x, qkv, kv, visible, start, rows, weights, least):
    """`layer`, which every net calls by its address."""
    count, hidden = len(visible), x.shape[1]
    stream = np.empty((count, hidden), np.float32)
    product(attended(qkv, kv, visible, start, rows, count), weights.out, stream)
    for row in range(count):
        add(x[len(x) - count + row], stream[row])
    normed, gate_up = np.empty_like(stream), np.empty((count, 4 * weights.down.weight.shape[1]), np.float32)
    unit_rows(stream, least, normed)
    product(normed, weights.gate_up, gate_up)
    product(gated(gate_up), weights.down, normed)
    for row in range(count):
        add(normed[row], stream[row])
    return stream
