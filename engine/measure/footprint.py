"""Footprint: how much memory a task takes."""

import os
from collections.abc import Callable

import torch

MIB = 2**20
os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # above all levels: torch's profiler prints a line at each start and end


def measure_peak_mib(device: torch.device, task: Callable[[], object]) -> float | None:
    """The most MiB of tensors that `task` holds at any time, by torch's own allocator, beyond those alive before it.

    So caches and temporaries count and loaded weights do not. On a CPU the profiler records every allocation, which slows the task:
    never time it. None on an Apple GPU, whose allocator keeps no peak; nothing runs then.
    """
    if device.type == "mps":
        return None
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        task()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / MIB
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        task()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()  # negative when memory is given back
        peak = max(peak, live)
    return peak / MIB
