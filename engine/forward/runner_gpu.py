"""`engine.forward.runner` at fixed addresses; held equal by tests/fast/test_equal_to_reference.py[forward.runner_gpu].

Shapes never change either, so a CUDA graph can hold the forward. New tokens write their rows at slots that a tensor names. Attention
reads the whole capacity of the cache under an additive mask. Nothing waits for the host. The same function runs eagerly on any device.
"""

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from engine.forward.cache import KVCache, TransformersLayer
from engine.forward.sizes import LATENT, kv_heads_of

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
    """One layer of a `KVCache` that writes new rows at `slots` and shows attention the whole capacity."""

    slots: torch.Tensor  # int64 [N], one for each new row

    def update(self, key_states, value_states, *args, **kwargs):
        keys, values = self.rows_for(key_states, value_states)
        keys.index_copy_(2, self.slots, key_states)
        values.index_copy_(2, self.slots, value_states)
        return keys, values


class StaticForward:
    """A runner's model over one cache. Two forwards with equal N launch the same kernels on the same addresses."""

    def __init__(self, runner, cache: KVCache, taps: tuple[int, ...] = ()):
        """`runner` is an `engine.forward.runner.Runner`. `taps` are the layers whose features are returned, see `Session`."""
        self.runner, self.cache, self.taps = runner, cache, taps
        self.groups = fold_heads(runner.model)
        self.layers = [SlotLayer(cache, layer) for layer in range(len(cache.kv))]
        self.past = Cache(layers=self.layers)
        self.columns = torch.arange(cache.capacity, device=runner.device)

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, visible: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits `[N, V]` and features of `ids [N]` at `positions [N]`, whose rows are written at `slots [N]`; all int64.

        No slot may be named twice. `visible` bool `[N, capacity]` says which slots each attends to, its own included: at least one.
        """
        for layer in self.layers:
            layer.slots = slots
        lowest = torch.finfo(self.runner.dtype).min
        mask = torch.zeros(visible.shape, dtype=self.runner.dtype, device=visible.device).masked_fill_(~visible, lowest)
        mask = mask.repeat(self.groups, 1)[None, None]
        return self.runner.run(ids, positions, mask, self.past, taps=self.taps)

    def behind(self, base: torch.Tensor, lineage: torch.Tensor) -> torch.Tensor:
        """`visible [n, capacity]` of n nodes of a tree whose rows stand at the slots from `base` on.

        They see all slots before `base`, and of the S slots from there those that `lineage` bool `[n, S]` marks. `base` is a tensor of
        one number.
        """
        offset = self.columns - base
        inside = (offset >= 0) & (offset < lineage.shape[1])
        placed = lineage.index_select(1, offset.clamp(0, lineage.shape[1] - 1))
        return torch.where(inside, placed, offset < 0)
