"""The page without a model behind it, and a client of it. What a page says of its pair is made up."""

import pytest
from starlette.testclient import TestClient

from engine.page.web.lending import ServedPairs
from engine.page.web.page import build_gradio_page_and_api, mount_guarded_page
from helpers.pairs import spoken_pair


@pytest.fixture(scope="module")
def page():
    return build_gradio_page_and_api(ServedPairs(spoken_pair()))


@pytest.fixture(scope="module")
def http(page):
    with TestClient(mount_guarded_page(page)) as client:
        yield client
