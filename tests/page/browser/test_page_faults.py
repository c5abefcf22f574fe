"""What a visitor sees when something breaks: in a race, in the server, in the network. The server fails on demand."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from helpers.commands import SMALL
from helpers.page import NO_STORY, PATIENCE, REAL_TIME, dial, finish, start_race
from helpers.paths import OF_TESTS, ROOT

# The app, in which a prompt can ask for a fault of its own race. The allocation is a real one that no machine can serve.
# One comes before the first message of a race is due, the other one later.
# No race runs again, since slow ones would for a minute, and systems that nobody races here are not made ready.
FAULTY = """
import sys, time
import torch
from engine import race
from engine.measure import repeated
from engine.page.screens import readiness
from helpers.decoding import hurry

hurry()
from engine.page.web import page
repeated.MOST = 1
readiness.SystemPreparation.prepare_remaining_systems = lambda ready: None
step = race.Lane.step

def faulty(lane):
    words = lane.trace.prompt
    if "a fault" in words and lane.trace.system != race.BASELINE and len(lane.trace.steps) == 2:
        raise KeyError("odd")
    if "all memory" in words and len(lane.trace.steps) == 20:
        torch.empty(10**16)
    if "slowly" in words:
        time.sleep(0.05)
    return step(lane)

race.Lane.step = faulty
import app
sys.stdin.readline()
app.main()
"""
LONGEST = 120  # seconds
IS_ON = "TreeRace.view.recorded === null && TreeRace.view.steps.length > 5"  # a live race, and not the recorded one before it

# All that was missed comes at once, so a race may have ended by the time that the page hears of it again.
WENT_ON = "seen => TreeRace.view.steps.length > seen || document.querySelector('[data-race]').dataset.state === 'done'"


def stand_by(port: int) -> subprocess.Popen:
    """A server that has imported what takes seconds, and serves when it is told to."""
    options = (*SMALL, "--shape", "paper", "--port", str(port))
    return subprocess.Popen([sys.executable, "-c", FAULTY, *options], cwd=ROOT, env=OF_TESTS, stdin=subprocess.PIPE)


def begin(process: subprocess.Popen, port: int) -> None:
    process.stdin.write(b"\n")
    process.stdin.flush()
    wait_for(lambda: readiness(port).get("live"))


def readiness(port: int) -> dict:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readiness", timeout=5) as answer:
        return json.load(answer)
    return {}


def wait_for(what) -> None:
    until = time.monotonic() + LONGEST
    while not what():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[int, list[subprocess.Popen]]]:
    """A port, the server there, and another one that can take its place."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    processes = [stand_by(number)]
    begin(processes[0], number)
    processes.append(stand_by(number))
    yield number, processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def port(servers) -> int:
    return servers[0]


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """What has been loaded once is there for every visitor."""
    with browser.new_context(viewport={"width": 1280, "height": 720}) as context:
        context.set_default_timeout(PATIENCE)
        context.add_init_script(NO_STORY + REAL_TIME)
        yield context


@pytest.fixture
def visit(context: BrowserContext, port: int) -> Iterator:
    """Opens the page as another visitor."""
    pages = []

    def opened(through: int = port) -> Page:
        pages.append(context.new_page())
        page = pages[-1]
        page.goto(f"http://127.0.0.1:{through}/?seed=0")
        page.wait_for_function("window.TreeRace?.view")
        return page

    yield opened
    for page in pages:
        page.close()


class Tunnel:
    """A way to the server that can swallow everything: no connection ends, and nothing arrives. Or it cuts all connections."""

    def __init__(self, port: int):
        self.to, self.open, self.ends = port, threading.Event(), []
        self.open.set()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            here, _ = self.listening.accept()
            there = socket.create_connection(("127.0.0.1", self.to))
            self.ends += here, there
            for ends in ((here, there), (there, here)):
                threading.Thread(target=self.pump, args=ends, daemon=True).start()

    def pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.open.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        for end in self.ends:
            with suppress(OSError):  # it has ended by itself
                end.shutdown(socket.SHUT_RDWR)
        self.ends.clear()


def words(page: Page):
    return page.locator("[data-race] [data-verdict]")


FAULTS = {  # the prompt, and what is said
    "Story: There was a fault in": "Something failed in TreeRace (KeyError)",
    "Story: They took all memory of": "The device ran out of memory.",
}


