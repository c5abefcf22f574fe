"""Devices: the kinds of devices that torch computes on here, what each waits for and lacks, and numbers on their way to one.

Knows no model and no pair.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from torch import Tensor

KINDS = ("cuda", "mps", "cpu")  # the one that is taken first where several are there
THREADS = torch.get_num_threads()
_inside = threading.local()


def is_device_kind_available(device_kind: str) -> bool:
    """Whether this machine has a device of one of `KINDS`. "mps" is the GPU of Apple silicon."""
    if device_kind == "cuda":
        return torch.cuda.is_available()
    return device_kind == "cpu" or torch.backends.mps.is_available()


def wait_for_device(device: torch.device) -> None:
    """Waits until the device has done all that it was asked for. A CPU has, always."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def free_bytes(device: torch.device) -> int:
    """Bytes that are free on the device now. Apple silicon has one memory, of which Metal recommends a part for its GPU."""
    left = psutil.virtual_memory().available
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return min(left, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return left


def widest_float_dtype(device: torch.device) -> torch.dtype:
    """The widest type of real numbers that the device computes in. Metal has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def upload(numbers: Any, device: torch.device) -> Tensor:
    """The tensor, array or list on the device, in a type that it has. Pinned memory is copied while the host goes on."""
    made = torch.as_tensor(numbers)
    if made.dtype == torch.float64:
        made = made.to(widest_float_dtype(device))
    queued = device.type == "cuda" and made.is_cpu
    return made.pin_memory().to(device, non_blocking=True) if queued else made.to(device)


def select_rows(tensor: Tensor, rows: list[int]) -> Tensor:
    """`tensor[rows]`, without waiting for its device."""
    return tensor.index_select(0, upload(rows, tensor.device)) if not tensor.is_cpu else tensor[rows]


def noise_device_or_none_for_cpu(device: torch.device) -> torch.device | None:
    """Where noise is made for a model: on a device that counts in float64 (`engine.sampling.compute_gumbel_by_position`), else None
    for the CPU.
    """
    return device if device.type == "cuda" else None


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Inside, this thread's torch operations run on one thread. Outside they run on as many as when this module was loaded.

    After an operation on several threads, torch's threads look for the next one for a while. A forward whose own threads begin then
    would share its cores with them, and take up to twice as long.
    """
    if getattr(_inside, "already", False):
        yield
        return
    _inside.already = True
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(THREADS)
        _inside.already = False
