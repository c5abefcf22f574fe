"""The front: the page is there before the engine, requests go over to the live app without a gap. Held by events, not by seconds."""

import asyncio
import gc
import json
import math
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

import app
from engine.models.pairs import PAIRS
from engine.page.views import standalone
from engine.page.web import front as fronts
from engine.page.web.front import OpeningPageThenLiveAppServer
from helpers.paths import ROOT

HEAVY = "torch", "gradio", "numba", "transformers", "numpy"
# Runs app.py up to the first heavy import, says which that is, and waits there for ever.
HELD = f"""
import builtins, sys
imported = builtins.__import__
def held(name, *how):
    if name.split(".")[0] in {HEAVY}:
        print(name, flush=True)
        sys.stdin.read()
    return imported(name, *how)
builtins.__import__ = held
sys.argv[1:] = ["--port", "0"]
import app
app.main()
"""


def ask(url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


@pytest.fixture(autouse=True)
def collecting():
    """What `load_pair_and_serve_live_page` does to the collection of garbage ends with the test."""
    yield
    gc.unfreeze()
    gc.enable()


class Live:
    """A Starlette application, as far as the front knows one."""

    def __init__(self):
        self.router, self.began = self, False

    @asynccontextmanager
    async def lifespan_context(self, app):
        self.began = True
        yield

    async def __call__(self, scope, receive, send):
        assert self.began
        body = f"live {scope['path']}".encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def front():
    front = OpeningPageThenLiveAppServer("<p>opening</p>")
    front.url = f"http://127.0.0.1:{front.start_server_thread('127.0.0.1', 0)}/"
    return front


def test_the_page_is_served_before_the_first_heavy_import():
    process = subprocess.Popen(
        [sys.executable, "-c", HELD], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        said = process.stdout.readline()
        assert process.stdout.readline().split(".")[0].strip() in HEAVY  # the engine is asked for, and is not there
        url = said.split("opens on ")[1].split(";")[0]
        status, page, _ = ask(url)
        assert status == 200 and "data-opening" in page and 'id="event"' in page
        status, answer, _ = ask(f"{url}/readiness")
        assert json.loads(answer) == {"words": "Loading PyTorch", "live": False, "ready": False, "runs": 0}
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_requests_go_over_to_the_live_app_and_readiness_stays(front):
    front.progress_text = lambda: "Making ready 1 of 2: a tree"
    assert ask(front.url)[:2] == (200, "<p>opening</p>")
    status, words, headers = ask(f"{front.url}gradio_api/call/race")
    assert status == 503 and "still loading" in words and headers["retry-after"] == "2"
    assert json.loads(ask(f"{front.url}readiness")[1])["live"] is False
    front.start_and_attach_live_app(Live())
    assert ask(front.url)[1] == "live /" and ask(f"{front.url}config")[1] == "live /config"
    assert json.loads(ask(f"{front.url}readiness")[1]) == {
        "words": "Making ready 1 of 2: a tree",
        "live": True,
        "ready": False,
        "runs": 0,
    }
    front.progress_text = lambda: ""
    front.served = lambda: {"pair": "a pair", "way": "a forward"}
    status = json.loads(ask(f"{front.url}readiness")[1])
    assert (status["ready"], status["pair"], status["way"]) == (True, "a pair", "a forward")


def test_a_page_is_coming_for_a_while_after_it_was_asked_for(front, monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(fronts, "time", SimpleNamespace(monotonic=lambda: clock.now))
    ask(front.url)  # the opening page
    ask(f"{front.url}readiness?coming")  # where there is no live page to go over to
    assert not front.may_browser_be_building_page
    front.start_and_attach_live_app(Live())
    assert front.may_browser_be_building_page  # open tabs
    front.asked = -math.inf
    ask(f"{front.url}config")
    ask(f"{front.url}readiness")
    assert not front.may_browser_be_building_page
    ask(f"{front.url}?seed=1")
    assert front.may_browser_be_building_page
    clock.now += 0.99 * fronts.COMING
    assert front.may_browser_be_building_page
    clock.now += 0.02 * fronts.COMING
    assert not front.may_browser_be_building_page
    ask(f"{front.url}readiness?coming")  # an opening page whose story is not over
    assert front.may_browser_be_building_page


def test_the_terminal_says_when_the_page_is_live_and_when_everything_is_ready(front, monkeypatch, capsys):
    """Of the default pair and the small one beside it; what is made ready behind the page rests while the page is coming."""
    said = []

    class Noted:
        preparation_progress_text = waiting = ""

        def __init__(self, pair, device, pair_title="", should_pause=lambda: False):
            self.pair, self.waits = pair, should_pause

        def prepare_opening_race(self) -> None:
            said.append(("opening", self.pair.title, capsys.readouterr().out))

        def prepare_remaining_systems(self) -> None:
            front.asked = math.inf
            rests = self.waits()
            front.asked = -math.inf
            said.append((rests, self.waits(), self.pair.title, capsys.readouterr().out))

    page = {
        "build_gradio_page_and_api": lambda served: None,
        "mount_guarded_page": lambda *_: Live(),
        "describe_pairs_on_offer": lambda served: {},
    }
    monkeypatch.setitem(sys.modules, "engine.page.web.page", SimpleNamespace(**page))
    monkeypatch.setattr("engine.models.loading.load", lambda pair, *_: SimpleNamespace(title=pair.title, remote=None))
    monkeypatch.setattr("engine.page.screens.readiness.SystemPreparation", Noted)
    ask(front.url)  # it serves
    app.load_pair_and_serve_live_page(front, PAIRS["embedded"], {"device": "cpu"} | app.AS_FILED, lambda own: own)
    own, small = PAIRS["embedded"].title, PAIRS["small"].title
    live = "The page is live; more systems are made ready behind it.\n"
    assert said == [("opening", own, ""), (True, False, own, live), (True, False, small, "")]
    assert capsys.readouterr().out == "Everything is ready.\n"


def test_no_collection_of_garbage_goes_through_what_the_start_has_made(front, monkeypatch):
    """The imports and the pair, then the page, then what is made ready behind it; garbage is collected while anything is made ready."""
    kept = []

    class Noted:
        preparation_progress_text = waiting = ""

        def __init__(self, pair, *_, **__):
            self.pair = pair

        def note(self) -> None:
            kept.append((gc.get_freeze_count(), gc.isenabled()))
            self.made = [[each] for each in range(10_000)]  # more than anything else that comes and goes

        prepare_opening_race = prepare_remaining_systems = note

    page = {
        "build_gradio_page_and_api": lambda served: None,
        "mount_guarded_page": lambda *_: Live(),
        "describe_pairs_on_offer": lambda served: {},
    }
    monkeypatch.setitem(sys.modules, "engine.page.web.page", SimpleNamespace(**page))
    monkeypatch.setattr("engine.models.loading.load", lambda pair, *_: SimpleNamespace(title=pair.title, remote=None))
    monkeypatch.setattr("engine.page.screens.readiness.SystemPreparation", Noted)
    ask(front.url)
    app.load_pair_and_serve_live_page(front, PAIRS["embedded"], {"device": "cpu"} | app.AS_FILED, lambda own: own)
    (loaded, collects), (live, _), _ = kept
    assert collects and gc.isenabled()
    assert 0 < loaded < live - 9_000 and live < gc.get_freeze_count() - 9_000


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_that_ends_by_itself_says_so(front):
    """A process that ended without a word would look as if nobody had ever been there."""

    async def end() -> None:
        raise SystemExit  # of all errors the one that a thread keeps to itself

    assert ask(front.url)[0] == 200
    front.loop.call_soon_threadsafe(lambda: front.loop.create_task(end()))
    with pytest.raises(RuntimeError, match="The page's server has ended by itself"):
        front.wait_until_server_ends_and_raise()


# Runs app.py, where compiled code crashes once the page is live.
CRASHING = """
import ctypes, sys
sys.argv[1:] = ["--port", "0"]
import app
app.load_pair_and_serve_live_page = lambda *_: ctypes.string_at(0)
app.main()
"""


def test_a_crash_in_compiled_code_says_where_it_was():
    done = subprocess.run(
        [sys.executable, "-c", CRASHING], cwd=ROOT, timeout=120, check=False, capture_output=True, text=True
    )
    assert done.returncode < 0 and "Segmentation fault" in done.stderr and "in main" in done.stderr


def test_a_taken_port_is_refused(front):
    with pytest.raises(OSError):
        OpeningPageThenLiveAppServer("").start_server_thread("127.0.0.1", int(front.url.rstrip("/").rsplit(":", 1)[1]))


@pytest.mark.parametrize("given", ["99999", "-1", "x", "8" * 400, "taken"])
def test_a_port_that_cannot_be_used_is_a_sentence_before_anything_loads(given, front):
    port = front.url.rstrip("/").rsplit(":", 1)[1] if given == "taken" else given
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "app.py", f"--port={port}"],
        cwd=ROOT, timeout=60, check=False, capture_output=True, text=True,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode and "Traceback" not in done.stderr and len(said[-1]) < 200
    assert ("cannot be used" if given == "taken" else "a whole number from 0 to 65535") in said[-1]
    assert not re.search(rf"\| +({'|'.join(HEAVY)})$", done.stderr, re.M)


# Runs app.py where the import of PyTorch raises the error that stands in its place.
LACKING = """
import sys
class Full:
    def find_spec(self, name, *_):
        if name == "torch":
            raise {error}
sys.meta_path.insert(0, Full())
sys.argv[1:] = ["--port", "0"]
import app
app.main()
"""


@pytest.mark.parametrize(
    "error",
    [
        "MemoryError()",
        "OSError('Could not load libllvmlite.so') from OSError('cannot allocate memory')",
        "ImportError('libtorch_cpu.so: failed to map segment from shared object')",
        "RuntimeError('[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: not enough memory: cannot allocate memory')",
    ],
)
def test_too_little_memory_at_the_start_is_a_sentence(error):
    code = LACKING.format(error=error)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=120, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr.startswith("There is too little memory here for 67M embedded pair.")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", b"GET /readiness HTTP/1.1\r\nHost: here\r\n\r\nGET"])
def test_a_connection_that_brings_no_whole_request_ends(monkeypatch, sent):
    monkeypatch.setattr(fronts, "SILENT", 0.3)
    port = OpeningPageThenLiveAppServer("").start_server_thread("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(sent)
        try:
            while connection.recv(1000):
                pass
        except ConnectionResetError:
            pass


def test_an_answer_that_takes_longer_than_a_silence_is_not_cut(front, monkeypatch):
    monkeypatch.setattr(fronts, "SILENT", 0.1)

    class Slow(Live):
        async def __call__(self, scope, receive, send):
            await asyncio.sleep(0.5)
            await super().__call__(scope, receive, send)

    assert ask(front.url)[1] == "<p>opening</p>"
    front.start_and_attach_live_app(Slow())
    assert ask(front.url)[1] == "live /"


def test_pages_that_ask_too_often_wait_and_are_turned_away_before_the_engine_is_asked(front, monkeypatch):
    asked, turns = [], iter([True, False])

    async def come(name):
        asked.append(name)
        return next(turns)

    monkeypatch.setattr(fronts.SIGNS, "wait_for_turn", come)
    front.progress_text = lambda: "words"
    assert [ask(f"{front.url}{path}")[0] for path in ("readiness", "readiness?coming")] == [200, 429]
    assert asked == ["127.0.0.1"] * 2


def test_the_front_protects_the_opening_page_too(front):
    for path in ("", "readiness", "nothing"):
        headers = ask(f"{front.url}{path}")[2]
        assert "frame-ancestors 'self' https://huggingface.co" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and "server" not in headers


def test_the_opening_page_asks_its_own_server_alone():
    page = standalone.render_opening_page()
    assert "connect-src 'self'" in page and page.count("data-opening ") == 1
    assert "{{" not in page.split('id="event"')[0]
