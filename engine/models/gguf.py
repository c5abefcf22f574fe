"""GGUF: a Llama model and its tokenizer in the one file that llama.cpp and OpenVINO GenAI read. Knows the format; loads no model.

A file holds a header, named values, a list of tensors, and their numbers from a multiple of `ALIGNED` bytes on. Everything is
little-endian. Source: docs/gguf.md of ggml-org/ggml, version 3. Names of values and tensors are those of ggml-org/llama.cpp.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from engine.forward.llama import is_known
from engine.forward.sizes import head_dim_of

KINDS = {"F16": 1, "Q8_0": 7}  # how matrices are written; the numbers are those of `general.file_type`
F32, F16, Q8_0 = 0, 1, 8  # types of tensors
BLOCK = 32  # numbers of a row that share a scale in Q8_0
ALIGNED = 32
NORMAL, CONTROL = 1, 3  # types of tokens
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def obstacle(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Why the model cannot be written, as a clause; "" where it can."""
    config = model.config
    if type(model) not in (LlamaForCausalLM, MistralForCausalLM) or not is_known(model):
        return f"a {config.model_type} model is not laid out as GGUF calls llama"
    if getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False):
        return "it has biases"
    if model.model.rotary_emb.rope_type != "default":
        return f"its rotary embedding is {model.model.rotary_emb.rope_type}, and only the default one is written"
    if any(not weight.is_floating_point() for weight in model.parameters()):
        return "its weights are kept in whole numbers"
    return "" if cut_by(tokenizer) else "its tokenizer does not cut texts as GPT-2's or SmolLM's does"


def write(path: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, kind: str) -> int:
    """Write the model, its matrices as `kind` of `KINDS`. Returns how many tensors. Raises `ValueError` where it cannot be written."""
    if reason := obstacle(model, tokenizer):
        raise ValueError(f"This model cannot be written as GGUF: {reason}.")
    named = dict(tensors_of(model))
    types = {name: type_of(weight, kind) for name, weight in named.items()}
    values = {**values_of(model, kind), **words_of(tokenizer, model.config.vocab_size)}
    listed, start = b"", 0
    for name, weight in named.items():
        sizes = weight.shape[::-1]  # the row's length first
        listed += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, types[name], start)
        start += aligned(bytes_of(weight, types[name]))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(named), len(values))
    head += b"".join(text(key) + value(each) for key, each in values.items()) + listed
    with path.open("wb") as file:
        file.write(head.ljust(aligned(len(head)), b"\0"))
        for name, weight in named.items():
            numbers = stored(weight.detach().float().numpy(), types[name])
            file.write(numbers.ljust(aligned(len(numbers)), b"\0"))
    return len(named)


