"""Sliding windows: which rows the layers with one attend to. In a tree the distance to one is of positions, not of rows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedConfig

# All layers of these have the window, and the model takes one mask. The others take a mask by layer type.
ONE_MASK = frozenset({"mistral", "mixtral", "phi3", "starcoder2", "qwen3_moe"})
MASK_BY_LAYER = {
    "cohere2",
    "exaone4",
    "gemma2",
    "gemma3_text",
    "gemma4_text",
    "gemma4_unified_text",
    "gpt_oss",
    "mellum",
    "ministral",
    "olmo3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "smollm3",
}
Masks = Tensor | dict[str, Tensor]  # one additive mask for all layers, or one by their type
TRIED = ONE_MASK | MASK_BY_LAYER  # tests/forward/test_families.py verifies trees with each


@dataclass(frozen=True)
class SlidingWindow:
    """A row at position p attends to positions above p - `size`, in all layers or, with `by_layer`, in those of the sliding type."""

    size: int
    by_layer: bool

    def narrow_visible_mask(self, visible: Tensor) -> Tensor:
        """Those within the window of the rows that `visible` bool `[..., N, M]` shows to N tokens, `[..., N, M]` too.

        A tree's mask shows a token one row for each position up to its own, in order. So the window holds the last `size` of these.
        """
        count = visible.cumsum(-1, dtype=torch.int32)
        return visible & (count > count[..., -1:] - self.size)


def sliding_window_of(config: PreTrainedConfig) -> SlidingWindow | None:
    """The window of a model's sliding layers; None where it has no such layer, or the window is as wide as the context."""
    if not has_narrow_window(config) or "sliding_attention" not in attention_types_of(config):
        return None
    return SlidingWindow(config.sliding_window, config.model_type not in ONE_MASK)


def attention_types_of(config: PreTrainedConfig) -> set[str]:
    """The types of attention that a model's layers have, by the names of its configuration."""
    named = set(getattr(config, "layer_types", None) or ())
    if config.model_type in ONE_MASK or not named:
        return {"sliding_attention" if has_narrow_window(config) else "full_attention"}
    return named


def has_narrow_window(config: PreTrainedConfig) -> bool:
    """Whether the configuration has a window that is narrower than its context."""
    size = getattr(config, "sliding_window", None)
    return bool(size) and size < config.max_position_embeddings


def additive_masks_by_layer_type(
    window: SlidingWindow | None, visible: Tensor, make_additive_mask: Callable[[Tensor], Tensor]
) -> Masks:
    """What a model with that window takes so that tokens attend to the rows `visible` bool `[..., N, M]`.

    `make_additive_mask` makes the additive mask of such a tensor.
    """
    if window is None:
        return make_additive_mask(visible)
    sliding = make_additive_mask(window.narrow_visible_mask(visible))
    return {"full_attention": make_additive_mask(visible), "sliding_attention": sliding} if window.by_layer else sliding
