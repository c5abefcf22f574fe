"""The page, served once for all tests and open in a real Chromium; and its API."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest
from gradio_client import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright

from helpers.page import CHROMIUM, FLAGS, PATIENCE
from helpers.paths import ROOT


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "app.py", "--port", str(port)], cwd=ROOT)
    url = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(600):
            assert process.poll() is None, "app.py ended before it served"
            try:
                urllib.request.urlopen(url, timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="session")
def client(server) -> Client:
    return Client(server, verbose=False)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(server, browser) -> Iterator[Page]:
    """The page at 1280x720, at full speed. Afterwards: nothing in the console, and no request to anywhere else."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    complaints, requests = [], []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(f"{server}?seed=0")  # an address with settings: no recorded race is played
    expect(opened.locator("[data-lane]")).to_have_count(2)
    expect(opened.locator("#prompt textarea")).to_be_visible()
    opened.wait_for_function("window.TreeRace?.view?.canDraw")  # Plotly's script may arrive late
    opened.get_by_role("radio", name="1×", exact=True).dispatch_event("click")
    yield opened
    context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith((server, "data:", "blob:"))] == []
