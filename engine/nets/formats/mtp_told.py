"""MTP layers that no configuration of transformers names, told to it in its own terms. Knows configurations and modules; no files.

Qwen3-Next and Qwen3.5 ship one layer with full attention as `mtp.*`. `fc` projects the normalised embedding and final state for it.
Nemotron-H ships a short stack of its own blocks as `mtp.layers.*`: the first one holds the projection, the last one the final norm.
GLM-4 MoE Lite ships DeepSeek-V3's form. These layouts are those of vLLM's `qwen3_next_mtp`, `qwen3_5_mtp`, `nemotron_h_mtp` and
`glm4_moe_lite_mtp`, which all hand in the state behind the target's final norm.
"""

import re
from copy import deepcopy
from types import SimpleNamespace

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_layers import MtpModel

QWEN = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
NEMOTRON = "nemotron_h"
ATTENDING = "full_attention"
TOLD = QWEN | {NEMOTRON, "glm4_moe_lite"}
COUNTS = ("num_mtp_layers", "num_nextn_predict_layers", "mtp_num_hidden_layers")  # as configurations name it


def count_declared_mtp_layers(config: PreTrainedConfig) -> int:
    """How many MTP layers a target may ship by its configuration. One of Qwen that says nothing stands for one, as in vLLM."""
    if config.model_type not in TOLD:
        return getattr(config, "num_mtp_layers", None) or 0
    named = [count for name in COUNTS if (count := getattr(config, name, None)) is not None]
    return named[0] if named else int(config.model_type in QWEN)


def explain_unread_mtp(config: PreTrainedConfig) -> str | None:
    """Why the MTP layers that a configuration names are not read, in a sentence; None where they are, or where it names none."""
    count = count_declared_mtp_layers(config)
    if config.model_type in QWEN or config.model_type == NEMOTRON:
        if count > 1:
            return (
                f"Its config names {count} MTP layers, and nobody has tried how several share what `mtp.*` holds once."
            )
        others = sorted({*mtp_block_types_of(config)} - {ATTENDING, "moe", "mlp"})
        if count and others:
            return f"Its MTP layers hold {others[0]}, which keeps a state, and no rejected guess can be cut out of it."
    return None


def mtp_block_types_of(config: PreTrainedConfig) -> list[str]:
    """The types of the blocks that Nemotron-H's MTP layer stacks; [] of others."""
    return list(config.mtp_layers_block_type) if config.model_type == NEMOTRON else []


def build_mtp_model(target: PreTrainedModel) -> MtpModel:
    """The target's MTP layers, with weights still to come. They share its embedding, head and rotary tables."""
    count = count_declared_mtp_layers(target.config)
    if target.config.model_type not in TOLD:
        return MtpModel(target, count)
    return MtpModel(build_stand_in_target_for_mtp_model(target, count), count)


def build_stand_in_target_for_mtp_model(target: PreTrainedModel, count: int) -> SimpleNamespace:
    """What `MtpModel` asks of a target, for one whose configuration does not name its layers."""
    config, decoder = mtp_config_of(target.config, count), target.get_decoder()
    if config.model_type == NEMOTRON:
        example = type("NemotronMtpBlocks", (NemotronMtpBlocks,), {"kind": type(decoder.layers[0])})(config, 0)
    else:  # its first norm is taken for all of them, and a layer with a state has one of another kind
        kinds = getattr(target.config, "layer_types", None) or [ATTENDING]
        example = decoder.layers[kinds.index(ATTENDING)]
    return SimpleNamespace(
        config=SimpleNamespace(get_mtp_config=lambda: config),
        get_decoder=lambda: SimpleNamespace(layers=[example], rotary_emb=getattr(decoder, "rotary_emb", None)),
        get_input_embeddings=target.get_input_embeddings,
        lm_head=target.lm_head,
    )


def mtp_config_of(config: PreTrainedConfig, count: int) -> PreTrainedConfig:
    """The configuration of so many MTP layers, whose numbers begin at 0."""
    own = deepcopy(config)
    if own.model_type == NEMOTRON:
        own.layers_block_type, own.rms_norm_eps = mtp_block_types_of(config), config.layer_norm_epsilon
    elif own.model_type in QWEN:
        own.layer_types, own.num_hidden_layers = [ATTENDING] * count, count
    else:
        own.mlp_layer_types, own.num_hidden_layers = ["sparse"] * count, count
    return own


class NemotronMtpBlocks(nn.Module):
    """Nemotron-H's MTP layer behind its projection: several of the target's own blocks, each attention with a cache of its own."""

    kind: type[nn.Module]

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__()
        self.blocks = nn.ModuleList(self.kind(config, number) for number in range(len(config.layers_block_type)))
        attending = [block.mixer for block in self.blocks if block.block_type == ATTENDING]
        for number, mixer in enumerate(attending):
            mixer.layer_idx = number
        self.caches = len(attending)

    def forward(self, hidden_states: torch.Tensor, position_embeddings: None, **more: object) -> torch.Tensor:
        """`[1, N, H]` to `[1, N, H]`. These blocks turn nothing by its position."""
        for block in self.blocks:
            hidden_states = block(hidden_states, **more)
        return hidden_states


def rename_mtp_tensors_for_transformers(
    config: PreTrainedConfig, tensors: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The tensors by the names that transformers' conversions start from."""
    if config.model_type != NEMOTRON:
        return tensors
    last, found = len(mtp_block_types_of(config)) - 1, {}
    for name, tensor in tensors.items():
        own = re.sub(r"^(model\.)?mtp\.layers\.0\.(enorm|hnorm|eh_proj)\.", r"layers.0.\2.", name)
        own = re.sub(rf"^(model\.)?mtp\.layers\.{last}\.final_layernorm\.", "layers.0.post_norm.", own)
        found[re.sub(r"^(model\.)?mtp\.layers\.(\d+)\.", r"layers.0.mtp_block.blocks.\2.", own)] = tensor
    return found
