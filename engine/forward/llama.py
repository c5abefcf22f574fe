"""Our own forward: Llama and its kin on a CPU, without transformers' modules.

On two cores a small model spends much of a forward in module overhead and in badly laid out matrix products. This forward has neither.
`engine.forward.llama_compiled` takes its place in float32 wherever compiled code runs. Tests hold it equal to the transformers path.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

from engine.forward.cache import KVCache, additive_mask
from engine.forward.layer_ops import (
    LogitsAndFeatures,
    TappedLayers,
    attend_with_mask,
    normalise_rms,
    stack_features_of_taps,
)
from engine.forward.packed_linear import is_unquantised_on_cpu, multiply_packed_weight, pack_weight_for_onednn
from engine.forward.rounded_linear import EightBitLinear
from engine.forward.sizes import head_dim_of
from engine.forward.windows import attention_types_of, has_narrow_window
from engine.kernels.attention import rotation_table_of

FAMILIES = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
STEADY_ROPE = ("default", "linear", "llama3", "yarn")  # one table of angles for texts of any length


def can_use_custom_cpu_forward(model: PreTrainedModel) -> bool:
    """Whether our own forward computes exactly this model: one of `FAMILIES` on a CPU, with full attention in every layer."""
    return is_unquantised_on_cpu(model) and is_full_attention_llama(model)


def is_full_attention_llama(model: PreTrainedModel) -> bool:
    """Whether the model is one of `FAMILIES`, with full attention in every layer, whatever type its weights have."""
    config = model.config
    full = attention_types_of(config) == {"full_attention"} and not has_narrow_window(config)
    return full and is_known_llama_family(model)


def is_known_llama_family(model: PreTrainedModel) -> bool:
    """Whether the model is one of `FAMILIES`, with sliding windows or without."""
    known = type(model) in FAMILIES and model.config.hidden_act == "silu"
    return known and model.model.rotary_emb.rope_type in STEADY_ROPE


def rotation_table_of_model(model: PreTrainedModel) -> Tensor:
    """Cosines and sines by position, `[context, 2, head_dim / 2]`."""
    rotary = model.model.rotary_emb
    places = torch.arange(model.config.max_position_embeddings)
    return rotation_table_of(places, rotary.inv_freq) * rotary.attention_scaling


def scaled_head_norms(attention: nn.Module, heads: int, kv_heads: int) -> Tensor | None:
    """Weights `[heads + kv_heads, head_dim]` of the norms of queries and keys, times sqrt(head_dim); None without such norms."""
    if not hasattr(attention, "q_norm"):
        return None
    weights = torch.stack([attention.q_norm.weight] * heads + [attention.k_norm.weight] * kv_heads).detach()
    return weights * weights.shape[1] ** 0.5


def join_matrices(*linears: nn.Linear | EightBitLinear) -> Tensor:
    """The matrices of linear layers that read the same input, one below the other."""
    return torch.cat([each.weight for each in linears]).detach()


def join_biases(*linears: nn.Linear | EightBitLinear) -> Tensor | None:
    """The biases of linear layers in a row; None for layers without."""
    return None if linears[0].bias is None else torch.cat([each.bias for each in linears]).detach()


class JoinedLinear:
    """The matrices of linear layers, by `join_matrices` and packed, and their biases."""

    def __init__(self, *linears: nn.Linear):
        self.packed, self.bias = pack_weight_for_onednn(join_matrices(*linears)), join_biases(*linears)

    def __call__(self, x: Tensor) -> Tensor:
        """`x [N, in]` times the transposed matrix, plus the bias: `[N, out]`."""
        return multiply_packed_weight(x, self.packed, self.bias)


class TensorLlama:
    """The weights of a model of `FAMILIES`, with query/key/value and gate/up stacked, and one forward over them."""

    def __init__(self, model: PreTrainedModel):
        config, root = model.config, model.config.hidden_size**0.5
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.width, self.head = head_dim_of(config), JoinedLinear(model.lm_head)
        self.embedding, self.norm = model.model.embed_tokens.weight.detach(), model.model.norm.weight.detach() * root
        self.layers = [
            (
                layer.input_layernorm.weight.detach() * root,
                JoinedLinear(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                scaled_head_norms(layer.self_attn, self.heads, self.kv_heads),
                JoinedLinear(layer.self_attn.o_proj),
                layer.post_attention_layernorm.weight.detach() * root,
                JoinedLinear(layer.mlp.gate_proj, layer.mlp.up_proj),
                JoinedLinear(layer.mlp.down_proj),
            )
            for layer in model.model.layers
        ]
        sizes = config.hidden_size, self.width
        self.norm_floor, self.head_norm_floor = (torch.tensor((size * config.rms_norm_eps) ** 0.5) for size in sizes)
        # The sines carry the sign, so a rotation is head * cos + swapped halves * sin
        cos, sin = rotation_table_of_model(model).unbind(1)
        self.rotations = torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], 1)[:, :, None].to(
            model.dtype
        )

    def __call__(
        self,
        cache: KVCache,
        ids: Tensor,
        positions: Tensor,
        visible: Tensor | None,
        last_only: bool,
        taps: TappedLayers = (),
    ) -> LogitsAndFeatures:
        """Logits `[N, V]` (`[1, V]` with `last_only`) of `ids [N]` at `positions [N]`, and with `taps` the features of `Session`.

        Their rows are written behind the cache's committed ones. `visible` bool `[N, M]` says which of the last M rows each may see;
        all see the rows before those. None is for a single query.
        """
        return self.run_layers_and_head(
            [self.cache_mask_and_rotations_of(cache, positions, visible)], [], ids, taps, last_only
        )

    def forward_batch(
        self, caches: list[KVCache], ids: Tensor, positions: Tensor, visible: list[Tensor], taps: TappedLayers = ()
    ) -> LogitsAndFeatures:
        """`__call__` of B sequences' rows, one behind the other. Attention goes by sequence, with its cache and `visible [n, M]`."""
        counts = [len(mask) for mask in visible]
        where = [
            self.cache_mask_and_rotations_of(*part)
            for part in zip(caches, positions.split(counts), visible, strict=True)
        ]
        return self.run_layers_and_head(where, counts, ids, taps, False)

    def run_layers_and_head(
        self,
        cache_mask_and_rotations: list[tuple],
        rows_by_sequence: list[int],
        ids: Tensor,
        taps: TappedLayers,
        last_only: bool,
    ) -> LogitsAndFeatures:
        """What `forward_batch` returns. `cache_mask_and_rotations` holds what `cache_mask_and_rotations_of` gave for each sequence,
        `rows_by_sequence` its rows; [] for one.
        """
        x, tapped = self.embedding.index_select(0, ids), []
        for number, (norm, qkv, norms, out, norm_mlp, gate_up, down) in enumerate(self.layers):
            inward = qkv(normalise_rms(x, norm, self.norm_floor))
            if len(cache_mask_and_rotations) == 1:
                attended = self.store_kv_and_attend(inward, number, norms, *cache_mask_and_rotations[0])
            else:
                rows = zip(inward.split(rows_by_sequence), cache_mask_and_rotations, strict=True)
                attended = torch.cat([self.store_kv_and_attend(each, number, norms, *there) for each, there in rows])
            x = x + out(attended)
            gate, up = gate_up(normalise_rms(x, norm_mlp, self.norm_floor)).chunk(2, -1)
            x = x + down(F.silu(gate).mul_(up))
            tapped += [x] * (taps.count(number + 1) + taps.count(-number - 1))
        last = normalise_rms(x, self.norm, self.norm_floor)
        logits = self.head(last[-1:] if last_only else last)
        return logits, stack_features_of_taps(tapped, last, taps) if taps else None

    def cache_mask_and_rotations_of(self, cache: KVCache, positions: Tensor, visible: Tensor | None) -> tuple:
        """What the layers of one forward share: the cache, the additive mask and the rotations of the `positions`."""
        mask = None if visible is None else additive_mask(visible, cache.rows + len(positions), self.rotations.dtype)
        return cache, mask, *self.rotations.index_select(0, positions).unbind(1)

    def store_kv_and_attend(
        self,
        qkv: Tensor,
        layer: int,
        norms: Tensor | None,
        cache: KVCache,
        mask: Tensor | None,
        cos: Tensor,
        sin: Tensor,
    ) -> Tensor:
        """Attention `[N, heads * head_dim]` of `qkv`; keys and values are first written behind the cache's committed rows."""
        start, end = cache.rows, cache.rows + len(qkv)
        keys, values = cache.layers[layer]
        rotated, new_values = qkv.view(1, len(qkv), -1, self.width).split(
            (self.heads + self.kv_heads, self.kv_heads), 2
        )
        if norms is not None:
            rotated = normalise_rms(rotated, norms, self.head_norm_floor)
        rotated = torch.addcmul(rotated * cos, rotated.roll(self.width // 2, -1), sin)
        queries, new_keys = rotated.split((self.heads, self.kv_heads), 2)
        keys[:, :, start:end] = new_keys.transpose(1, 2)
        values[:, :, start:end] = new_values.transpose(1, 2)
        return attend_with_mask(queries, keys[:, :, :end], values[:, :, :end], mask)
