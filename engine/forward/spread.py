"""Spread: models over several devices, as accelerate spreads whole layers and transformers splits matrices. Knows models; loads none.

- Whole layers: each lies on its own device, in the CPU's memory or on a disk. One process steps through them.
- Split matrices (tensor parallel): every process of a `torchrun` holds a share of all heads. All of them take the same steps.
"""

from typing import TypeVar

import torch
from torch.distributed import broadcast_object_list
from transformers import PreTrainedModel

Value = TypeVar("Value")


def tensor_parallel_processes_of(model: PreTrainedModel) -> int:
    """How many processes share the model's matrices; 1 for a model that is whole in this one."""
    return getattr(model, "tp_size", None) or 1


def is_spread(model: PreTrainedModel) -> bool:
    places = set((getattr(model, "hf_device_map", None) or {}).values())
    return len(places) > 1 or tensor_parallel_processes_of(model) > 1


def layer_devices_of(model: PreTrainedModel) -> list[torch.device]:
    """The device on which each layer computes."""
    count = model.config.num_hidden_layers
    layers = next(each for each in model.modules() if isinstance(each, torch.nn.ModuleList) and len(each) == count)
    hooks = [getattr(layer, "_hf_hook", None) for layer in layers]
    return [torch.device(getattr(hook, "execution_device", None) or model.device) for hook in hooks]


def adopt_first_process_value(model: PreTrainedModel, value: Value) -> Value:
    """The first process's value where processes share the model's matrices: clocks differ, and all must decide the same."""
    if tensor_parallel_processes_of(model) == 1:
        return value
    told = [value]
    broadcast_object_list(told, src=0)
    return told[0]
