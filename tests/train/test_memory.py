"""Memory of a parallel drafter's training by segments."""

import json

from engine.train import memory
from helpers.commands import printed


def test_more_segments_hold_less_memory(capsys):
    arguments = ("--length", "64", "--segments", "1", "2", "4")
    figures = json.loads(printed(capsys, memory.main, *arguments)[-1])
    peaks = list(figures["mib"].values())
    assert peaks == sorted(peaks, reverse=True) and peaks[-1] < 0.8 * peaks[0]
