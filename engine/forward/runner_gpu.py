"""`engine.forward.runner` at fixed addresses; held equal by tests/fast/test_equal_to_reference.py[forward.runner_gpu].

Shapes never change either, so a CUDA graph can hold the forward. New tokens write their rows at slots that a tensor names,
attention reads the whole capacity under an additive mask, and nothing waits for the host. The same function runs eagerly on any
device. A graph's kernels still take microseconds each, however few rows they have. So Llama and its kin run without transformers'
modules around their linear layers, in half as many kernels.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.forward.cache import KVCache, TransformersCacheLayer, additive_mask
from engine.forward.layer_ops import LogitsAndFeatures, TappedLayers, stack_features_of_taps
from engine.forward.llama import is_known_llama_family
from engine.forward.llama_layer import Rotary, TransformersNamedLayer, normalise_rms
from engine.forward.sizes import LATENT, head_dim_of, kv_heads_of
from engine.forward.windows import Masks, additive_masks_by_layer_type

if TYPE_CHECKING:
    from engine.forward.runner import Runner

ROW_MULTIPLE = 1024  # capacities are multiples of it, so that lanes share graphs; kernels want multiples of 16


def round_up_static_capacity(rows: int) -> int:
    """The smallest capacity of static forwards that holds so many rows."""
    return -(-rows // ROW_MULTIPLE) * ROW_MULTIPLE


def enable_folded_heads_and_get_group_size(model: PreTrainedModel) -> int:
    """Let the model attend through `folded_sdpa`. Returns how many query heads share a key head, 1 when it cannot fold them."""
    config = model.config
    shared = None if config.model_type in LATENT or config.is_heterogeneous else kv_heads_of(config)
    groups = config.num_attention_heads // (shared or config.num_attention_heads)
    if groups > 1 and config._attn_implementation not in ("folded_sdpa", "eager"):  # eager has soft caps or sinks
        model.set_attn_implementation("folded_sdpa")
    return groups if config._attn_implementation == "folded_sdpa" else 1


class SlotCacheLayer(TransformersCacheLayer):
    """One layer of a `KVCache` that writes new rows at `slots` and shows attention the first `visible_end` rows."""

    slots: Tensor  # int64 [N], one for each new row
    visible_end: int | None = None  # the whole capacity

    def update(self, key_states, value_states, *args, **kwargs):
        keys, values = self.cached_kv_sized_like(key_states, value_states)
        keys.index_copy_(2, self.slots, key_states)
        values.index_copy_(2, self.slots, value_states)
        return keys[:, :, : self.visible_end], values[:, :, : self.visible_end]


class StaticForward:
    """A runner's model over one cache. Two forwards with equal N launch the same kernels on the same addresses."""

    def __init__(self, runner: "Runner", cache: KVCache, taps: TappedLayers = ()):
        """`taps` are the layers whose features are returned, see `Session`."""
        self.runner, self.cache, self.taps = runner, cache, taps
        self.groups = enable_folded_heads_and_get_group_size(runner.model)
        self.known: list[TransformersNamedLayer] = []  # layers of a known family
        if is_known_llama_family(model := runner.model):
            config = model.config
            sizes = config.num_attention_heads, config.num_key_value_heads, head_dim_of(config), config.rms_norm_eps
            self.known = [TransformersNamedLayer(part, *sizes) for part in model.model.layers]
            self.rotary = Rotary.from_transformers(model.model.rotary_emb)
        self.layers = [SlotCacheLayer(cache, layer) for layer in range(len(cache.kv))]
        self.past = Cache(layers=self.layers)
        self.columns = torch.arange(cache.capacity, device=runner.device)

    def __call__(
        self, ids: Tensor, positions: Tensor, slots: Tensor, visible: Tensor, logit_rows: Tensor | None = None
    ) -> LogitsAndFeatures:
        """Logits `[N, V]` and features of `ids [N]` at `positions [N]`, whose rows are written at `slots [N]`; all int64.

        No slot may be named twice. `visible` bool `[N, capacity]` says which slots each attends to, its own included: at least one.
        `logit_rows [n]` names the rows whose logits `[n, V]` are wanted; None wants all.
        """
        masks = additive_masks_by_layer_type(self.runner.window, visible, self.repeat_mask_for_query_groups)
        if self.known:
            return self.run_layers_and_head(ids, positions, slots, masks, logit_rows)
        for layer in self.layers:
            layer.slots = slots
        return self.runner.run_transformers(
            ids, positions, masks, self.past, 0 if logit_rows is None else logit_rows, self.taps
        )

    def repeat_mask_for_query_groups(self, visible: Tensor) -> Tensor:
        """The additive mask `[1, 1, groups * N, capacity]` that `folded_sdpa` takes, of `visible` bool `[N, capacity]`."""
        return additive_mask(visible, visible.shape[1], self.runner.dtype).repeat(self.groups, 1)[None, None]

    def run_layers_and_head(
        self, ids: Tensor, positions: Tensor, slots: Tensor, masks: Masks, logit_rows: Tensor | None
    ) -> LogitsAndFeatures:
        """`Runner.run_transformers` of a model of `engine.forward.llama.FAMILIES`, without its modules' overhead."""
        stack, head = self.runner.model.model, self.runner.model.lm_head
        x, tapped = stack.embed_tokens(ids)[None], []
        cos, sin = (each.to(x.dtype) for each in self.rotary(positions[None]))
        for number, layer in enumerate(self.known, 1):
            mask = masks[stack.config.layer_types[number - 1]] if isinstance(masks, dict) else masks
            x = layer(x, layer.norm_in(x), (cos, sin), mask, self.cache.kv[number - 1], slots)
            tapped += [x[0]] * (self.taps.count(number) + self.taps.count(-number))
        last = normalise_rms(x[0], stack.norm.weight, stack.norm.variance_epsilon)
        wanted = last if logit_rows is None else last.index_select(0, logit_rows)
        return head(wanted), stack_features_of_taps(tapped, last, self.taps) if self.taps else None


def visible_slots(columns: Tensor, root_slot: Tensor, ancestor_mask: Tensor) -> Tensor:
    """bool `[n, capacity]`: which of the slots `columns [capacity]` n nodes see, whose tree stands at the slots from `root_slot [1]`
    on.

    They see all slots before `root_slot`, and of the S slots from there those that `ancestor_mask` bool `[n, S]` marks.
    """
    offset = columns - root_slot
    inside = (offset >= 0) & (offset < ancestor_mask.shape[1])
    placed = ancestor_mask.index_select(1, offset.clamp(0, ancestor_mask.shape[1] - 1))
    return torch.where(inside, placed, offset < 0)
