"""Our own forward: Llama and its kin on a CPU, without transformers' modules.

On two cores a small model spends much of a forward in module overhead and in badly laid out matrix products. This forward has neither.
`engine.forward.llama_compiled` takes its place in float32 wherever compiled code runs. Tests hold it equal to the transformers path.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from engine.forward.cache import KVCache
from engine.forward.layer_ops import LayerOps, features_of
from engine.forward.packed_linear import on_cpu, pack, packed_product
from engine.forward.windows import layer_types, narrow
from engine.kernels.attention import turns_of

FAMILIES = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
STEADY_ROPE = ("default", "linear", "llama3", "yarn")  # one table of angles for texts of any length


def serves(model: PreTrainedModel) -> bool:
    """Whether our own forward computes exactly this model: one of `FAMILIES` on a CPU, with full attention in every layer."""
    return on_cpu(model) and is_known(model)


def is_known(model: PreTrainedModel) -> bool:
    """Whether the model is one of `FAMILIES`, with full attention in every layer, whatever type its weights have."""
    config = model.config
    return (
        type(model) in FAMILIES
        and layer_types(config) == {"full_attention"}
        and not narrow(config)
        and config.hidden_act == "silu"
        and model.model.rotary_emb.rope_type in STEADY_ROPE
    )


def rotations(model: PreTrainedModel) -> torch.Tensor:
    """Cosines and sines by position, `[context, 2, head_dim / 2]`."""
    rotary = model.model.rotary_emb
    places = torch.arange(model.config.max_position_embeddings)
    return turns_of(places, rotary.inv_freq) * rotary.attention_scaling


def head_norm_of(attention: nn.Module, heads: int, kv_heads: int) -> torch.Tensor | None:
    """Weights `[heads + kv_heads, head_dim]` of the norms of queries and keys, times sqrt(head_dim); None without such norms."""
    if not hasattr(attention, "q_norm"):
        return None
    weights = torch.stack([attention.q_norm.weight] * heads + [attention.k_norm.weight] * kv_heads).detach()
    return weights * weights.shape[1] ** 0.5


def joined(*linears: nn.Linear) -> torch.Tensor:
    """The matrices of linear layers that read the same input, one below the other."""
    return torch.cat([each.weight for each in linears]).detach()


def bias_of(*linears: nn.Linear) -> torch.Tensor | None:
    """The biases of linear layers in a row; None for layers without."""
    return None if linears[0].bias is None else torch.cat([each.bias for each in linears]).detach()


def root_of(number: float) -> np.ndarray:
    """The root, as compiled loops take a number."""
    return np.asarray(np.sqrt(np.float32(number)))


class Weight:
    """The `joined` matrices of linear layers, packed, and their biases."""

    def __init__(self, *linears: nn.Linear):
        self.packed, self.bias = pack(joined(*linears)), bias_of(*linears)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`x [N, in]` times the transposed matrix, plus the bias: `[N, out]`."""
        return packed_product(x, self.packed, self.bias)


class TensorLlama:
    """The weights of a model of `FAMILIES`, with query/key/value and gate/up stacked, and one forward over them."""

    def __init__(self, model: PreTrainedModel):
        config = model.config
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.embedding = model.model.embed_tokens.weight.detach()
        self.layers, norms, head_norms = [], [], []
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            norms += [layer.input_layernorm.weight, layer.post_attention_layernorm.weight]
            head_norms.append(head_norm_of(attention, heads, kv_heads))
            self.layers.append(
                (
                    Weight(attention.q_proj, attention.k_proj, attention.v_proj),
                    Weight(attention.o_proj),
                    Weight(mlp.gate_proj, mlp.up_proj),
                    Weight(mlp.down_proj),
                )
            )
        self.head = Weight(model.lm_head)
        self.ops = LayerOps(config, [*norms, model.model.norm.weight], head_norms, rotations(model))

    def __call__(
        self,
        cache: KVCache,
        ids: torch.Tensor,
        positions: torch.Tensor,
        visible: torch.Tensor | None,
        last_only: bool,
        taps: tuple[int, ...] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits `[N, V]` (`[1, V]` with `last_only`) of `ids [N]` at `positions [N]`, and with `taps` the features of `Session`.

        Their rows are written behind the cache's committed ones. `visible` bool `[N, M]` says which of the last M rows each may see;
        all see the rows before those. None is for a single query.
        """
        where = self.ops.where(cache, positions, visible)
        return self.through(lambda qkv, layer: self.ops.attended(qkv, layer, where), ids, last_only, taps)

    def together(
        self,
        caches: list[KVCache],
        ids: torch.Tensor,
        positions: torch.Tensor,
        visible: list[torch.Tensor],
        taps: tuple[int, ...] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`__call__` of the rows of B sequences, one sequence's behind the other's, each with its own cache and `visible [n, M]`.

        Matrices meet all rows at once. Attention goes sequence by sequence, over a sequence's own cache.
        """
        counts = [len(mask) for mask in visible]
        parts = zip(caches, positions.split(counts), visible, strict=True)
        where = [self.ops.where(*part) for part in parts]

        def attended(qkv: torch.Tensor, layer: int) -> torch.Tensor:
            rows = zip(qkv.split(counts), where, strict=True)
            return torch.cat([self.ops.attended(each, layer, there) for each, there in rows])

        return self.through(attended, ids, False, taps)

    def through(
        self,
        attended: Callable[[torch.Tensor, int], torch.Tensor],
        ids: torch.Tensor,
        last_only: bool,
        taps: tuple[int, ...],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What `__call__` returns, where `attended(qkv, layer)` is a layer's attention `[N, heads * head_dim]`."""
        ops = self.ops
        x, tapped = self.embedding.index_select(0, ids), []
        normed = ops.first(x)
        for number, (qkv, out, gate_up, down) in enumerate(self.layers):
            x, normed = ops.added(x, out(attended(qkv(normed), number)), 2 * number + 1)
            x, normed = ops.added(x, down(ops.gated(gate_up(normed))), 2 * number + 2)
            tapped += [x] * (taps.count(number + 1) + taps.count(-number - 1))
        logits = self.head(normed[-1:] if last_only else normed)
        return logits, features_of(tapped, normed, taps) if taps else None
