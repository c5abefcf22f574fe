"""DSpark checkpoints in the form of DeepSpec and in that of speculators, as `DSpark` nets.

DeepSpec's flat config says all. speculators' is its DFlash's with the same keys beside, and may leave out what has a default there. The
files bring a confidence head, which cuts a chain short. Trees are cut by their scores instead, so that head is not read.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.nets.dflash import DFlash
from engine.nets.dspark import DSpark, DSparkSizes
from engine.nets.formats import dflash

ARCHITECTURE = "Qwen3DSparkModel"
ARCHITECTURES = frozenset({ARCHITECTURE, "DSparkDraftModel", "DSparkSpeculator"})
# What speculators 0.9 takes for a key that a config leaves out
DEFAULTS = {
    "sample_from_anchor": True,
    "markov_rank": 256,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}
# What a config has beside DFlash's; how many anchors it was trained with changes nothing
BESIDE = frozenset({*DEFAULTS, "mask_token_id", "target_layer_ids", "num_anchors"})


def is_form_of(config: dict[str, Any]) -> bool:
    if "speculators_model_type" in config:
        return config["speculators_model_type"] == "dspark"
    return ARCHITECTURE in (config.get("architectures") or ())


def validate_config_and_make_loader(
    folder: Path, config: dict[str, Any], embedding: torch.Tensor, target_layer_count: int
) -> Callable[..., DFlash]:
    dflash.refuse_other_networks_and_unread_settings(folder, config, ARCHITECTURES, BESIDE)
    sizes = validated_sizes_of(folder, config, embedding, target_layer_count)
    optional = dflash.embedding_and_head_shapes(sizes)
    if "speculators_model_type" in config:
        optional |= {"d2t": (sizes.own_vocab,), "t2d": (sizes.vocab,)}
    if sizes.confidence_head_width:
        optional |= {"confidence_head.proj.weight": (1, sizes.confidence_head_width), "confidence_head.proj.bias": (1,)}
    return partial(dflash.load_checked_block_net, DSpark, sizes, optional, config)


def validated_sizes_of(
    folder: Path, config: dict[str, Any], embedding: torch.Tensor, target_layer_count: int
) -> DSparkSizes:
    """As `engine.nets.formats.dflash.validated_sizes_of`. Raises `ValueError` for another Markov head too."""
    speculators = "speculators_model_type" in config
    config = DEFAULTS | config if speculators else config
    rank, head = config.get("markov_rank"), config.get("markov_head_type")
    if type(rank) is not int or rank < 1:
        raise ValueError(
            f"{folder}/config.json must give markov_rank as a whole number from 1 on, got {rank!r}. Without a Markov head it is "
            "DFlash, which is read in the form of z-lab and in that of speculators."
        )
    if head != "vanilla":
        raise ValueError(f"{folder} has a Markov head of the type {head!r}. Only 'vanilla' is computed.")
    block = {name: config.get(name) for name in ("mask_token_id", "target_layer_ids")}
    own = config if speculators else {**config, "dflash_config": block, "sample_from_anchor": True}
    plain = dflash.validated_sizes_of(folder, own, embedding, target_layer_count)
    confident = 0
    if config.get("enable_confidence_head"):
        confident = plain.hidden + (rank if config.get("confidence_head_with_markov") else 0)
    return DSparkSizes(**vars(plain), markov_rank=rank, confidence_head_width=confident)