def test_a_fault_in_one_race_is_seen_there_and_nowhere_else(visit):
    """Two races break beside a third one, each by a fault of its own."""
    other, broken = visit(), {visit(): fault for fault in FAULTS.items()}
    start_race(other, "Story: A slow boat went slowly", tokens=30)
    for page, (prompt, _) in broken.items():
        start_race(page, prompt, tokens=200)
    for page, (_, sentence) in broken.items():
        expect(words(page)).to_contain_text("The race ended early. What was written so far stays.")
        expect(page.get_by_text(sentence)).to_be_visible()
        expect(page.locator("[data-race]")).to_have_attribute("data-state", "done")
        assert page.evaluate("TreeRace.view.steps.length") > 1
    finish(other)
    expect(words(other)).to_contain_text("identical: 30 of 30 tokens")
    for page in broken:
        start_race(page, "Story: Once upon a time", tokens=30)
    for page in broken:
        expect(words(page)).to_contain_text("identical: 30 of 30 tokens")


def test_race_pressed_ten_times_is_one_race(visit, port):
    page = visit()
    start_race(page, "Story: A slow boat went slowly", tokens=30)
    for _ in range(9):
        page.locator("#race-go").dispatch_event("click")
    wait_for(lambda: readiness(port)["runs"])
    assert readiness(port)["runs"] == 1
    finish(page)
    expect(words(page)).to_contain_text("identical: 30 of 30 tokens")
    assert readiness(port)["runs"] == 0


def test_stop_frees_the_device_while_a_race_warms_up_and_while_it_waits(visit, port):
    page = visit()
    for _ in range(3):
        start_race(page, "Story: A slow boat went slowly", tokens=900)
        page.click("#race-halt")
        wait_for(lambda: readiness(port)["runs"] == 0)
        expect(page.locator("[data-race]")).to_have_attribute("data-state", "done")
    start_race(page, tokens=30)
    expect(words(page)).to_contain_text("identical: 30 of 30 tokens")


def test_a_closed_tab_frees_the_device(visit, port):
    page = visit()
    start_race(page, "Story: A slow boat went slowly", tokens=900)
    wait_for(lambda: readiness(port)["runs"] == 1)
    page.close()
    wait_for(lambda: readiness(port)["runs"] == 0)


def test_a_network_that_swallows_everything_frees_the_device_and_the_page_says_so(visit, port):
    tunnel = Tunnel(port)
    page = visit(tunnel.port)
    start_race(page, "Story: A slow boat went slowly", tokens=900)
    page.wait_for_function(IS_ON)
    tunnel.open.clear()
    cut = time.monotonic()
    wait_for(lambda: readiness(port)["runs"] == 0)
    assert time.monotonic() - cut < 30  # the race itself would take minutes
    expect(words(page)).to_contain_text("The race ended early.")
    tunnel.open.set()
    start_race(page, "Story: Once upon a time", tokens=30)
    expect(words(page)).to_contain_text("identical: 30 of 30 tokens")


def test_a_race_goes_on_where_something_on_the_way_cut_it_off(visit, port):
    """As a proxy does that ends answers after some seconds. So does the race behind it."""
    tunnel = Tunnel(port)
    page = visit(tunnel.port)
    start_race(page, "Story: A slow boat went slowly", tokens=120)
    page.wait_for_function(IS_ON)
    for _ in range(2):
        seen = page.evaluate("TreeRace.view.steps.length")
        tunnel.cut()
        page.wait_for_function(WENT_ON, arg=seen)
    finish(page)
    expect(words(page)).to_contain_text("identical: 120 of 120 tokens")
    start_race(page, "Story: Once upon a time", tokens=30)
    expect(words(page)).to_contain_text("identical: 30 of 30 tokens")
    expect(page.get_by_text("Connection Lost")).to_have_count(0)


def test_a_server_that_starts_anew_gets_its_visitors_back(visit, servers):
    port, (first, second) = servers
    page = visit()
    dial(page, "number input for Temperature", 0.5)
    start_race(page, "Story: The whale who sang slowly", tokens=900)
    page.wait_for_function(IS_ON)
    first.kill()
    first.wait()
    expect(words(page)).to_contain_text("The race ended early.")
    page.fill("#prompt textarea", "Story: The whale who sang and sang")
    page.evaluate("window.__before = true")
    begin(second, port)
    page.wait_for_function("!window.__before && window.TreeRace?.take && TreeRace.view", timeout=1000 * LONGEST)
    expect(words(page)).to_contain_text("The race ended early. What was written so far stays.")
    expect(page.locator("#prompt textarea")).to_have_value("Story: The whale who sang and sang")
    expect(page.get_by_label("number input for Temperature", exact=True)).to_have_value("0.5")
    assert page.evaluate("TreeRace.view.steps.length") > 5
    start_race(page, "Story: Once upon a time", tokens=30)
    expect(words(page)).to_contain_text("identical: 30 of 30 tokens")
    second.send_signal(signal.SIGSTOP)  # it takes the press, and dies before it has said anything
    page.click("#race-go")
    second.kill()
    expect(words(page)).to_have_text("Nothing was raced.")
    expect(page.locator("[data-away]")).to_be_visible()
