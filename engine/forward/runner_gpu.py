"""`engine.forward.runner` at fixed addresses; held equal by tests/fast/test_equal_to_reference.py[forward.runner_gpu].

Shapes never change either, so a CUDA graph can hold the forward. New tokens write their rows at slots that a tensor names,
attention reads the whole capacity under an additive mask, and nothing waits for the host. The same function runs eagerly on any
device. A graph's kernels still take microseconds each, however few rows they have. So Llama and its kin run without transformers'
modules around their linear layers, in half as many kernels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from engine.forward.cache import KVCache, TransformersLayer, additive_mask
from engine.forward.layer_ops import Answer, Taps, features_of
from engine.forward.llama import has_known_layers
from engine.forward.sizes import LATENT, kv_heads_of
from engine.forward.windows import Masks, additive_masks_of

ROW_MULTIPLE = 1024  # capacities are multiples of it, so that lanes share graphs; kernels want multiples of 16


def static_capacity(rows: int) -> int:
    """The smallest capacity of static forwards that holds so many rows."""
    return -(-rows // ROW_MULTIPLE) * ROW_MULTIPLE


def folded_sdpa(module, query, key, value, attention_mask, **kwargs):
    """transformers' sdpa attention, but query heads that share a key head become rows of one query when the mask allows it.

    Such a mask has `groups * N` rows: the forward's N rows once for every query head of a key head. Keys and values are then read in
    place, where transformers would copy them `groups` times. Under any other mask transformers' own attention runs.
    """
    heads, count, width = query.shape[1:]
    shared = key.shape[1]
    rows = heads // shared * count
    if attention_mask is None or heads == shared or attention_mask.shape[2] != rows:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    attended = F.scaled_dot_product_attention(
        query.reshape(1, shared, rows, width), key, value, attn_mask=attention_mask, scale=kwargs.get("scaling")
    )
    return attended.reshape(1, heads, count, value.shape[-1]).transpose(1, 2).contiguous(), None


AttentionInterface.register("folded_sdpa", folded_sdpa)
AttentionMaskInterface.register("folded_sdpa", sdpa_mask)


def fold_heads(model: PreTrainedModel) -> int:
    """Let the model attend through `folded_sdpa`. Returns how many query heads share a key head, 1 when it cannot fold them."""
    config = model.config
    shared = None if config.model_type in LATENT or config.is_heterogeneous else kv_heads_of(config)
    groups = config.num_attention_heads // (shared or config.num_attention_heads)
    if groups > 1 and config._attn_implementation not in ("folded_sdpa", "eager"):  # eager has soft caps or sinks
        model.set_attn_implementation("folded_sdpa")
    return groups if config._attn_implementation == "folded_sdpa" else 1


class SlotLayer(TransformersLayer):
    """One layer of a `KVCache` that writes new rows at `slots` and shows attention the first `end` rows."""

    slots: Tensor  # int64 [N], one for each new row
    end: int | None = None  # the whole capacity

    def update(self, key_states, value_states, *args, **kwargs):
        keys, values = self.cached_rows_sized_like(key_states, value_states)
        keys.index_copy_(2, self.slots, key_states)
        values.index_copy_(2, self.slots, value_states)
        return keys[:, :, : self.end], values[:, :, : self.end]


def fused_norm(x: Tensor, norm: torch.nn.Module) -> Tensor:
    """The RMS norm of `x [..., H]` in one kernel."""
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


class StaticForward:
    """A runner's model over one cache. Two forwards with equal N launch the same kernels on the same addresses."""

    def __init__(self, runner, cache: KVCache, taps: Taps = ()):
        """`runner` is an `engine.forward.runner.Runner`. `taps` are the layers whose features are returned, see `Session`."""
        self.runner, self.cache, self.taps = runner, cache, taps
        self.groups, self.known = fold_heads(runner.model), has_known_layers(runner.model)
        self.layers = [SlotLayer(cache, layer) for layer in range(len(cache.kv))]
        self.past = Cache(layers=self.layers)
        self.columns = torch.arange(cache.capacity, device=runner.device)

    def __call__(
        self, ids: Tensor, positions: Tensor, slots: Tensor, visible: Tensor, behind: Tensor | None = None
    ) -> Answer:
        """Logits `[N, V]` and features of `ids [N]` at `positions [N]`, whose rows are written at `slots [N]`; all int64.

        No slot may be named twice. `visible` bool `[N, capacity]` says which slots each attends to, its own included: at least one.
        `behind [n]` names the rows whose logits `[n, V]` are wanted; None wants all.
        """
        for layer in self.layers:
            layer.slots = slots
        masks = additive_masks_of(self.runner.window, visible, self.fold_mask)
        if self.known:
            return self.run_layers(ids, positions, masks, behind)
        return self.runner.run_transformers(
            ids, positions, masks, self.past, 0 if behind is None else behind, self.taps
        )

    def fold_mask(self, visible: Tensor) -> Tensor:
        """The additive mask `[1, 1, groups * N, capacity]` that `folded_sdpa` takes, of `visible` bool `[N, capacity]`."""
        return additive_mask(visible, visible.shape[1], self.runner.dtype).repeat(self.groups, 1)[None, None]

    def run_layers(self, ids: Tensor, positions: Tensor, masks: Masks, behind: Tensor | None) -> Answer:
        """`Runner.run_transformers` of a model of `engine.forward.llama.FAMILIES`, without its modules' overhead."""
        stack, width = self.runner.model.model, self.cache.kv.shape[-1]
        x, tapped = stack.embed_tokens(ids), []
        cos, sin = (each[0, :, None] for each in stack.rotary_emb(x, positions[None]))
        sin = torch.cat([-sin[..., : width // 2], sin[..., width // 2 :]], -1)
        for number, (layer, past) in enumerate(zip(stack.layers, self.layers, strict=True), 1):
            part, read = layer.self_attn, fused_norm(x, layer.input_layernorm)
            inward = (part.q_proj, part.k_proj, part.v_proj)
            queries, keys, values = (linear(read).view(len(ids), -1, width) for linear in inward)
            heads = queries.shape[1], keys.shape[1]
            if hasattr(part, "q_norm"):
                queries, keys = fused_norm(queries, part.q_norm), fused_norm(keys, part.k_norm)
            both = torch.cat([queries, keys], 1)
            both = torch.addcmul(both * cos, both.roll(width // 2, -1), sin)
            queries, keys = (each.transpose(0, 1)[None] for each in both.split(heads, 1))
            keys, values = past.update(keys, values.transpose(0, 1)[None])
            mask = masks[stack.config.layer_types[number - 1]] if isinstance(masks, dict) else masks
            attended, _ = folded_sdpa(part, queries, keys, values, mask, scaling=part.scaling)
            x = x + part.o_proj(attended.reshape(len(ids), -1))
            x = x + layer.mlp(fused_norm(x, layer.post_attention_layernorm))
            tapped += [x] * (self.taps.count(number) + self.taps.count(-number))
        last = fused_norm(x, stack.norm)
        wanted = last if behind is None else last.index_select(0, behind)
        return self.runner.model.lm_head(wanted), features_of(tapped, last, self.taps) if self.taps else None


def visible_slots(columns: Tensor, root_slot: Tensor, ancestor_mask: Tensor) -> Tensor:
    """bool `[n, capacity]`: which of the slots `columns [capacity]` n nodes see, whose tree stands at the slots from `root_slot [1]`
    on.

    They see all slots before `root_slot`, and of the S slots from there those that `ancestor_mask` bool `[n, S]` marks.
    """
    offset = columns - root_slot
    inside = (offset >= 0) & (offset < ancestor_mask.shape[1])
    placed = ancestor_mask.index_select(1, offset.clamp(0, ancestor_mask.shape[1] - 1))
    return torch.where(inside, placed, offset < 0)
