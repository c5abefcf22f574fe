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
def join_launched_processes() -> PartialState:
    """The processes of this launch. The first call lets them meet. They part before the interpreter ends.

    Otherwise a thread that brought results together may free a tensor then, which aborts the process.
    """
    met = PartialState(cpu=not torch.cuda.is_available())
    atexit.register(met.destroy_process_group)
    return met


def is_first_process() -> bool:
    """Whether this is the process that prints."""
    return join_launched_processes().is_main_process


def count_processes() -> int:
    return join_launched_processes().num_processes


def select_items_of_this_process(all_items: list[Item], target: Runner) -> list[Item]:
    """This process's part of a list that all hold, in order. Processes that share the target's matrices each have the whole list."""
    if target.processes > 1:
        return all_items
    with join_launched_processes().split_between_processes(all_items) as mine:
        return list(mine)


def gather_items_of_all_processes(own_items: list[Item], target: Runner) -> list[Item]:
    """What all processes made of their shares, in one list, the first process's first. All processes must call it."""
    return own_items if target.processes > 1 else gather_object(own_items)


def broadcast_from_first_process(value: Item) -> Item:
    """The first process's value, in all of them."""
    return broadcast_object_list([value])[0]


def choose_device_of_this_process(requested: str | None) -> str | None:
    """The device that a person asked for, else the process's own GPU where several processes share a machine's GPUs."""
    if requested is None and count_processes() > 1 and torch.cuda.is_available():
        return f"cuda:{join_launched_processes().local_process_index}"
    return requested
