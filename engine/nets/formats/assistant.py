"""Gemma 4's assistant in its own folder, as transformers writes it. Knows files; knows no session.

It reads the target's cache, so more than the hidden size must fit: the heads of keys and values, by type of layer.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4UnifiedAssistantConfig,
    Gemma4UnifiedAssistantForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)

from engine.forward.packed_linear import optimise_cpu_linear_and_attention
from engine.nets.assistant import GemmaAssistant, shared_layer_heads_and_width
from engine.nets.formats.checked import (
    load_all_tensors,
    refuse_missing_unknown_or_misshaped_tensors,
    refuse_unread_settings,
)

KINDS = {
    "gemma4_assistant": (Gemma4AssistantConfig, Gemma4AssistantForCausalLM),
    "gemma4_unified_assistant": (Gemma4UnifiedAssistantConfig, Gemma4UnifiedAssistantForCausalLM),
}
TARGETS = ("gemma4_text", "gemma4_unified_text")
# Settings of its layers that transformers writes beside those of their class, and what is computed of them
OF_LAYERS = "per_layer_config"
COMPUTED = MappingProxyType({"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0})
EMBEDDING, HEAD, ORDER = "model.embed_tokens.weight", "lm_head.weight", "masked_embedding.token_ordering"


def share_target_rows_in_all_layers(config: PreTrainedConfig) -> PreTrainedConfig:
    """The assistant's configuration, all of whose layers read a cache that none of them writes.

    transformers 5.23 asks that some layer writes, and makes no assistant else. It finds classes by their names, and so this one.
    """
    text = config.get_text_config()
    kind = type(text)
    modes = property(lambda self: ["reuse"] * self.num_hidden_layers)
    text.__class__ = type(kind.__name__, (kind,), {"kv_sharing_modes": modes, "__module__": kind.__module__})
    return config


def is_form_of(config: dict[str, Any]) -> bool:
    return config.get("model_type") in KINDS


def load_assistant(
    config: PreTrainedConfig, target: PreTrainedModel, folder: Path, embedding: torch.Tensor, head: torch.Tensor
) -> GemmaAssistant:
    """Raises `ValueError` for a tensor that is missing, unknown or of another shape, and for an order that names a token twice."""
    found, kind = load_all_tensors(folder), KINDS[config.model_type][1]
    with torch.device("meta"):  # shapes alone
        wanted = {name: tuple(each.shape) for name, each in kind(config).state_dict().items()}
    tied = config.tie_word_embeddings
    optional = {HEAD: wanted.pop(HEAD)} if tied else {}
    refuse_missing_unknown_or_misshaped_tensors(folder, found, wanted, optional)
    if tied and HEAD in found and not torch.equal(found[HEAD], found[EMBEDDING]):
        raise ValueError(
            f"{folder} holds {HEAD}, which differs from {EMBEDDING}, and its config ties them. Fetch its files anew."
        )
    if ORDER in found and not torch.equal(found[ORDER].long().sort().values, torch.arange(len(found[ORDER]))):
        raise ValueError(f"{folder} holds a {ORDER} that does not name every token once. Fetch its files anew.")
    model = kind(config)
    model.load_state_dict(found, strict=False)
    if tied:
        model.tie_weights()
    model.to(target.device, target.dtype)
    optimise_cpu_linear_and_attention(model)
    return GemmaAssistant(model, target)


def validate_config_and_make_loader(
    folder: Path, config: dict[str, Any], target: PreTrainedModel
) -> Callable[..., GemmaAssistant]:
    """As that of the other formats. Raises `ValueError` when the assistant cannot be computed and when it does not fit the target."""
    kind = KINDS[config["model_type"]][0]
    try:
        own = kind.from_dict(config)
    except (KeyError, TypeError, ValueError, StrictDataclassError) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{folder}/config.json describes no assistant that can be computed: {said}.") from error
    text, theirs = own.get_text_config(), target.config
    refuse_unread_settings(folder, config, {each.name for each in fields(own)})
    read = {*(each.name for each in fields(text)), OF_LAYERS}
    refuse_unread_settings(folder, config.get("text_config") or {}, read, "text_config", COMPUTED)
    if theirs.model_type not in TARGETS:
        raise ValueError(
            f"{folder} is an assistant of Gemma 4 and reads the cache of such a target, and this one is of type {theirs.model_type}. "
            "Name its Gemma 4 as --target."
        )
    if text.num_kv_shared_layers != text.num_hidden_layers:
        raise ValueError(
            f"{folder}/config.json describes no assistant that can be computed: {text.num_kv_shared_layers} of its "
            f"{text.num_hidden_layers} layers read the target's cache, and all must."
        )
    if missing := sorted({*text.layer_types} - {*theirs.layer_types}):
        raise ValueError(
            f"{folder} has layers of type {missing[0]}, and the target has none whose cache they could read."
        )
    sizes = {
        "hidden size": (own.backbone_hidden_size, theirs.hidden_size),
        "tokens": (text.vocab_size, theirs.vocab_size),
    }
    for layer, of in zip(text.layer_types, text.per_layer_config, strict=True):
        _, heads, width = shared_layer_heads_and_width(text, theirs)[layer]
        sizes[f"key-value heads in {layer}"] = of.num_key_value_heads, heads
        sizes[f"head size in {layer}"] = of.head_dim, width
    for what, (wanted, there) in sizes.items():
        if wanted != there:
            raise ValueError(
                f"The assistant in {folder} was trained for another target: it needs {wanted} as {what}, and this target has {there}. "
                "Use the assistant of this very target."
            )
    return partial(load_assistant, share_target_rows_in_all_layers(own), target)
