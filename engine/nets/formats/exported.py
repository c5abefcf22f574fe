"""Exported: our trained drafters in the layout of speculators. Knows sizes and tensors; writes no file.

EAGLE's net is the published EAGLE-3 network whose features pass norms without weights (`fc_norm`), so it is exported as that. The
format has no type for Medusa heads and none for our parallel net: each gets a type of ours, which vLLM refuses by name.
"""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedConfig

from engine.forward.session import tapped_layers
from engine.nets import formats
from engine.nets.eagle import WINDOW
from engine.nets.layer import EPS, NetConfig

VERSION = "0.7.0"  # of speculators, whose keys these are

Weights = Mapping[str, torch.Tensor]
# What is written: the config, the tensors by name, and a sentence or two on who can read them
Export = tuple[dict[str, Any], dict[str, torch.Tensor], str]


def layout(
    kind: str, architecture: str, config: NetConfig, verifier: str, target: PreTrainedConfig, **layer: Any
) -> dict[str, Any]:
    """The keys that every config of the layout has, for the target that is called `verifier`; `layer` adds to the layer's."""
    method = {
        "proposal_type": "greedy",
        "speculative_tokens": config.depth,
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
            "verifier": {"name_or_path": verifier, "architectures": target.architectures or []},
        },
        "transformer_layer_config": {
            "model_type": "llama",
            **config.in_transformers(),
            "rms_norm_eps": EPS,
            "mlp_bias": False,
            "max_position_embeddings": target.max_position_embeddings,
            **layer,
        },
        **({"target_hidden_size": config.target_hidden} if config.target_hidden else {}),
    }


def eagle(config: NetConfig, weights: Weights, verifier: str, target: PreTrainedConfig) -> Export:
    """As `Eagle3Speculator`. Raises `ValueError` for a target of so few layers that one of them is read twice."""
    taps = tapped_layers(target.num_hidden_layers)
    if len(set(taps)) < len(taps):
        raise ValueError(
            f"The EAGLE drafter of {verifier} reads the layers {list(taps)}, and the format names a layer once. "
            "Only drafters of targets with at least 4 layers can be exported."
        )
    made_of = formats.eagle3.names_of(formats.eagle3.SPECULATORS, len(taps))
    ones = {f"norm_taps.{tap}.weight": weights["norm_out.weight"].new_ones(config.reads) for tap in range(len(taps))}
    offsets, tensors = weights["offsets"], {}
    for name, each in {**weights, **ones}.items():
        if name in made_of:  # of parts of one size
            tensors |= zip(made_of[name], each.chunk(len(made_of[name])), strict=True)
    ids = offsets + torch.arange(len(offsets))
    tensors |= {"d2t": offsets, "t2d": torch.zeros(config.vocab, dtype=torch.bool).index_fill_(0, ids, True)}
    if config.target_hidden:
        tensors["embed_tokens.weight"] = weights["embedding"]
    window = {"layer_types": ["sliding_attention"], "sliding_window": WINDOW}
    described = layout("eagle3", "Eagle3Speculator", config, verifier, target, **window)
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
        "It is an EAGLE-3 drafter of speculators. An engine must compute `fc_norm` to draft with it. One that does not know the "
        "setting refuses the tensors or guesses badly. It was never run in another engine.",
    )


def medusa(config: NetConfig, weights: Weights, verifier: str, target: PreTrainedConfig) -> Export:
    """As `treerace_medusa`, with the keys and names of vLLM's own form. Raises `ValueError` for heads with a width of their own."""
    if config.target_hidden:
        raise ValueError(
            f"The Medusa heads of {verifier} are {config.hidden} wide and their target {config.target_hidden}. The format has "
            f"only heads as wide as their target. Train such with `python -m engine train medusa --hidden {config.target_hidden}`."
        )
    if config.own_vocab:
        raise ValueError(
            f"The Medusa heads of {verifier} share the head of their target, and the format has only heads with projections of their "
            f"own. Train such with `python -m engine train medusa --own-vocab {config.vocab}`."
        )
    inner, outer = formats.medusa.VLLM
    tensors = {
        inner.format(head=k, block=0, part=part): weights[f"blocks.{k}.{part}"]
        for k in range(config.depth)
        for part in ("weight", "bias")
    }
    tensors |= {outer.format(head=k): weights[f"unembeds.{k}"] for k in range(config.depth)}
    described = layout("treerace_medusa", "MedusaModel", config, verifier, target)
    described |= {
        "model_type": "medusa",
        "hidden_size": config.hidden,
        "vocab_size": config.vocab,
        "truncated_vocab_size": config.vocab,
        "num_heads": config.depth,
        "num_hidden_layers": 1,
        "medusa_fc_bias": True,
    }
    return (
        described,
        tensors,
        "vLLM does not run this folder, because speculators has no type for Medusa heads. Names and the other keys are those "
        "of vLLM's own Medusa form, which is what remains when the keys `speculators_*` are deleted from config.json. "
        "It was never run in another engine.",
    )


def parallel(config: NetConfig, weights: Weights, verifier: str, target: PreTrainedConfig) -> Export:
    """As `treerace_parallel`, with tensors by our own names."""
    described = layout(formats.parallel.TYPE, "TreeRaceParallel", config, verifier, target)
    taps = list(tapped_layers(target.num_hidden_layers))
    return (
        described | {"block_size": config.depth, formats.parallel.LAYER_IDS: taps},
        dict(weights),
        "vLLM does not run it: no type of speculators computes this network. Its P-EAGLE guesses all depths at once too, but "
        "with one EAGLE-3 layer, a mask token and features that are not scaled.",
    )


EXPORTS = {"eagle": eagle, "medusa": medusa, "parallel": parallel}
