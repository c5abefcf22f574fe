"""Exported: our trained drafters in the layout of speculators. Knows sizes and tensors; writes no file.

EAGLE's net is the published EAGLE-3 network whose features pass norms without weights (`fc_norm`), so it is exported as that. DFlash
and DSpark are the networks that speculators has. It has no type for Medusa heads, so these get the keys of vLLM's own form alone. It
has none for our parallel net either, which gets a type of ours that others refuse by name.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedConfig

from engine.forward.llama_layer import EPS
from engine.forward.session import default_feature_layers
from engine.nets import formats
from engine.nets.dflash import DFlash
from engine.nets.eagle import WINDOW
from engine.nets.formats.checked import SIZES
from engine.nets.layer import NetConfig

VERSION = "0.9.0"  # of speculators, whose keys these are
# What a block's config says of its layers, and what DSpark's says beside
BLOCK_LAYER = (
    *SIZES,
    "rms_norm_eps",
    "rope_theta",
    "hidden_act",
    "attention_bias",
)
MARKOV = ("markov_rank", "markov_head_type", "enable_confidence_head")
RAN = "It was run in vLLM 0.32 on a CPU. There `vllm serve TARGET --speculative-config` names this folder as the model"

Weights = Mapping[str, torch.Tensor]
Tables = Callable[[], dict[str, torch.Tensor]]  # makes the target's `embedding` and `head`, as wide as the net
# What is written: the config, the tensors by name, and a sentence or two on who can read them
Export = tuple[dict[str, Any], dict[str, torch.Tensor], str]


def build_speculators_config(
    kind: str,
    architecture: str,
    guess_count: int,
    layer_config: Mapping[str, Any],
    target_hidden: int,
    target_name: str,
    target: PreTrainedConfig,
) -> dict[str, Any]:
    """The keys that every config of the layout has, for the target called `target_name`. A `target_hidden` of 0 is the net's own."""
    method = {
        "proposal_type": "greedy",
        "speculative_tokens": guess_count,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    return {
        "architectures": [architecture],
        "speculators_model_type": kind,
        "speculators_version": VERSION,
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [method],
            "verifier": {"name_or_path": target_name, "architectures": target.architectures or []},
        },
        "transformer_layer_config": {**layer_config, "max_position_embeddings": target.max_position_embeddings},
        **({"target_hidden_size": target_hidden} if target_hidden else {}),
    }


def llama_layer_config(config: NetConfig) -> dict[str, Any]:
    return {"model_type": "llama", **config.to_transformers_names(), "rms_norm_eps": EPS, "mlp_bias": False}


def build_eagle_export(
    config: NetConfig, weights: Weights, make_target_tables: Tables, target_name: str, target: PreTrainedConfig
) -> Export:
    """As `Eagle3Speculator`. Raises `ValueError` for a target of so few layers that one of them is read twice.

    speculators reads a file without an embedding as one of zeros and says nothing, so that the target's is written too.
    """
    taps = default_feature_layers(target.num_hidden_layers)
    if len(set(taps)) < len(taps):
        raise ValueError(
            f"The EAGLE drafter of {target_name} reads the layers {list(taps)}, and the format names a layer once. "
            "Only drafters of targets with at least 4 layers can be exported."
        )
    made_of = formats.eagle3.published_names_of(formats.eagle3.SPECULATORS, len(taps))
    ones = {
        f"norm_taps.{tap}.weight": weights["norm_out.weight"].new_ones(config.feature_size) for tap in range(len(taps))
    }
    offsets, tensors = weights["offsets"], {}
    for name, each in {**weights, **ones}.items():
        if name in made_of:  # of parts of one size
            tensors |= zip(made_of[name], each.chunk(len(made_of[name])), strict=True)
    ids = offsets + torch.arange(len(offsets))
    tensors |= {"d2t": offsets, "t2d": torch.zeros(config.vocab, dtype=torch.bool).index_fill_(0, ids, True)}
    tensors["embed_tokens.weight"] = weights["embedding"] if config.target_hidden else make_target_tables()["embedding"]
    layer = llama_layer_config(config) | {"layer_types": ["sliding_attention"], "sliding_window": WINDOW}
    described = build_speculators_config(
        "eagle3", "Eagle3Speculator", config.depth, layer, config.target_hidden, target_name, target
    )
    described |= {
        "draft_vocab_size": config.own_vocab,
        "eagle_aux_hidden_state_layer_ids": list(taps),
        "norm_before_residual": False,
        "norm_before_fc": False,
        "fc_norm": True,
        "norm_output": False,
    }
    return (
        described,
        tensors,
        f"It is an EAGLE-3 drafter of speculators. {RAN}. An engine must compute `fc_norm` to draft with it. One that does not know "
        "the setting refuses the tensors or guesses badly.",
    )


