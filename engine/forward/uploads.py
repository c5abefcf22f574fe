"""Uploads: numbers of the host on a device, without waiting for it."""

from typing import Any

import torch
from torch import Tensor

from engine.forward.devices import widest_dtype


def upload(numbers: Any, device: torch.device) -> Tensor:
    """The tensor, array or list on the device, in a type that it has. Pinned memory is copied while the host goes on."""
    made = torch.as_tensor(numbers)
    if made.dtype == torch.float64:
        made = made.to(widest_dtype(device))
    queued = device.type == "cuda" and made.is_cpu
    return made.pin_memory().to(device, non_blocking=True) if queued else made.to(device)


def select_rows(tensor: Tensor, rows: list[int]) -> Tensor:
    """`tensor[rows]`, without waiting for its device."""
    return tensor.index_select(0, upload(rows, tensor.device)) if not tensor.is_cpu else tensor[rows]
