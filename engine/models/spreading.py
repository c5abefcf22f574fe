"""Spreading: how a target is loaded over several devices, by accelerate or by transformers. Reads configurations; no weight.

- "layers": accelerate's plan for `device_map="auto"`. GPUs take whole layers in order, then the CPU's memory, then a disk.
- "matrices": transformers' own plan for tensor parallelism, in the processes that `torchrun` started.
"""

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import torch
from accelerate import infer_auto_device_map
from accelerate.utils import get_max_memory
from transformers import PreTrainedConfig, PreTrainedModel

from engine.forward.recurrent.kinds import keeps_state
from engine.forward.sizes import kv_heads_of
from engine.forward.spread import tensor_parallel_processes_of
from engine.models.pairs import Checkpoint

LAUNCHED = "torchrun --nproc-per-node 2 -m engine bench --spread matrices"


def refuse_unfit_spread(spread: str, checkpoint: Checkpoint, config: PreTrainedConfig, device: torch.device) -> None:
    """Raises `ValueError` where a target is spread that keeps states, or from a device that has no other beside it."""
    if device.type == "mps":
        raise ValueError(
            f"--spread {spread} puts a target on CUDA GPUs, on the CPU's memory and on a disk, and this is {device.type}. "
            "Take --spread none, or --device cpu."
        )
    if keeps_state(config):
        raise ValueError(
            f"{checkpoint.path} ({config.model_type}) keeps states, which are not spread here. Use --spread none."
        )


def describe_spread(model: PreTrainedModel) -> str:
    """What is said behind the hardware's name, "" for a model on one device."""
    places = {str(place) for place in (getattr(model, "hf_device_map", None) or {}).values()}
    if (processes := tensor_parallel_processes_of(model)) > 1:
        return f", {processes} processes"
    return f", layers on {' and '.join(sorted(places))}" if len(places) > 1 else ""


def available_weight_bytes_by_device() -> Mapping[int | str, int]:
    """Bytes that weights may take, by GPU and for the CPU. A tenth stays free for caches and activations."""
    return {place: free * 9 // 10 for place, free in get_max_memory().items()}


def spread_loading_arguments(
    spread: str, checkpoint: Checkpoint, config: PreTrainedConfig, meta_model: PreTrainedModel
) -> dict[str, Any]:
    """What `from_pretrained` is told besides, for the `meta_model` model. Raises `ValueError` for a model that cannot be split here."""
    if spread == "layers":
        plan = infer_auto_device_map(
            meta_model,
            dict(available_weight_bytes_by_device()),
            no_split_module_classes=list(meta_model._no_split_modules or ()),
        )
        return {"device_map": plan, "offload_folder": tempfile.mkdtemp(prefix="treerace-")} if plan else {}
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes == 1:
        raise ValueError(
            f"Matrices are split over processes, and this is a single one. Start them, as in `{LAUNCHED}`."
        )
    if not meta_model.supports_tp_plan:
        raise ValueError(f"transformers has no plan to split a {config.model_type} model. Use --spread layers.")
    heads = {"attention heads": config.num_attention_heads, "key-value heads": kv_heads_of(config) or 0}
    for what, count in heads.items():
        if count % processes:
            raise ValueError(
                f"{checkpoint.path} has {count} {what}, which {processes} processes cannot share evenly. "
                f"Start a number that divides {count}."
            )
    from transformers.distributed.configuration_utils import DistributedConfig

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    return {"distributed_config": DistributedConfig(tp_size=processes, tp_plan="auto")}
