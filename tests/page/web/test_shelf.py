"""The shelf and its guard: what everybody gets is made once and names no server; reads come in turn, and news are fetched once."""

import asyncio
import re

import pytest
from starlette.testclient import TestClient

from engine.page.views.standalone import PLOTLY
from engine.page.web import guard as guards
from engine.page.web.guard import RequestGuardMiddleware
from engine.page.web.page import DRAWING, collect_allowed_endpoints, mount_guarded_page
from engine.page.web.sessions import LISTENERS
from helpers.commands import awaited
from helpers.paths import ROOT

API = "/gradio_api"


@pytest.mark.parametrize("own", ["", "me-treerace.hf.space"])
def test_no_name_of_the_server_is_reflected_and_the_page_asks_whom_it_came_from(page, monkeypatch, own):
    """Kept pages go to everybody, whoever asked first."""
    monkeypatch.setenv("SPACE_HOST", own)
    forged = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "X-Gradio-Server": "http://evil.example"}
    with TestClient(mount_guarded_page(page)) as fresh:
        for path in ("/", "/config", f"{API}/info"):
            assert "evil.example" not in fresh.get(path, headers=forged).text
        whole = fresh.get("/").text
        assert '"root":""' in whole and (own or "http://testserver") not in whole
        assert fresh.get("/config").json()["root"] == ""
        assert f"https://{own}" in fresh.get(f"{API}/info").text or not own


def test_the_page_tells_no_path_of_the_server(http):
    for path in ("/", "/config"):
        assert str(ROOT) not in http.get(path).text and str(PLOTLY.parent) not in http.get(path).text


# ---- what is kept


@pytest.fixture
def shelved(page):
    """A client of the guard alone, and the addresses that its application was asked for. The page's clock stands still."""
    asked, body = [], b"the page " * 1000

    async def app(scope, receive, send):
        asked.append(scope["path"])
        status = 404 if "nothing" in scope["path"] else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": body})

    return TestClient(RequestGuardMiddleware(app, collect_allowed_endpoints(page))), asked, body


def test_what_everybody_gets_is_made_and_compressed_once(shelved):
    http, asked, body = shelved
    for _ in range(3):
        answer = http.get("/?seed=3")
        assert answer.content == body and answer.headers["content-encoding"] == "gzip"
        assert int(answer.headers["content-length"]) < len(body) / 10 and answer.headers["content-type"] == "text/html"
    assert http.get("/", headers={"Accept-Encoding": "identity"}).headers["content-length"] == str(len(body))
    head = http.head("/")
    assert head.headers["etag"] == answer.headers["etag"] and not head.content
    assert asked == ["/"]
    assert http.get("/assets/nothing.js").json()["detail"] == "There is nothing at this address."


def test_the_pages_files_come_compressed_and_say_how_long_they_last(http):
    """Whatever Gradio names in its page, and Plotly's script."""
    named = re.findall(r'(?:href|src)="\.?/?([\w./-]+\.(?:js|css|woff2))"', http.get("/").text)
    assert DRAWING in named and any(path.startswith("assets/") for path in named)
    for path in ("/theme.css?v=1", *(f"/{each}" for each in named)):
        answer = http.get(path)
        lasts = "no-cache" if "theme" in path else "max-age=86400" if "/static/" in path else "immutable"
        assert answer.status_code == 200 and lasts in answer.headers["cache-control"], path
        assert answer.headers.get("content-encoding") == (None if path.endswith(".woff2") else "gzip"), path


def test_a_browser_that_has_a_file_does_not_get_it_again(shelved):
    http = shelved[0]
    first = http.get("/")
    again = http.get("/", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304 and not again.content and again.headers["x-content-type-options"] == "nosniff"
    assert first.headers["cache-control"] == "no-cache"  # it asks whether it has changed
    for path in ("/assets/index-abc.js", f"/{DRAWING}"):  # whose names change with them
        assert "immutable" in http.get(path).headers["cache-control"]


def test_who_reads_faster_than_his_turns_come_is_told_to_wait(shelved, monkeypatch):
    http, asked, _ = shelved

    async def come(name):
        return False

    monkeypatch.setattr(guards.READS, "wait_for_turn", come)
    for path in ("/", f"{API}/app_id", f"{API}/heartbeat/abc", f"{API}/queue/data?session_hash=abc"):
        answer = http.get(path)
        assert answer.status_code == 429 and "faster than they can be answered" in answer.json()["detail"]
    assert asked == []


# ---- who listens


def test_a_calls_news_are_fetched_once_and_somebody_listens_meanwhile(page):
    heard = []

    async def app(scope, receive, send):
        heard.append(LISTENERS.has_listener("call1", "session1"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"news"})

    http = TestClient(RequestGuardMiddleware(app, collect_allowed_endpoints(page)))
    assert http.get(f"{API}/call/race/call1").text == "news"
    again = http.get(f"{API}/call/race/call1")
    assert again.status_code == 404 and "can be fetched once" in again.json()["detail"]
    for _ in range(2):
        assert http.get(f"{API}/queue/data?session_hash=session1").text == "news"
    assert heard == [True] * 3 and not LISTENERS.has_listener("call1", "session1")


def test_answers_that_go_on_are_bounded_by_address(page, monkeypatch):
    """An open heartbeat costs its sender nothing and this process 44 kB, until it is closed."""
    monkeypatch.setattr(guards, "GOING_ON", 3)
    closed, said = asyncio.Event(), []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await closed.wait()

    guard = RequestGuardMiddleware(app, collect_allowed_endpoints(page))

    async def heartbeat(address: str, number: int) -> None:
        path = f"{API}/heartbeat/page{number}"
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": b"",
            "headers": [],
            "client": (address, 1),
        }

        async def send(message: dict) -> None:
            said.append((address, message.get("status")) if "status" in message else message["body"])

        await guard(scope, None, send)

    async def opened() -> None:
        tasks = [asyncio.create_task(heartbeat(*each)) for each in [("a", at) for at in range(4)] + [("b", 4)]]
        await asyncio.sleep(0.05)
        assert said[:4] == [("a", 200)] * 3 + [("a", 503)] and b"Too many pages are open" in said[4]
        assert said[5:] == [("b", 200)]
        closed.set()
        await asyncio.gather(*tasks)

    awaited(asyncio.wait_for(opened(), 60))
    assert guard.going_on == {}


def test_a_stored_state_is_not_asked_for(http):
    assert "deep_link_state" not in http.get("/config?deep_link=../../x").json()
