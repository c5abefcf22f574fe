"""The page without a model behind it, and a client of it. What a page says of its pair is made up."""

from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from engine.page.web.lending import Served
from engine.page.web.page import build, mounted


@pytest.fixture(scope="session")
def spoken_of():
    """What a page says of its pair."""
    return SimpleNamespace(
        title="a pair",
        hardware="a machine",
        dtype="fp32",
        chat=False,
        draft=None,
        calibration=None,
        remote=None,
        target=SimpleNamespace(way="compiled"),
    )


@pytest.fixture(scope="module")
def page(spoken_of):
    return build(Served(spoken_of))


@pytest.fixture(scope="module")
def http(page):
    with TestClient(mounted(page)) as client:
        yield client
