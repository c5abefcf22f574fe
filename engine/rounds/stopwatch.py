"""Stopwatch: seconds by phase on one device."""

import time

import torch

from engine.forward.devices import synchronise


class Stopwatch:
    """Times phases after waiting for the device, so that no phase pays for another's kernels."""

    def __init__(self, device: torch.device):
        self.device = device

    def start(self) -> None:
        self.seconds: dict[str, float] = {}
        self.since = time.perf_counter()

    def lap(self, name: str) -> float:
        """End the phase of that name and begin the next one. Returns its seconds."""
        synchronise(self.device)
        now = time.perf_counter()
        self.seconds[name], self.since = now - self.since, now
        return self.seconds[name]
