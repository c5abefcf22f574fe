"""GGUF: what a file says of a model and transformers' reader leaves out, such as rope settings, stop tokens and how a text is split.

Knows values; reads no weight but rope factors. What cannot be said in transformers' terms is refused. Names and numbers are those of
ggml-org/llama.cpp.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tokenizers import pre_tokenizers
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

STOPS = ("eos", "eot", "eom")  # ends of a text, of a turn and of a message
LLAMA_3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # of every Llama 3.1 to 3.3
WHOLE_HEADS = {"gemma2": 46, "gemma3": 62}  # layers of the size whose queries are scaled by the width of hidden states
# How the tokenizers of transformers split a text before they merge bytes where nothing else is said, and with single digits besides
AS_GPT_2 = {"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "mellum", "modern-bert", "granite-docling", "a.x-4.0"}
SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}


def apply_gguf_settings(
    config: PreTrainedConfig, architecture: str, gguf_values: dict[str, Any], rope_factors: np.ndarray | None
) -> None:
    """Put into the configuration what the file's values say besides. `rope_factors` are the numbers of its `rope_freqs.weight`, if any.

    Raises `ValueError` for rope settings that are not known here.
    """

    def read_value(name: str) -> Any:
        return gguf_values.get(f"{architecture}.{name}")

    named = (gguf_values.get(f"tokenizer.ggml.{name}_token_id") for name in STOPS)
    if stops := sorted({int(token) for token in named if token is not None}):
        config.eos_token_id = stops[0] if len(stops) == 1 else stops
    for name in (
        "bos_token_id",
        "pad_token_id",
    ):  # where the file has none, the family's usual one may lie beyond the vocabulary
        if (getattr(config, name, None) or 0) >= config.vocab_size:
            setattr(config, name, None)
    if read_value("attention.key_length") is not None and config.model_type not in ("gemma4_text", "t5", "umt5"):
        config.head_dim = int(read_value("attention.key_length"))
    if config.model_type in ("mistral", "phi3"):
        config.sliding_window = read_value("attention.sliding_window")
    if architecture in WHOLE_HEADS:
        whole = config.num_hidden_layers == WHOLE_HEADS[architecture]
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads if whole else config.head_dim
    apply_gguf_rope(config, read_value, rope_factors)


def apply_gguf_rope(
    config: PreTrainedConfig, read_value: Callable[[str], Any], rope_factors: np.ndarray | None
) -> None:
    """As `apply_gguf_settings`, for how positions turn. Of a model with two such settings the file's are those of full attention."""
    if (ropes := getattr(config, "rope_parameters", None)) is None:
        return
    rope = ropes.get("full_attention", ropes)
    width, turned = head_dim(config), read_value("rope.dimension_count")
    if turned is not None and turned != width:
        rope["partial_rotary_factor"] = turned / width
    if local := read_value("rope.freq_base_swa"):
        ropes["sliding_attention"]["rope_theta"] = local
    way, factor = (
        read_value("rope.scaling.type"),
        read_value("rope.scaling.factor") or read_value("rope.scale_linear"),
    )
    if way is None:
        way = "linear" if factor not in (None, 1.0) else "none"
    if rope_factors is not None:
        rope |= llama_3_rope_settings_matching_factors(rope_factors, rope["rope_theta"], width)
    elif way == "linear":
        rope |= {"rope_type": "linear", "factor": factor}
    elif way == "yarn":
        length = read_value("rope.scaling.original_context_length")
        rope |= {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length}
    elif way != "none":
        raise ValueError(
            f"its rotary embedding is scaled in the way {way!r}, and of those linear and yarn are known here"
        )


def head_dim(config: PreTrainedConfig) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def llama_3_rope_settings_matching_factors(rope_factors: np.ndarray, theta: float, rotary_width: int) -> dict[str, Any]:
    """The settings of Llama 3.1 whose divisors of `rotary_width / 2` frequencies these are. Raises `ValueError` for any others."""
    factor = float(rope_factors.max())
    low, high, length = LLAMA_3.values()
    waves = 2 * math.pi * theta ** (np.arange(0, rotary_width, 2) / rotary_width)
    smooth = np.clip((length / waves - low) / (high - low), 0, 1)
    if len(rope_factors) != len(waves) or not np.allclose(1 / rope_factors, (1 - smooth) / factor + smooth, rtol=1e-4):
        raise ValueError(
            "its rope_freqs.weight holds other factors than those of Llama 3.1, and no others are known here"
        )
    return {"rope_type": "llama3", "factor": factor, **LLAMA_3}


def apply_gguf_pre_tokenizer(tokenizer: PreTrainedTokenizerBase, gguf_values: dict[str, Any]) -> None:
    """Let the tokenizer split texts by the rule that the file names. transformers takes GPT-2's for each that it does not know.

    Raises `ValueError` for a rule that neither knows.
    """
    rule = gguf_values.get("tokenizer.ggml.pre", "gpt-2")
    if gguf_values.get("tokenizer.ggml.model") != "gpt2" or rule in AS_GPT_2:
        return
    if rule in SINGLE_DIGITS:
        digits, whole = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, whole])
        return
    if isinstance(
        tokenizer.backend_tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel
    ):  # so nothing was put in its place
        known = ", ".join(sorted(AS_GPT_2 | SINGLE_DIGITS))
        raise ValueError(
            f"its tokenizer splits texts by the rule {rule!r}, which transformers does not know. Known here besides: {known}"
        )