def tensors_of(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights by the names of GGUF. A head that is the embedding is left out, and readers take the embedding for it."""
    weights, config = model.state_dict(), model.config
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for ours, theirs in ENDS.items():
        if theirs != "output" or not config.tie_word_embeddings:
            yield f"{theirs}.weight", weights[f"{ours}.weight"]
    for layer in range(config.num_hidden_layers):
        for ours, theirs in LAYER.items():
            weight = weights[f"model.layers.{layer}.{ours}.weight"]
            yield f"blk.{layer}.{theirs}.weight", paired(weight, heads[theirs]) if theirs in heads else weight


def paired(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows `[heads * d, in]` in the order of llama.cpp, which turns neighbours where transformers turns row i with row i + d / 2."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def type_of(weight: torch.Tensor, kind: str) -> int:
    """Norms stay in 32 bits. Rows that blocks of Q8_0 do not fill are written in 16."""
    if weight.dim() == 1:
        return F32
    return Q8_0 if kind == "Q8_0" and weight.shape[-1] % BLOCK == 0 else F16


def bytes_of(weight: torch.Tensor, kind: int) -> int:
    return weight.numel() // BLOCK * (BLOCK + 2) if kind == Q8_0 else weight.numel() * (4 if kind == F32 else 2)


def stored(numbers: np.ndarray, kind: int) -> bytes:
    """Numbers as they stand in the file. A block of Q8_0 is a scale in 16 bits, its largest number / 127, and 32 whole numbers."""
    if kind != Q8_0:
        return numbers.astype("<f4" if kind == F32 else "<f2").tobytes()
    rows = numbers.reshape(-1, BLOCK)
    scales = np.abs(rows).max(-1, keepdims=True) / np.float32(127)
    whole = np.rint(np.divide(rows, scales, out=np.zeros_like(rows), where=scales > 0)).astype(np.int8)
    blocks = np.empty(len(rows), np.dtype([("scale", "<f2"), ("whole", np.int8, BLOCK)]))
    blocks["scale"], blocks["whole"] = scales[:, 0], whole
    return blocks.tobytes()


def values_of(model: PreTrainedModel, kind: str) -> dict[str, Any]:
    """What a reader must know of the model besides its weights."""
    config, width = model.config, head_dim_of(model.config)
    sizes = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "rope.dimension_count": width,
        "vocab_size": config.vocab_size,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
    }
    head = {
        "general.architecture": "llama",
        "general.name": Path(config.name_or_path).name or "model",
        "general.file_type": KINDS[kind],
        "general.quantization_version": 2,
        "general.alignment": ALIGNED,
    }
    return head | {f"llama.{name}": size for name, size in sizes.items()}


def cut_by(tokenizer: PreTrainedTokenizerBase) -> str:
    """What llama.cpp calls the rule by which the tokenizer cuts a text before it merges bytes; "" for one that is not known here."""
    told = json.loads(tokenizer.backend_tokenizer.to_str())
    if told["model"]["type"] != "BPE" or told["normalizer"] is not None:
        return ""
    before = told["pre_tokenizer"] or {}
    steps = before.get("pretokenizers", [before])
    bytewise = [step for step in steps if step.get("type") == "ByteLevel" and step.get("use_regex", True)]
    digits = [step for step in steps if step.get("type") == "Digits" and step.get("individual_digits")]
    if len(bytewise) != 1 or bytewise[0].get("add_prefix_space") or len(bytewise) + len(digits) != len(steps):
        return ""
    return "smollm" if digits else "gpt-2"


def words_of(tokenizer: PreTrainedTokenizerBase, count: int) -> dict[str, Any]:
    """The tokenizer: a token for each of the model's `count` logits, and merges, the first one the strongest."""
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    tokens, types = [f"[PAD{number}]" for number in range(count)], [NORMAL] * count
    for token, number in tokenizer.get_vocab().items():
        tokens[number] = token
    for number in tokenizer.all_special_ids:
        types[number] = CONTROL
    ends = {"bos": tokenizer.bos_token_id, "eos": tokenizer.eos_token_id, "padding": tokenizer.pad_token_id}
    begins = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": cut_by(tokenizer),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [each if isinstance(each, str) else " ".join(each) for each in merges],
        "tokenizer.ggml.add_bos_token": begins,
        **{f"tokenizer.ggml.{name}_token_id": number for name, number in ends.items() if number is not None},
    }


def aligned(count: int) -> int:
    return -(-count // ALIGNED) * ALIGNED


def text(words: str) -> bytes:
    told = words.encode()
    return struct.pack("<Q", len(told)) + told


def value(told: Any) -> bytes:
    """A value with its type: a bool, a whole number of 32 bits, a float, a text, or a list of whole numbers or texts."""
    if isinstance(told, list):
        kind = 5 if told and isinstance(told[0], int) else 8  # an empty list is one of texts
        each = (text(one) if kind == 8 else struct.pack("<i", one) for one in told)
        return struct.pack("<IIQ", 9, kind, len(told)) + b"".join(each)
    if isinstance(told, str):
        return struct.pack("<I", 8) + text(told)
    kind, form = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}[type(told)]
    return struct.pack(f"<I{form}", kind, told)
