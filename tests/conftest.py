"""Markers by what a test uses, and the embedded pair. What only one room's tests use stands in that room's conftest."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach for a network

import pytest
import torch

from engine.forward import runner_gpu
from engine.models.loading import load
from engine.models.pairs import LoadedPair
from helpers.page import CHROMIUM

NO_CHROMIUM = "no Chromium on this machine: apt-get install chromium"


def pytest_report_header() -> list[str]:
    return [
        f"Chromium: {CHROMIUM or 'none, tests marked browser are skipped'}",
        f"CUDA: {'tested' if torch.cuda.is_available() else 'no GPU, tests marked gpu are deselected'}",
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What opens a browser is marked so, and skipped where there is none; what needs a GPU is left out where there is none."""
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker("browser")
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason=NO_CHROMIUM))
    if not torch.cuda.is_available():
        needing = [item for item in items if item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]


@pytest.fixture(scope="session")
def embedded() -> LoadedPair:
    return load("embedded", device="cpu")


@pytest.fixture
def small_capacities(monkeypatch):
    """Rows to 64 instead of 1,024: the same code, less to multiply."""
    monkeypatch.setattr(runner_gpu, "ROW_MULTIPLE", 64)