def build_block_export(
    kind: str,
    config: dict[str, Any],
    weights: Weights,
    make_target_tables: Tables,
    target_name: str,
    target: PreTrainedConfig,
) -> Export:
    """As speculators' DFlash or DSpark. `config` is that of the files. A layer to read is counted by the layers before the place."""
    own = config.get("dflash_config", config)
    narrow = config["hidden_size"] != target.hidden_size
    tensors = dict(weights)
    if narrow and not tensors.keys() & DFlash.file_name_by_weight.values():
        tensors |= {DFlash.file_name_by_weight[name]: each for name, each in make_target_tables().items()}
    guesses = config["block_size"] - (kind == "dflash")
    layer = {"model_type": "qwen3", **{name: config[name] for name in BLOCK_LAYER}}
    layer |= {"layer_types": ["full_attention"] * config["num_hidden_layers"]}
    architecture = {"dflash": "DFlashDraftModel", "dspark": "DSparkDraftModel"}[kind]
    described = build_speculators_config(
        kind, architecture, guesses, layer, target.hidden_size * narrow, target_name, target
    )
    described |= {
        "draft_vocab_size": config["vocab_size"],
        "block_size": config["block_size"],
        "mask_token_id": own["mask_token_id"],
        formats.parallel.LAYER_IDS: [each + 1 for each in own["target_layer_ids"]],
        "sample_from_anchor": kind == "dspark",
        **({name: config[name] for name in MARKOV} if kind == "dspark" else {}),
    }
    readers = "Embedding and head in it are the target's, made narrower" if narrow else "speculators 0.9 reads it"
    ran = f" {RAN}." if kind == "dflash" else ""
    return described, tensors, f"It is a {kind} drafter of speculators. {readers}.{ran}"


def build_medusa_export(
    config: NetConfig, weights: Weights, make_target_tables: Tables, target_name: str, target: PreTrainedConfig
) -> Export:
    """With the keys and names of vLLM's own form. Raises `ValueError` for heads with a width of their own."""
    if config.target_hidden:
        raise ValueError(
            f"The Medusa heads of {target_name} are {config.hidden} wide and their target {config.target_hidden}. The format has "
            f"only heads as wide as their target. Train such with `python -m engine train medusa --hidden {config.target_hidden}`."
        )
    if config.own_vocab:
        raise ValueError(
            f"The Medusa heads of {target_name} share the head of their target, and the format has only heads with projections of "
            f"their own. Train such with `python -m engine train medusa --own-vocab {config.vocab}`."
        )
    names = formats.medusa.published_names_of(config.depth, 1, formats.medusa.VLLM)
    tensors = {theirs: weights[ours] for ours, theirs in names.items()}
    described = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": config.hidden,
        "vocab_size": config.vocab,
        "truncated_vocab_size": config.vocab,
        "num_heads": config.depth,
        "num_hidden_layers": 1,
        "medusa_fc_bias": True,
    }
    return described, tensors, f"They are Medusa heads in vLLM's own form. {RAN}, with the method `medusa`."


def build_parallel_export(
    config: NetConfig, weights: Weights, make_target_tables: Tables, target_name: str, target: PreTrainedConfig
) -> Export:
    """As `treerace_parallel`, with tensors by our own names."""
    described = build_speculators_config(
        formats.parallel.TYPE,
        "TreeRaceParallel",
        config.depth,
        llama_layer_config(config),
        config.target_hidden,
        target_name,
        target,
    )
    taps = list(default_feature_layers(target.num_hidden_layers))
    return (
        described | {"block_size": config.depth, formats.parallel.LAYER_IDS: taps},
        dict(weights),
        "TreeRace alone runs it: no type of speculators and no model of vLLM computes this network. P-EAGLE guesses all depths at "
        "once too, but with one EAGLE-3 layer, a mask token and features that are not scaled.",
    )


BLOCKS = ("dflash", "dspark")  # whose trained files have a published config already
EXPORTS: dict[str, Callable[..., Export]] = {
    "eagle": build_eagle_export,
    "medusa": build_medusa_export,
    "parallel": build_parallel_export,
    **{kind: partial(build_block_export, kind) for kind in BLOCKS},
}
