"""Processes: splits work over those that `accelerate launch` or `torchrun` started, and brings results together. Else there is one."""

import atexit
from functools import cache
from typing import TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from engine.forward.runner import Runner

Item = TypeVar("Item")


@cache
def launch_state() -> PartialState:
    """The processes of this launch. The first call lets them meet. They part before the interpreter ends.

    Otherwise a thread that brought results together may free a tensor then, which aborts the process.
    """
    met = PartialState(cpu=not torch.cuda.is_available())
    atexit.register(met.destroy_process_group)
    return met


def is_first_process() -> bool:
    """Whether this is the process that prints."""
    return launch_state().is_main_process


def count_processes() -> int:
    return launch_state().num_processes


def split_items(items: list[Item], target: Runner) -> list[Item]:
    """This process's part of a list that all hold, in order. Processes that share the target's matrices each have the whole list."""
    if target.processes > 1:
        return items
    with launch_state().split_between_processes(items) as mine:
        return list(mine)


def gather_items(items: list[Item], target: Runner) -> list[Item]:
    """What all processes made of their shares, in one list, the first process's first. All processes must call it."""
    return items if target.processes > 1 else gather_object(items)


def broadcast_first(value: Item) -> Item:
    """The first process's value, in all of them."""
    return broadcast_object_list([value])[0]


def choose_device(requested: str | None) -> str | None:
    """The device that a person asked for, else the process's own GPU where several processes share a machine's GPUs."""
    if requested is None and count_processes() > 1 and torch.cuda.is_available():
        return f"cuda:{launch_state().local_process_index}"
    return requested
