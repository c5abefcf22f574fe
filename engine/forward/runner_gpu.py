"""`engine.forward.runner` at fixed addresses; held equal by tests/fast/test_equal_to_reference.py[forward.runner_gpu].

Shapes never change either, so a CUDA graph can hold the forward. New tokens write their rows at slots that a tensor names, attention
runs over the whole capacity of the cache under an additive mask, and nothing waits for the host.
The very same function runs eagerly on any device. Knows slots and masks; knows no tree.
"""

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from engine.forward.cache import KVCache, TransformersLayer

ROW_MULTIPLE = 1024  # capacities are multiples of it: lanes share what was captured, and kernels want multiples of 16


def static_capacity(rows: int) -> int:
    """The next number of rows that static forwards are made for."""
    return -(-rows // ROW_MULTIPLE) * ROW_MULTIPLE


def folded_sdpa(module, query, key, value, attention_mask, **kwargs):
    """transformers' sdpa attention, but query heads that share a key head become rows of one query when the mask is made for that.

    Such a mask has `groups * N` rows: the N rows of the forward once for every query head of a key head. Keys and values are then
    read where they lie; transformers would copy them `groups` times over. Any other mask gets transformers' own way.
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
    """Let the model attend through `folded_sdpa`; returns how many query heads share a key head there, 1 when it cannot."""
    config = model.config
    groups = config.num_attention_heads // config.num_key_value_heads
    if groups > 1 and config._attn_implementation != "folded_sdpa":
        model.set_attn_implementation("folded_sdpa")
    return groups if config._attn_implementation == "folded_sdpa" else 1


class SlotLayer(TransformersLayer):
    """One layer of a `KVCache` that writes rows at slots and shows attention every row there is."""

    slots: torch.Tensor  # int64 [N], one for each new row

    def update(self, key_states, value_states, *args, **kwargs):
        keys, values = self.cache.kv[self.layer]
        keys.index_copy_(1, self.slots, key_states[0])
        values.index_copy_(1, self.slots, value_states[0])
        return keys[None], values[None]


class StaticForward:
    """A runner's model over one cache. Two forwards with equal N launch the same kernels on the same addresses."""

    def __init__(self, runner, cache: KVCache, taps: tuple[int, ...] = ()):
        """`runner` is an `engine.forward.runner.Runner`.

        `taps` are the layers whose features are handed out (`Session` says what that is)."""
        self.runner, self.cache, self.taps = runner, cache, taps
        self.groups = fold_heads(runner.model)
        self.layers = [SlotLayer(cache, layer) for layer in range(len(cache.kv))]
        self.past = Cache(layers=self.layers)
        self.columns = torch.arange(cache.capacity, device=runner.device)

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, visible: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits `[N, V]` and features of `ids [N]` at `positions [N]`, whose rows go to `slots [N]`, no slot twice; int64.

        `visible` bool `[N, capacity]` says which slots each may attend to, its own included. A row must see one slot at least.
        """
        for layer in self.layers:
            layer.slots = slots
        lowest = torch.finfo(self.runner.dtype).min
        mask = torch.zeros(visible.shape, dtype=self.runner.dtype, device=visible.device).masked_fill_(~visible, lowest)
        mask = mask.repeat(self.groups, 1)[None, None]
        return self.runner.run(ids, positions, mask, self.past, taps=self.taps)

    def behind(self, base: torch.Tensor, lineage: torch.Tensor) -> torch.Tensor:
        """`visible [n, capacity]` of tree nodes whose tree lies at slots `base`, `base + 1`, ..: all slots before `base`, and there
        what `lineage` bool `[n, S]` says. `base` is a tensor of one number."""
        offset = self.columns - base
        inside = (offset >= 0) & (offset < lineage.shape[1])
        placed = lineage.index_select(1, offset.clamp(0, lineage.shape[1] - 1))
        return torch.where(inside, placed, offset < 0)
