"""`engine.forward.llama` compiled in eight bits; held equal by tests/fast/test_equal_to_reference.py[forward.llama_eight_bit].

A whole forward is one compiled call, with the norms' weights folded into the matrices. It is for drafts only, like every product in
eight bits: rounding costs acceptance, never losslessness. A larger draft gains from all threads, which
`engine.forward.llama_compiled` gives it, exactly.
"""

from typing import NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel

from engine.forward.cache import KVCache
from engine.forward.llama import head_norm_of, root_of, rotations, serves
from engine.forward.sizes import head_dim_of
from engine.kernels.attention import scale_heads, turn
from engine.kernels.compiling import able, compiled
from engine.kernels.eight_bit import EightBit, product
from engine.kernels.elementwise import add, put, unit_rows
from engine.kernels.layer import LayerWeights, layer
from engine.kernels.named_arrays import Cube, Matrix, NamedArrays, Number, Vector, arrays_of, unpacked

LARGEST = 2**23  # parameters of a model that is small
# The least elements in a draft's largest matrix, half the embedded draft's. Smaller drafts gain less than rounding costs in guesses.
LEAST = 2**18


class Ends(NamedTuple):
    """What comes before and after the layers, and what all layers share.

    `turns` are the rotations by position; `least` and `head_least` keep norms from zero.
    """

    embedding: Matrix
    head: EightBit
    turns: Cube
    least: Number
    head_least: Number


class Block(NamedTuple):
    """A layer. `bias [q + k + v]` is zeros where the model has none.

    `scales [heads + kv_heads, head_dim]` are the weights of the norms of queries and keys; without such norms it has no rows.
    """

    qkv: EightBit
    bias: Vector
    scales: Matrix
    rest: LayerWeights


ENDS, BLOCK = arrays_of(Ends), arrays_of(Block)


@compiled
def logits_of(weights, ids, positions, visible, kv, rows, last_only):
    """Logits `[N, V]` (`[1, V]` with `last_only`) of `ids [N]` at `positions [N]`; `visible` is as in `attend`.

    Their rows are written behind the first `rows` of `kv`. `weights` holds the `Ends` and a `Block` for every layer.
    """
    ends = unpacked(Ends, weights, 0)
    count, size = len(ids), kv.shape[4]
    x = np.empty((count, ends.embedding.shape[1]), np.float32)
    for row in range(count):
        put(ends.embedding[ids[row]], x[row])
    normed = np.empty_like(x)
    for number in range(len(kv)):
        block = unpacked(Block, weights, ENDS + BLOCK * number)
        qkv = np.empty((count, len(block.bias)), np.float32)
        unit_rows(x, ends.least, normed)
        product(normed, block.qkv, qkv)
        for row in range(count):
            add(block.bias, qkv[row])
        turned = len(block.bias) // size - kv.shape[2]
        scale_heads(qkv, block.scales, ends.head_least)
        turn(qkv, turned, ends.turns, positions)
        seeing = visible[count - 1 :] if last_only and number == len(kv) - 1 else visible
        x = layer(x, qkv, kv[number], seeing, np.int64(0), rows, block.rest, ends.least)
    normed, logits = np.empty_like(x), np.empty((len(x), len(ends.embedding)), np.float32)
    unit_rows(x, ends.least, normed)
    product(normed, ends.head, logits)
    return logits


def is_small(model: PreTrainedModel) -> bool:
    """Whether `EightBitLlama` computes this model of `engine.forward.llama.FAMILIES`, and one thread is enough for it.

    It must be float32, with few weights, an even MLP width and no biases after attention.
    """
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    biased = attention.o_proj.bias is not None or mlp.down_proj.bias is not None
    even = model.config.intermediate_size % 2 == 0
    return model.dtype == torch.float32 and even and not biased and model.num_parameters() <= LARGEST


def eight_bits_pay(draft: PreTrainedModel) -> bool:
    """Whether to compute a draft in eight bits, decided by its size.

    A timing could decide differently at the next load, and systems that draw from q would then write another text for the same seed.
    """
    return serves(draft) and is_small(draft) and max(each.numel() for each in draft.parameters()) >= LEAST and able()


class EightBitLlama:
    """The weights of a model that `is_small`, and its forward. It is called like a `LeanLlama`."""

    eight_bit = True

    def __init__(self, model: PreTrainedModel):
        config, root, blocks = model.config, model.config.hidden_size**0.5, []
        size = head_dim_of(config)
        for part in model.model.layers:
            attention, mlp = part.self_attn, part.mlp
            linears = (attention.q_proj, attention.k_proj, attention.v_proj)
            inward = torch.cat([each.weight for each in linears]) * part.input_layernorm.weight * root
            bias = torch.zeros(len(inward)) if linears[0].bias is None else torch.cat([each.bias for each in linears])
            scales = head_norm_of(attention, config)
            scales = torch.zeros(0, size) if scales is None else scales
            gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * part.post_attention_layernorm.weight
            rest = LayerWeights.of(attention.o_proj.weight, gate_up * root, mlp.down_proj.weight)
            blocks.append(Block(EightBit.of(inward), bias.detach().numpy(), scales.numpy(), rest))
        ends = Ends(
            embedding=model.model.embed_tokens.weight.detach().numpy(),
            head=EightBit.of(model.lm_head.weight * model.model.norm.weight * root),
            turns=rotations(model, size).numpy(),
            least=root_of(config.hidden_size * config.rms_norm_eps),
            head_least=root_of(size * config.rms_norm_eps),
        )
        self.weights = NamedArrays(ends, *blocks)

        # This call compiles, or loads compiled code, so that loading takes the time and no race does.
        shape = (config.num_hidden_layers, config.num_key_value_heads, size, 1, model.dtype, model.device)
        ids = torch.zeros(1).long()
        self(KVCache(*shape), ids, ids, None, last_only=True)

    def __call__(self, cache, ids, positions, visible, last_only, taps=()) -> tuple[torch.Tensor, None]:
        """As `LeanLlama.__call__`; drafts have no `taps`."""
        seen = np.ones((1, 1), np.bool_) if visible is None else np.ascontiguousarray(visible.numpy())
        where = ids.numpy(), positions.numpy(), seen, cache.numbers, cache.rows
        return torch.from_numpy(logits_of(self.weights.table, *where, last_only)), None
