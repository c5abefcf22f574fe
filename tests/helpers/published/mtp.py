"""Small random targets with MTP layers in the layouts of published checkpoints, and transformers' own computation of their guesses.

A checkpoint is what transformers writes of a deeper model: its last layers become the MTP layers of a target that lacks them.
"""

import re
from pathlib import Path

import torch
import transformers as tr
from safetensors.torch import load_file, save_file
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from engine.nets.mtp import Mtp
from helpers.checkpoints import VOCAB, byte_tokenizer

HIDDEN, LAYERS = 32, 2
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 256,
    "pad_token_id": None,
    "moe_intermediate_size": 16,
    "num_experts_per_tok": 2,
}
ROUTED = {"n_routed_experts": 4, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12}
FAMILIES: dict[str, tuple] = {
    "GLM-4 MoE": (tr.Glm4MoeForCausalLM, ROUTED | {"head_dim": 16}),
    "DeepSeek-V3": (tr.DeepseekV3ForCausalLM, ROUTED | LATENT | {"num_key_value_heads": 4}),
    "Mellum": (tr.MellumForCausalLM, {"num_experts": 4, "head_dim": 16, "sliding_window": 5}),
}
SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]
TARGETS = {
    "GLM-4 MoE": ("GLM-4 MoE", 1),
    "GLM-4 MoE, two": ("GLM-4 MoE", 2),
    "DeepSeek-V3": ("DeepSeek-V3", 1),
    "DeepSeek-V3, three": ("DeepSeek-V3", 3),
    "Mellum, window": ("Mellum", 1),
}


def config_of(family: str, layers: int, mtp: int):
    kind, sizes = FAMILIES[family]
    kinds = {"layer_types": SLIDING[:layers]} if family == "Mellum" else {}
    return kind.config_class(
        **{**SIZES, **sizes, **kinds},
        num_hidden_layers=layers,
        num_nextn_predict_layers=mtp,
        architectures=[kind.__name__],
    )


def write(folder: Path, family: str, mtp: int) -> None:
    """A random checkpoint with so many MTP layers and its tokenizer. Norms are random too, so that a forgotten one shows."""
    torch.manual_seed(0)
    deep = FAMILIES[family][0](config_of(family, LAYERS + mtp, 0)).eval()
    for parameter in deep.parameters():
        vector = parameter.dim() == 1
        torch.nn.init.normal_(parameter, mean=float(vector), std=0.1 if vector else 0.2)
    deep.save_pretrained(folder)
    config_of(family, LAYERS, mtp).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    tensors = tensors_of(folder)
    for layer in range(mtp):
        own = f"model.layers.{LAYERS + layer}."
        names = {"enorm": 1, "hnorm": 1, "shared_head.norm": 1, "eh_proj": 2}
        if family == "Mellum":
            tensors = {name.replace(own, "mtp.layers.0."): each for name, each in tensors.items()}
            own, names = "mtp.", {"pre_fc_norm_embedding": 1, "pre_fc_norm_hidden": 1, "norm": 1, "fc": 2}
        else:
            tensors[own + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
            tensors[own + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        for name, dimensions in names.items():
            shape = (HIDDEN,) if dimensions == 1 else (HIDDEN, 2 * HIDDEN)
            tensors[f"{own}{name}.weight"] = (dimensions == 1) + 0.3 * torch.randn(shape)
    rewrite(folder, tensors)


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def rewrite(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write these as the checkpoint's tensors."""
    save_file(
        {name: each.contiguous() for name, each in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )


def theirs(folder: Path, monkeypatch) -> tuple[tr.PreTrainedModel, MtpModel]:
    """The target and its MTP layers as transformers loads them. It knows them by the numbers of published checkpoints alone."""
    config = tr.AutoConfig.from_pretrained(folder)
    kind = getattr(tr, config.architectures[0])
    if kind is not tr.MellumForCausalLM:
        numbers = [rf"model\.layers\.{LAYERS + layer}\." for layer in range(config.num_mtp_layers)]
        monkeypatch.setattr(kind, "_keys_to_ignore_on_load_unexpected", numbers)
    model = kind.from_pretrained(folder, attn_implementation="sdpa").eval()
    return model, MtpModel.from_pretrained(model, device_map={"": "cpu"}).eval()


@torch.no_grad()
def guesses(model: tr.PreTrainedModel, mtp: MtpModel, text: list[int], path: list[int]) -> list[torch.Tensor]:
    """By transformers' layers: log-probabilities `[V]` behind the text, and behind each token of the path below it.

    Below the last layer's depth that layer reads its own last output, the next token and its own cache.
    """
    state = model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states[-1]
    cache, ids = MtpCache(config=model.config.get_mtp_config()), torch.tensor([text[1:]])
    cache.activate_past_recording()
    places, found = torch.arange(1, len(text))[None], []
    for depth in range(1 + len(path)):
        if depth:
            ids = torch.cat([ids[:, 1:], torch.tensor([path[depth - 1 : depth]])], 1)
            places = torch.cat([places[:, 1:], places[:, -1:] + 1], 1)
        if depth >= mtp.num_mtp_layers:
            ids, places, state = ids[:, -1:], places[:, -1:], state[:, -1:]
        state = mtp.forward_layer(min(depth, mtp.num_mtp_layers - 1), state, places, cache, input_ids=ids)
        found.append(model.lm_head(state[0, -1]).log_softmax(-1))
    return found


def untrained(target: tr.PreTrainedModel, layers: int = 1) -> Mtp:
    """Random MTP layers for a target without any."""
    target.config.num_mtp_layers = layers
    torch.manual_seed(7)
    model = MtpModel(target, layers)
    for name, parameter in model.named_parameters():
        if re.match(r"layers\.", name) and parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    return Mtp(model, target.config.num_hidden_layers)
