"""Composite checkpoints: the text model in the files of one that also reads images. Knows configurations and names of tensors.

A text without images is computed by the text model alone, so that model is the target, and no other weight is read. Multimodal rotary
positions count a token of a text three times alike, which is the plain rotary embedding of another family.
"""

import logging
import re

from transformers import CONFIG_MAPPING, PreTrainedConfig

# By type, as people call them. tests/models/test_composites.py compares the text model of each with the whole model's generate().
TRIED = {
    "gemma3": "Gemma 3",
    "gemma4": "Gemma 4",
    "idefics3": "Idefics 3",
    "internvl": "InternVL",
    "kimi_k25": "Kimi K2.5",
    "lfm2_vl": "LFM2-VL",
    "llava": "LLaVA",
    "mistral3": "Mistral 3",
    "qwen2_vl": "Qwen2-VL",
    "qwen2_5_vl": "Qwen2.5-VL",
    "qwen3_vl": "Qwen3-VL",
    "qwen3_5": "Qwen3.5",
    "qwen3_5_moe": "Qwen3.5-MoE",
    "smolvlm": "SmolVLM",
}
# Text models without a class of their own, by the family that computes the same of a text
PLAIN = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3"}
MULTIMODAL = "mrope_section", "mrope_interleaved"  # settings of rotary positions that a text does not need
# Where the text model stands in a composite one, as regular expressions that are applied in order; and its names alone
NAMES = {
    r"^(?:model\.)?language_model\.lm_head\.": "lm_head.",
    r"^(?:model\.)?language_model\.model\.": "model.",
    r"^(?:model\.)?language_model\.": "model.",
    r"^model\.text_model\.": "model.",
}


def is_about_more_than_unread_weights(record: logging.LogRecord) -> bool:
    """Whether transformers says more than which weights it did not read. What is missing is refused by name where models are loaded."""
    said = record.getMessage()
    return "LOAD REPORT" not in said or any(word in said for word in ("MISMATCH", "CONVERSION"))


logging.getLogger("transformers.modeling_utils").addFilter(is_about_more_than_unread_weights)


def text_config_of_composite(composite: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration of the text model in a composite one that was tried here; any other configuration as it is."""
    if composite.model_type not in TRIED or (text := composite.get_text_config()) is composite:
        return composite
    if text.model_type in PLAIN:
        said = {name: value for name, value in text.to_dict().items() if name != "model_type"}
        rope = {name: value for name, value in said["rope_parameters"].items() if name not in MULTIMODAL}
        text = CONFIG_MAPPING[PLAIN[text.model_type]](**said | {"rope_parameters": rope})
    # What transformers reads of the whole model's configuration, whatever that of its text model says
    text.tie_word_embeddings = composite.tie_word_embeddings
    text.architectures = composite.architectures
    if (quantised := getattr(composite, "quantization_config", None)) is not None:
        text.quantization_config = quantised
    if text.eos_token_id is None:
        text.eos_token_id = getattr(composite, "eos_token_id", None)
    return text


def text_tensor_name(name: str) -> str:
    """A tensor's name in the text model alone."""
    for pattern, own in NAMES.items():
        name = re.sub(pattern, own, name)
    return name


def say_why_composite_is_unsupported(composite: PreTrainedConfig) -> str:
    """Why a model of this composite configuration cannot verify a tree as it is."""
    if composite.model_type in TRIED:
        return "it reads more than text; give its text model alone"
    return (
        f"it reads more than text, and nobody has tried here how its text model is computed alone; the text models of "
        f"{', '.join(TRIED.values())} work"
    )
