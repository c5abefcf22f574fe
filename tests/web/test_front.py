"""The front: the page is there before the engine, requests go over to the live app without a gap. Held by events, not by seconds."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import asynccontextmanager

import pytest

from engine.views import opening
from engine.web.front import Front
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
    front = Front("<p>opening</p>")
    front.url = f"http://127.0.0.1:{front.serve('127.0.0.1', 0)}/"
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
    front.words = lambda: "Making ready 1 of 2: a tree"
    assert ask(front.url)[:2] == (200, "<p>opening</p>")
    status, words, headers = ask(f"{front.url}gradio_api/call/race")
    assert status == 503 and "still loading" in words and headers["retry-after"] == "2"
    assert json.loads(ask(f"{front.url}readiness")[1])["live"] is False
    front.hand_over(Live())
    assert ask(front.url)[1] == "live /" and ask(f"{front.url}config")[1] == "live /config"
    assert json.loads(ask(f"{front.url}readiness")[1]) == {
        "words": "Making ready 1 of 2: a tree",
        "live": True,
        "ready": False,
        "runs": 0,
    }
    front.words = lambda: ""
    front.served = lambda: {"pair": "a pair", "way": "a forward"}
    status = json.loads(ask(f"{front.url}readiness")[1])
    assert (status["ready"], status["pair"], status["way"]) == (True, "a pair", "a forward")


def test_a_taken_port_is_refused(front):
    with pytest.raises(OSError):
        Front("").serve("127.0.0.1", int(front.url.rstrip("/").rsplit(":", 1)[1]))


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


def test_the_front_protects_the_opening_page_too(front):
    for path in ("", "readiness", "nothing"):
        headers = ask(f"{front.url}{path}")[2]
        assert "frame-ancestors 'self' https://huggingface.co" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and "server" not in headers


def test_the_opening_page_asks_its_own_server_alone():
    page = opening.html()
    assert "connect-src 'self'" in page and page.count("data-opening ") == 1
    assert "{{" not in page.split('id="event"')[0]
