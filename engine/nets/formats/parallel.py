"""The trained parallel drafter, as `python -m engine export` writes it in the layout of speculators. Others refuse it by its type."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.forward.session import default_feature_layers
from engine.nets.formats.checked import (
    OF_LAYER,
    load_all_tensors,
    refuse_missing_sizes,
    refuse_missing_unknown_or_misshaped_tensors,
    refuse_other_target,
    refuse_unread_settings,
)
from engine.nets.layer import SIZE_NAMES, NetConfig
from engine.nets.parallel import Parallel

TYPE = "treerace_parallel"
WHOLE = ("block_size", *(size for size in SIZE_NAMES.values() if size != "rope_theta"))
LAYER_IDS = "aux_hidden_state_layer_ids"


def is_form_of(config: dict[str, Any]) -> bool:
    return config.get("speculators_model_type") == TYPE


def load_exported_parallel(config: NetConfig, folder: Path, embedding: torch.Tensor, head: torch.Tensor) -> Parallel:
    found, net = load_all_tensors(folder), Parallel.with_unread_weights(config, embedding, head)
    refuse_missing_unknown_or_misshaped_tensors(
        folder, found, {name: tuple(each.shape) for name, each in net.state_dict().items()}
    )
    net.load_state_dict({name: each.float() for name, each in found.items()})
    return net.prepare_for_drafting(embedding.device)


def validate_config_and_make_loader(
    folder: Path, config: dict[str, Any], embedding: torch.Tensor, target_layer_count: int
) -> Callable[..., Parallel]:
    try:
        sizes = {ours: config["transformer_layer_config"][theirs] for ours, theirs in SIZE_NAMES.items()}
        target_hidden = config.get("target_hidden_size") or 0
        found = NetConfig("parallel", depth=config["block_size"], target_hidden=target_hidden, **sizes)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder}/config.json lacks {error} of a parallel drafter. Export it anew.") from error
    refuse_unread_settings(folder, config, {"transformer_layer_config", "block_size", "target_hidden_size", LAYER_IDS})
    refuse_unread_settings(folder, config["transformer_layer_config"], OF_LAYER, "transformer_layer_config")
    refuse_missing_sizes(folder, {**config["transformer_layer_config"], "block_size": found.depth}, WHOLE)
    refuse_other_target(folder, (found.vocab, found.feature_size), tuple(embedding.shape))
    if config.get(LAYER_IDS) != list(default_feature_layers(target_layer_count)):
        raise ValueError(
            f"The drafter in {folder} reads the layers {config.get(LAYER_IDS)}, and those of this target would be "
            f"{list(default_feature_layers(target_layer_count))}. Use the drafter that was trained for this target."
        )
    return partial(load_exported_parallel, found)
