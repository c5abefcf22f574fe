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
STATES = {
    "head_dim": 16,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
MAMBA = {
    "head_dim": 16,
    "time_step_min": 1e-9,  # or a whole text would be read otherwise than token by token
    "ssm_state_size": 8,
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "chunk_size": 8,
    "moe_shared_expert_intermediate_size": 32,
}
SHARED_EXPERT = {"num_experts": 4, "shared_expert_intermediate_size": 16}
FAMILIES: dict[str, tuple] = {
    "GLM-4 MoE": (tr.Glm4MoeForCausalLM, ROUTED | {"head_dim": 16}),
    "DeepSeek-V3": (tr.DeepseekV3ForCausalLM, ROUTED | LATENT | {"num_key_value_heads": 4}),
    "GLM-4 MoE Lite": (tr.Glm4MoeLiteForCausalLM, ROUTED | LATENT | {"num_key_value_heads": 4}),
    "Mellum": (tr.MellumForCausalLM, {"num_experts": 4, "head_dim": 16, "sliding_window": 5}),
    "Qwen3-Next": (tr.Qwen3NextForCausalLM, STATES | SHARED_EXPERT),
    "Qwen3.5": (tr.Qwen3_5ForCausalLM, STATES),
    "Qwen3.5-MoE": (tr.Qwen3_5MoeForCausalLM, STATES | SHARED_EXPERT),
    "Nemotron-H": (tr.NemotronHForCausalLM, ROUTED | MAMBA),
}
HYBRID = ["linear_attention", "full_attention", "full_attention"]
KINDS = {  # the types of a deep model's layers, of which the last become the MTP layers
    "Mellum": ["sliding_attention", "full_attention", "sliding_attention"],
    "Qwen3-Next": HYBRID,
    "Qwen3.5": HYBRID,
    "Qwen3.5-MoE": HYBRID,
    "Nemotron-H": [*HYBRID, "moe"],
}
# Under `mtp.*`, with what transformers and its configurations know of it
COUNTED = {"Qwen3-Next": "", "Qwen3.5": "mtp_num_hidden_layers", "Qwen3.5-MoE": "mtp_num_hidden_layers"}
ONE_LEVEL_UP = ("Mellum", *COUNTED)
TARGETS = {
    "GLM-4 MoE": ("GLM-4 MoE", 1),
    "GLM-4 MoE, two": ("GLM-4 MoE", 2),
    "DeepSeek-V3": ("DeepSeek-V3", 1),
    "DeepSeek-V3, three": ("DeepSeek-V3", 3),
    "Mellum, window": ("Mellum", 1),
    "GLM-4 MoE Lite": ("GLM-4 MoE Lite", 1),
    "GLM-4 MoE Lite, two": ("GLM-4 MoE Lite", 2),
    "Qwen3-Next": ("Qwen3-Next", 1),
    "Qwen3.5": ("Qwen3.5", 1),
    "Qwen3.5-MoE": ("Qwen3.5-MoE", 1),
    "Nemotron-H": ("Nemotron-H", 1),
}


def config_of(family: str, layers: int, mtp: int, **larger):
    kind, sizes = FAMILIES[family]
    kinds = {"layer_types": KINDS[family][:layers]} if family in KINDS else {}
    named = COUNTED.get(family, "num_nextn_predict_layers")
    return kind.config_class(
        **{**SIZES, **sizes, **kinds, **({named: mtp} if named else {}), **larger},
        num_hidden_layers=layers,
        architectures=[kind.__name__],
    )


def write(folder: Path, family: str, mtp: int, layers: int = LAYERS, **larger) -> None:
    """A random checkpoint with so many MTP layers and its tokenizer. Norms are random too, so that a forgotten one shows.

    `larger` are sizes of its configuration in place of those here.
    """
    torch.manual_seed(0)
    deep = FAMILIES[family][0](config_of(family, len(KINDS.get(family, range(layers + mtp))), 0, **larger)).eval()
    one = float(family not in COUNTED)  # norms of the others multiply by one more than their weight
    for where, parameter in deep.named_parameters():
        vector = parameter.dim() == 1
        if not where.endswith(("A_log", "dt_bias")):
            mean = float(vector) if where.endswith("linear_attn.norm.weight") else vector * one
            torch.nn.init.normal_(parameter, mean=mean, std=0.1 if vector else 0.2)
    deep.save_pretrained(folder)
    config = config_of(family, layers, mtp, **larger)
    config.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    tensors, hidden = tensors_of(folder), config.hidden_size
    for layer in range(mtp):
        own = f"model.layers.{layers + layer}."
        names = {"enorm": 1, "hnorm": 1, "shared_head.norm": 1, "eh_proj": 2}
        if family in ONE_LEVEL_UP:
            tensors = {name.replace(own, "mtp.layers.0."): each for name, each in tensors.items()}
            own, names = "mtp.", {"pre_fc_norm_embedding": 1, "pre_fc_norm_hidden": 1, "norm": 1, "fc": 2}
        elif family == "Nemotron-H":
            block = re.compile(rf"^(backbone|model)\.layers\.([{layers}-9])\.")
            tensors = {
                block.sub(lambda found: f"mtp.layers.{int(found[2]) - layers}.", name): each
                for name, each in tensors.items()
            }
            own, names = "mtp.layers.", {"0.enorm": 1, "0.hnorm": 1, "0.eh_proj": 2, "1.final_layernorm": 1}
        else:
            tensors[own + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
            tensors[own + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        for name, dimensions in names.items():
            shape = (hidden,) if dimensions == 1 else (hidden, 2 * hidden)
            tensors[f"{own}{name}.weight"] = (dimensions == 1) * one + 0.3 * torch.randn(shape)
    rewrite(folder, tensors)


def let_agree(folder: Path, doubt: float) -> None:
    """Change a checkpoint of GLM-4 MoE with one MTP layer, so that its guesses hold as those of a trained one do.

    Every token has one successor, which target and layer both read from its embedding. All that the blocks compute besides is noise,
    in the measure of `doubt`: the more of it, the fewer guesses hold.
    """
    tensors, stream = tensors_of(folder), torch.Generator().manual_seed(1)
    embedding = 4 * torch.nn.functional.normalize(torch.randn(tensors["lm_head.weight"].shape, generator=stream), dim=1)
    order, head, hidden = torch.randperm(256, generator=stream), torch.zeros_like(embedding), embedding.shape[1]
    head[order.roll(-1)] = embedding[order]  # no token leads to the one that ends a text
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = doubt * tensor
        elif name.endswith("norm.weight"):
            tensors[name] = torch.ones_like(tensor)
        elif name.endswith("embed_tokens.weight"):
            tensors[name] = embedding
        elif name.endswith("head.weight"):
            tensors[name] = head
        elif name.endswith("eh_proj.weight"):
            tensors[name] = torch.cat([torch.eye(hidden), doubt * torch.randn(hidden, hidden, generator=stream)], 1)
    rewrite(folder, {name: each.clone() for name, each in tensors.items()})


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def rewrite(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write these as the checkpoint's tensors."""
    save_file(
        {name: each.contiguous() for name, each in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )


def theirs(folder: Path, monkeypatch) -> tuple[tr.PreTrainedModel, "MtpModel | PlainBlocks"]:
    """The target and its MTP layers as transformers loads and computes them.

    It knows them by the numbers of published checkpoints alone, and some families by nothing: these are told to it here. Of
    Nemotron-H's layers it has the blocks.
    """
    config = tr.AutoConfig.from_pretrained(folder)
    kind = getattr(tr, config.architectures[0])
    if kind in (tr.Glm4MoeForCausalLM, tr.DeepseekV3ForCausalLM, tr.Glm4MoeLiteForCausalLM):
        numbers = [rf"model\.layers\.{LAYERS + layer}\." for layer in range(config.num_nextn_predict_layers)]
        monkeypatch.setattr(kind, "_keys_to_ignore_on_load_unexpected", numbers)
    model = kind.from_pretrained(folder, attn_implementation="sdpa").eval()
    if kind is tr.NemotronHForCausalLM:
        return model, PlainBlocks(folder, model)
    if kind is tr.Glm4MoeLiteForCausalLM:
        model.config.num_mtp_layers = config.num_nextn_predict_layers
        model.config.mtp_mlp_layer_types = ["sparse"] * config.num_nextn_predict_layers
    elif kind in [FAMILIES[family][0] for family in COUNTED]:
        model.config.num_mtp_layers, model.config.mtp_layer_types = 1, ["full_attention"]
    return model, MtpModel.from_pretrained(model, device_map={"": "cpu"}).eval()


class PlainBlocks:
    """Nemotron-H's MTP layer by hand, from the names in its files: two blocks of the target's kind, computed anew for all entries."""

    num_mtp_layers = 1

    def __init__(self, folder: Path, model: tr.PreTrainedModel):
        stored, config, kind = tensors_of(folder), model.config, type(model.model.layers[0])
        first, last = (
            {name.removeprefix(own): each for name, each in stored.items() if name.startswith(own)}
            for own in ("mtp.layers.0.", "mtp.layers.1.")
        )
        for side in ("up_proj", "down_proj"):
            experts = [last.pop(f"mixer.experts.{number}.{side}.weight") for number in range(config.n_routed_experts)]
            last[f"mixer.experts.{side}"] = torch.stack(experts)
        self.norms = [first.pop("enorm.weight"), first.pop("hnorm.weight"), last.pop("final_layernorm.weight")]
        self.projection, self.model = first.pop("eh_proj.weight"), model
        kinds, config.layers_block_type = config.layers_block_type, ["full_attention", "moe"]
        self.blocks = [kind(config, 0).eval(), kind(config, 1).eval()]
        config.layers_block_type = kinds
        for block, weights in zip(self.blocks, (first, last), strict=True):
            block.load_state_dict(weights)

    def normed(self, number: int, rows: torch.Tensor) -> torch.Tensor:
        eps = self.model.config.layer_norm_epsilon
        return self.norms[number] * rows * (rows.square().mean(-1, keepdim=True) + eps).rsqrt()

    def forward_layer(self, layer: int, state, positions, cache, input_ids) -> torch.Tensor:
        """The outputs `[1, n, H]` behind these entries and those that this cache saw before."""
        embedded = self.normed(0, self.model.model.embeddings(input_ids))
        entries = torch.cat([embedded, self.normed(1, state)], -1) @ self.projection.T
        cache.seen = rows = torch.cat([getattr(cache, "seen", entries[:, :0]), entries], 1)
        count = rows.shape[1]
        mask = torch.full((1, 1, count, count), float("-inf")).triu(1)
        for block in self.blocks:
            rows = block(rows, attention_mask=mask)
        return self.normed(2, rows)[:, -input_ids.shape[1] :]


@torch.no_grad()
def guesses(
    model: tr.PreTrainedModel, mtp: "MtpModel | PlainBlocks", text: list[int], path: list[int]
) -> list[torch.Tensor]:
    """By transformers' layers: log-probabilities `[V]` behind the text, and behind each token of the path below it.

    Below the last layer's depth that layer reads its own last output, the next token and its own cache.
    """
    state = model(torch.tensor([text[:-1]]), output_hidden_states=True, use_cache=False).hidden_states[-1]
    cache, ids = MtpCache(), torch.tensor([text[1:]])
    if isinstance(mtp, MtpModel):
        cache = MtpCache(config=model.config.get_mtp_config())
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
