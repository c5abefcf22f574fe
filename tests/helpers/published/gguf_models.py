"""GGUF files of small random models, written by the package gguf from transformers' own checkpoints; and a package that holds one."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import TokenType
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.models.gguf.writing import permute_rope_rows
from helpers.checkpoints import SIZES

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
ADDED = ("<|endoftext|>", "<|start|>", "<|end|>")
MERGED = (("Ġ", "t"), ("h", "e"), ("Ġt", "he"))
END, TURN_END = 259, 261  # of a text, of a turn
TOKENS = 262
FAMILIES: dict[str, tuple[type, type, dict[str, Any]]] = {  # the model, its configuration, and sizes that differ
    "llama": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"num_key_value_heads": 1}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 64}),
    "gemma3": (
        Gemma3ForCausalLM,
        Gemma3TextConfig,
        {
            "head_dim": 64,
            "query_pre_attn_scalar": 64,
            "sliding_window": 16,
            "num_hidden_layers": 6,
            "tie_word_embeddings": True,
        },
    ),
    "phi3": (Phi3ForCausalLM, Phi3Config, {"pad_token_id": None, "sliding_window": None}),
}


def merging_tokenizer(rule: str = "gpt-2") -> Tokenizer:
    """A token for every byte, three merges and three control tokens; it splits texts by that rule of llama.cpp."""
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, MERGED), *ADDED]
    tokenizer = Tokenizer(models.BPE(vocab={name: index for index, name in enumerate(names)}, merges=list(MERGED)))
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, whole]) if rule == "smollm" else whole
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(ADDED))
    return tokenizer


def random_model(family: str, seed: int = 0, **sizes: Any) -> PreTrainedModel:
    """A float32 model of a family, as far from 0 as trained weights, so that a wrong one shows."""
    kind, config, own = FAMILIES[family]
    torch.manual_seed(seed)
    model = kind(config(**SIZES | {"vocab_size": TOKENS, "eos_token_id": END} | own | sizes)).eval()
    for name, weight in model.named_parameters():
        torch.nn.init.normal_(weight, 0.0 if "norm" not in name or family == "gemma3" else 1.0, 0.1)
    return model.requires_grad_(False)


def named_numbers(model: PreTrainedModel, family: str) -> dict[str, np.ndarray]:
    """The model's numbers by the names of GGUF, in the order and with the offsets of llama.cpp's own converter."""
    arch = next(each for each, name in gguf.MODEL_ARCH_NAMES.items() if name == family)
    names, config = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers), model.config
    found = {}
    for ours, weight in model.state_dict().items():
        name = names.get_name(ours, (".weight", ".bias"))
        assert name is not None, ours
        if name == "output.weight" and config.tie_word_embeddings:
            continue
        if family == "llama" and ".attn_q." in name:
            weight = permute_rope_rows(weight, config.num_attention_heads)
        if family == "llama" and ".attn_k." in name:
            weight = permute_rope_rows(weight, config.num_key_value_heads)
        if family == "gemma3" and "norm" in name:
            weight = weight + 1
        found[name] = weight.numpy()
    return found


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    family: str,
    kind: Kind = Kind.F32,
    shards: int = 0,
    rule: str = "gpt-2",
    more: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
) -> PreTrainedModel:
    """Write the model, its matrices as blocks of that kind. Returns it with the numbers that the file holds.

    `shards` is how many tensors a shard has. `more` are further values of the architecture, and `tensors` further ones.
    """
    config, numbers = model.config, named_numbers(model, family) | (tensors or {})
    writer = gguf.GGUFWriter(path, family, split_max_tensors=shards)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(width)
    writer.add_rope_dimension_count(width)
    ropes = config.rope_parameters
    writer.add_rope_freq_base(ropes.get("full_attention", ropes)["rope_theta"])
    if family == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    for name, value in (more or {}).items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        add(name.format(arch=family), value)
    add_tokenizer(writer, rule)
    held = {}
    for name, each in numbers.items():
        plain = each.ndim == 1 or each.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]
        stored = Kind.F32 if plain else kind
        blocks = gguf.quantize(each, stored)
        writer.add_tensor(name, blocks, raw_dtype=stored)
        held[name] = gguf.dequantize(blocks, stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return with_numbers(model, family, held)


def add_tokenizer(writer: gguf.GGUFWriter, rule: str) -> None:
    vocab = merging_tokenizer().get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rule)
    writer.add_token_list(tokens)
    writer.add_token_types([int(TokenType.CONTROL if each in ADDED else TokenType.NORMAL) for each in tokens])
    writer.add_token_merges([" ".join(each) for each in MERGED])
    writer.add_bos_token_id(END)
    writer.add_eos_token_id(END)
    writer.add_eot_token_id(TURN_END)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def with_numbers(model: PreTrainedModel, family: str, held: dict[str, np.ndarray]) -> PreTrainedModel:
    """The model with these numbers in the places from which `named_numbers` took its own."""
    for name, weight in named_places(model, family).items():
        numbers = torch.from_numpy(np.array(held[name], np.float32))
        heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
        kind = name.split(".")[2] if name.startswith("blk.") else ""
        if family == "llama" and kind in heads:  # pairs of neighbours, back into halves
            numbers = numbers.reshape(heads[kind], -1, 2, numbers.shape[1]).transpose(1, 2).reshape(numbers.shape)
        weight.copy_(numbers - 1 if family == "gemma3" and "norm" in name else numbers)
    return model


def named_places(model: PreTrainedModel, family: str) -> dict[str, torch.Tensor]:
    arch = next(each for each, name in gguf.MODEL_ARCH_NAMES.items() if name == family)
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    places = {names.get_name(ours, (".weight", ".bias")): weight for ours, weight in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        places.pop("output.weight", None)
    return places


def install(folder: Path, name: str, *files: str) -> None:
    """A package of that name in the folder, which lists these files as its own; nothing of it can be imported."""
    module = name.replace("-", "_")
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "RECORD").write_text("".join(f"{module}/{each},,\n" for each in ("__init__.py", *files)))
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text("raise ImportError('it builds llama.cpp')\n")
