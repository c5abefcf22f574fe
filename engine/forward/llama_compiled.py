"""A small draft's forward on a CPU: all of it in one compiled call, its matrices in eight bits and the norms' weights folded into them.

For drafts only, like every rounded product; a larger draft's matrices are worth two threads, which `engine.forward.llama` gives them.
"""

from typing import NamedTuple

import numpy as np
import torch
from numba.extending import overload
from transformers import PreTrainedModel

from engine.forward.cache import KVCache
from engine.forward.llama import head_dim_of, head_norm_of, rotations
from engine.kernels.attention import causal, scale_heads, turn
from engine.kernels.compiling import compiled
from engine.kernels.eight_bit import Rounded, product
from engine.kernels.elementwise import add, log_softmax, put, unit_rows
from engine.kernels.expansion import Expansion, Terms
from engine.kernels.growing_compiled import below, grow
from engine.kernels.intrinsics import ticks
from engine.kernels.layer import LayerWeights, layer
from engine.kernels.packed_weights import bundled, cube, layer_weights, matrix, rounded, vector

LARGEST = 2**23  # elements of all matrices


class Block(NamedTuple):
    """A layer. `bias [q + k + v]` is zeros where there is none, `scales [heads + kv_heads, head_dim]` those of normed queries and keys,
    of no heads where they are not normed."""

    qkv: Rounded
    bias: np.ndarray
    scales: np.ndarray
    rest: LayerWeights


ARRAYS = 10  # of a block in the bundle
FIRST = 5  # array of the blocks there, behind embedding, head, rotations and the norms' least lengths


@compiled
def block_of(numbers, codes, layout, number):
    at = FIRST + ARRAYS * number
    bias, scales = vector(numbers, layout, at + 2), matrix(numbers, layout, at + 3)
    return Block(rounded(numbers, codes, layout, at), bias, scales, layer_weights(numbers, codes, layout, at + 4))


@compiled
def logits_of(numbers, codes, layout, ids, positions, visible, kv, rows, last_only):
    """Logits `[N, V]` (`[1, V]` with `last_only`) of `ids [N]`, whose rows are written behind the first `rows` of `kv`; `visible` as in
    `attend`."""
    embedding, turns = matrix(numbers, layout, 0), cube(numbers, layout, 3)
    least, head_least = vector(numbers, layout, 4)
    count, size = len(ids), kv.shape[4]
    x = np.empty((count, embedding.shape[1]), np.float32)
    for row in range(count):
        put(embedding[ids[row]], x[row])
    normed = np.empty_like(x)
    for number in range(len(kv)):
        block = block_of(numbers, codes, layout, number)
        qkv = np.empty((count, len(block.bias)), np.float32)
        unit_rows(x, least, normed)
        product(normed, block.qkv, qkv)
        for row in range(count):
            add(block.bias, qkv[row])
        turned = len(block.bias) // size - kv.shape[2]
        scale_heads(qkv, block.scales, head_least)
        turn(qkv, turned, turns, positions)
        seeing = visible[count - 1 :] if last_only and number == len(kv) - 1 else visible
        x = layer(x, qkv, kv[number], seeing, np.int64(0), rows, block.rest, least)
    normed, logits = np.empty_like(x), np.empty((len(x), len(embedding)), np.float32)
    unit_rows(x, least, normed)
    product(normed, rounded(numbers, codes, layout, 1), logits)
    return logits


class Drafting(NamedTuple):
    """A draft at work, as `engine.kernels.expansion` knows it."""

    numbers: np.ndarray
    codes: np.ndarray
    layout: np.ndarray
    kv: np.ndarray


@overload(below)
def below_small(net, ids, above, positions, visible, rows, asked):
    if getattr(net, "instance_class", None) is not Drafting:
        return None

    def log_q_below(net, ids, above, positions, visible, rows, asked):
        parts = net.numbers, net.codes, net.layout
        log_q = logits_of(*parts, ids, positions, visible, net.kv, rows, np.bool_(False))
        log_softmax(log_q)
        return log_q

    return log_q_below


@compiled
def expanded(numbers, codes, layout, tokens, kv, rows, nodes, worth, counts, noise, temperature, levels, terms, table):
    """Grow a tree behind the last of `tokens [N]`, of which the first stands behind the `rows` of the context."""
    begun, count = ticks(), len(tokens)
    positions = np.arange(rows, rows + count)
    log_q = logits_of(numbers, codes, layout, tokens, positions, causal(count), kv, rows, np.bool_(True))
    log_softmax(log_q)
    net, root = Drafting(numbers, codes, layout, kv), tokens[count - 1]
    rows, capacity = rows + count, kv.shape[3]
    grow(
        begun,
        net,
        log_q,
        nodes,
        worth,
        counts,
        root,
        rows - 1,
        rows,
        capacity,
        noise,
        temperature,
        levels,
        terms,
        table,
    )


def is_small(model: PreTrainedModel) -> bool:
    """Whether `SmallLlama` computes this model of `engine.forward.llama.FAMILIES`,
    and on one thread: few weights, in float32, without biases
    behind attention."""
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    biased = attention.o_proj.bias is not None or mlp.down_proj.bias is not None
    even = model.config.intermediate_size % 2 == 0
    return model.dtype == torch.float32 and even and not biased and model.num_parameters() <= LARGEST


class SmallLlama:
    """The weights of a model that `is_small`, and its forward; a `LeanLlama` to whoever calls it."""

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
            rest = LayerWeights(
                Rounded.of(attention.o_proj.weight), Rounded.of(gate_up * root), Rounded.of(mlp.down_proj.weight)
            )
            blocks.append(Block(Rounded.of(inward), bias.detach().numpy(), scales.numpy(), rest))
        least = np.array([config.hidden_size * config.rms_norm_eps, size * config.rms_norm_eps], np.float32) ** 0.5
        self.bundle = bundled(
            model.model.embed_tokens.weight.detach().numpy(),
            Rounded.of(model.lm_head.weight * model.model.norm.weight * root),
            rotations(model, size).numpy(),
            least,
            *blocks,
        )

        # Compiling, or reading what was compiled before, belongs to loading.
        shape = (config.num_hidden_layers, config.num_key_value_heads, size, 1, model.dtype, model.device)
        cache, ids = KVCache(*shape), torch.zeros(1).long()
        self(cache, ids, ids, None, last_only=True)
        noise = np.zeros((1, 0), np.float32)
        self.expand(cache, [0], Expansion(1, 1, 1), noise, np.float32(1), 1, Terms(1, 1))

    def expand(
        self,
        cache: KVCache,
        tokens: list[int],
        expansion: Expansion,
        noise: np.ndarray,
        temperature: np.float32,
        levels: int,
        terms: Terms,
    ) -> None:
        """Grow a tree behind the last of `tokens`, which follow the cache's rows and get theirs; the rest is as for
        `engine.kernels.growing_compiled.grow`, and no drafted row stays."""
        rows = cache.rows
        cache.room_for(len(tokens))
        wanted = noise, temperature, levels, terms.numbers, terms.table
        expanded(*self.bundle, np.array(tokens), cache.numbers, rows, *expansion.arrays, *wanted)
        cache.rows = rows + len(tokens)

    def __call__(self, cache, ids, positions, visible, last_only, taps=()) -> tuple[torch.Tensor, None]:
        """As `LeanLlama`, which see; drafts have no `taps`."""
        seen = np.ones((1, 1), np.bool_) if visible is None else visible.numpy()
        where = ids.numpy(), positions.numpy(), seen, cache.numbers, cache.rows
        return torch.from_numpy(logits_of(*self.bundle, *where, last_only)), None
