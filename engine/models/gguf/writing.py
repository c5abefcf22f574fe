"""GGUF: a Llama model and its tokenizer in the one file that llama.cpp and OpenVINO GenAI read, by the package gguf. Loads no model.

Source: docs/gguf.md of ggml-org/ggml, version 3. Names of values and tensors are those of ggml-org/llama.cpp.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import gguf
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import LlamaFileType, TokenType
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from engine.forward.llama import is_full_attention_llama
from engine.forward.sizes import head_dim_of

KINDS = {
    "F16": (Kind.F16, LlamaFileType.MOSTLY_F16),
    "Q8_0": (Kind.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}  # of matrices, of files


def explain_unwritable(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Why the model cannot be written, as a clause; "" where it can."""
    config = model.config
    if type(model) not in (LlamaForCausalLM, MistralForCausalLM) or not is_full_attention_llama(model):
        return f"a {config.model_type} model is not laid out as GGUF calls llama"
    if getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False):
        return "it has biases"
    if model.model.rotary_emb.rope_type != "default":
        return f"its rotary embedding is {model.model.rotary_emb.rope_type}, and only the default one is written"
    if any(not weight.is_floating_point() for weight in model.parameters()):
        return "its weights are kept in whole numbers"
    return (
        "" if gguf_pre_tokenizer_name_of(tokenizer) else "its tokenizer does not cut texts as GPT-2's or SmolLM's does"
    )


def write_gguf(path: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, matrix_type_name: str) -> int:
    """Write the model, its matrices as `matrix_type_name` of `KINDS`. Returns how many tensors. Raises `ValueError` where it cannot
    be written.
    """
    if reason := explain_unwritable(model, tokenizer):
        raise ValueError(f"This model cannot be written as GGUF: {reason}.")
    writer = gguf.GGUFWriter(path, "llama")
    add_model_metadata(writer, model, matrix_type_name)
    add_tokenizer_metadata(writer, tokenizer, model.config.vocab_size)
    count = 0
    for name, weight in named_gguf_tensors(model):
        stored = gguf_type_of(weight, matrix_type_name)
        writer.add_tensor(name, gguf.quantize(weight.detach().float().numpy(), stored), raw_dtype=stored)
        count += 1
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return count


def named_gguf_tensors(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights by the names of GGUF. A head that is the embedding is left out, and readers take the embedding for it."""
    config = model.config
    heads = {"attn_q.weight": config.num_attention_heads, "attn_k.weight": config.num_key_value_heads}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for ours, weight in model.state_dict().items():
        name = names.get_name(ours, try_suffixes=(".weight",))
        if name is not None and not (name == "output.weight" and config.tie_word_embeddings):
            kind = name.split(".", 2)[-1]
            yield name, permute_rope_rows(weight, heads[kind]) if kind in heads else weight


def permute_rope_rows(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows `[heads * d, in]` in the order of llama.cpp, which turns neighbours where transformers turns row i with row i + d / 2."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def gguf_type_of(weight: torch.Tensor, matrix_type_name: str) -> Kind:
    """Norms stay in 32 bits. Rows that blocks do not fill are written in 16."""
    stored = KINDS[matrix_type_name][0]
    if weight.dim() == 1:
        return Kind.F32
    return stored if weight.shape[-1] % gguf.GGML_QUANT_SIZES[stored][0] == 0 else Kind.F16


def add_model_metadata(writer: gguf.GGUFWriter, model: PreTrainedModel, matrix_type_name: str) -> None:
    """What a reader must know of the model besides its weights."""
    config, width = model.config, head_dim_of(model.config)
    writer.add_name(Path(config.name_or_path).name or "model")
    writer.add_file_type(KINDS[matrix_type_name][1])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_vocab_size(config.vocab_size)
    writer.add_layer_norm_rms_eps(float(config.rms_norm_eps))
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))


def gguf_pre_tokenizer_name_of(tokenizer: PreTrainedTokenizerBase) -> str:
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


def add_tokenizer_metadata(writer: gguf.GGUFWriter, tokenizer: PreTrainedTokenizerBase, logit_count: int) -> None:
    """A token for each of the model's `logit_count` logits, merges, the first one the strongest, and the chat template."""
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    tokens, types = [f"[PAD{number}]" for number in range(logit_count)], [int(TokenType.NORMAL)] * logit_count
    for token, number in tokenizer.get_vocab().items():
        tokens[number] = token
    for number, added in tokenizer.added_tokens_decoder.items():
        types[number] = int(TokenType.CONTROL if added.special else TokenType.USER_DEFINED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(gguf_pre_tokenizer_name_of(tokenizer))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_add_bos_token(tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id])
    ends = {
        writer.add_bos_token_id: tokenizer.bos_token_id,
        writer.add_eos_token_id: tokenizer.eos_token_id,
        writer.add_unk_token_id: tokenizer.unk_token_id,
        writer.add_pad_token_id: tokenizer.pad_token_id,
    }
    for add, number in ends.items():
        if number is not None:
            add(number)
    if isinstance(tokenizer.chat_template, str):
        writer.add_chat_template(tokenizer.chat_template)
