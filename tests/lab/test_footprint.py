"""Peak memory is what lives at once."""

import pytest
import torch

from engine.measure.footprint import measure_peak_mib

MIB = 2**20


def test_peak_memory_is_what_lives_at_once():
    def task():
        first = torch.ones(MIB)  # 4 MiB
        second = first + 1  # 4 more
        del first
        torch.ones(MIB // 4)
        del second
        torch.ones(3 * MIB // 4)

    kept = torch.ones(8 * MIB)
    assert measure_peak_mib(torch.device("cpu"), task) == pytest.approx(9 - 1, abs=0.01)
    assert kept.sum() == 8 * MIB


def test_the_profiler_prints_nothing(capfd):
    assert measure_peak_mib(torch.device("cpu"), lambda: torch.ones(8)) > 0
    assert capfd.readouterr() == ("", "")
