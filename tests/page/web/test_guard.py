"""The guard around the page, over HTTP: what nothing needs is closed, bodies are small, answers are sentences, headers protect."""

import asyncio
import json

import pytest
from starlette.testclient import TestClient

from engine.page.screens import race_files
from engine.page.views.standalone import PLOTLY
from engine.page.web import guard as guards
from engine.page.web.guard import ALWAYS, RequestGuardMiddleware
from engine.page.web.page import DRAWING, collect_allowed_endpoints
from helpers.commands import awaited
from helpers.paths import ROOT

API, SESSION = "/gradio_api", "abc123"
RACE = ["Once", "tree", 4, 4, 0.0, 8, 0, "", "", []]
SECRET = "a prompt that nobody else may read"


def post(http, path: str, body: object, **headers: str):
    return http.post(f"{API}/{path}", content=json.dumps(body), headers={"Content-Type": "application/json"} | headers)


def asked(http, body: dict, name: str = "race"):
    return post(http, f"call/{name}", {"data": RACE, **body})


def component(page, name: str) -> int:
    return next(at for at, found in collect_allowed_endpoints(page).component_functions if found == name)


def detail(response) -> str:
    assert response.headers["content-type"] == "application/json"
    return response.json()["detail"]


# ---- addresses


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/config",
        "/theme.css",
        "/manifest.json",
        f"{API}/info",
        f"{API}/startup-events",
        f"{API}/app_id",
        f"/{DRAWING}",
        "/static/fonts/IBMPlexSans/IBMPlexSans-Regular.woff2",
    ],
)
def test_what_the_page_needs_is_there_with_headers_that_protect(http, path):
    answer = http.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src-attr 'none'" in policy and "connect-src 'self'" in policy
    assert "frame-ancestors 'self' https://huggingface.co https://*.huggingface.co https://*.hf.space" in policy
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["permissions-policy"]
    assert answer.headers["referrer-policy"] == "strict-origin-when-cross-origin"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{API}/upload"),
        ("GET", f"{API}/upload_progress?upload_id=1"),
        ("GET", "/monitoring"),
        ("GET", "/monitoring/summary"),
        ("GET", f"{API}/dev/reload"),
        ("GET", f"{API}/deep_link?session_hash=abc123"),
        ("GET", f"{API}/file={ROOT / 'requirements.txt'}"),
        ("GET", f"{API}/file={ROOT / 'assets' / 'prompts.json'}"),
        ("GET", f"{API}/file=https://example.com/"),
        ("GET", f"{API}/file={PLOTLY}"),
        ("GET", f"{API}/file/{PLOTLY}"),
        ("GET", "/static/%2e/fonts/IBMPlexSans/IBMPlexSans-Regular.woff2"),
        ("GET", "/static//fonts/IBMPlexSans/IBMPlexSans-Regular.woff2"),
        ("GET", f"{API}/proxy=https://example.com/"),
        ("GET", f"{API}/runs"),
        ("GET", f"{API}/token"),
        ("GET", f"{API}/openapi.json"),
        ("GET", f"{API}/vibe-code"),
        ("POST", f"{API}/vibe-edit"),
        ("POST", f"{API}/process_recording"),
        ("POST", f"{API}/run/race"),
        ("POST", f"{API}/api/race"),
        ("POST", f"{API}/call/v2/race"),
        ("POST", f"{API}/stream/1"),
        ("POST", "/login"),
        ("GET", "/logout"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("GET", "/static/../../../../requirements.txt"),
        ("GET", "/assets/%2e%2e/%2e%2e/__init__.py"),
        ("DELETE", "/"),
        ("OPTIONS", f"{API}/queue/join"),
        ("GET", f"{API}/queue/data?session_hash={'x' * 65}"),
        ("GET", f"{API}/heartbeat/{'x' * 65}"),
    ],
)
def test_what_nothing_needs_is_closed(http, method, path, capfd):
    answer = http.request(method, path, content=b"{}", headers={"Content-Type": "application/json"})
    assert answer.status_code == 404 and detail(answer) == "There is nothing at this address."
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "Traceback" not in capfd.readouterr().err


def test_a_file_is_not_kept(http):
    answer = http.post(f"{API}/component_server", files={"upload": b"x" * 100_000}, data={"fn_name": "look"})
    assert answer.status_code == 415 and detail(answer) == "Only JSON is read here."


# ---- bodies


def test_a_body_that_is_too_large_is_not_read(http, page):
    for path, megabytes in (("queue/join", 8), ("call/race", 8), ("cancel", 1), ("component_server", 27)):
        answer = post(http, path, {"data": ["x" * megabytes * 10**6], "session_hash": SESSION})
        seen = path == "component_server"  # whose answer a part of the page shows
        assert answer.status_code == (200 if seen else 413) and "too large" in detail(answer)
        assert "too large" in answer.json()["refused"]
    brackets = {"data": [[]] * 100_000, "session_hash": SESSION, "fn_name": "look", "component_id": 1}
    assert detail(post(http, "component_server", brackets)) == "This holds too many values."


def test_bytes_are_counted_as_they_come_by_address_and_in_all(page, monkeypatch):
    """Announced bytes take no room, so nobody keeps others out with words; unfinished bodies do."""
    monkeypatch.setattr(guards, "HELD", 5_000_000)
    monkeypatch.setattr(guards, "HELD_OF_ADDRESS", 2_000_000)
    guard, stands, refused = RequestGuardMiddleware(None, collect_allowed_endpoints(page)), asyncio.Event(), []

    async def unfinished(address: str, count: int, length: int = 999_000) -> None:
        chunks = iter([b"x" * count])
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
        scope = {
            "type": "http",
            "method": "POST",
            "path": f"{API}/queue/join",
            "headers": headers,
            "client": (address, 1),
        }

        async def receive() -> dict:
            for chunk in chunks:
                return {"type": "http.request", "body": chunk, "more_body": True}
            await stands.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict) -> None:
            if message["type"] == "http.response.start" and not stands.is_set():
                refused.append((address, message["status"]))

        await guard(scope, receive, send)

    async def sent() -> None:
        senders = [("a", 900_000)] * 3 + [("a", ALWAYS)] + [("b", 0)] * 9 + [("c", 900_000)] * 2 + [("d", 900_000)] * 2
        tasks = []
        for each in senders:
            tasks.append(asyncio.create_task(unfinished(*each)))
            for _ in range(10):  # until its bytes are held or refused
                await asyncio.sleep(0)
        assert refused == [("a", 503), ("d", 503)] and guard.held.total() < 5_000_000
        stands.set()
        await asyncio.gather(*tasks)

    awaited(asyncio.wait_for(sent(), 60))
    assert guard.held.total() == 0


def test_a_body_that_announces_no_length_is_small(http):
    chunks = (b'"' + b"x" * 600_000 for _ in range(2))  # without a length that is announced
    answer = http.post(f"{API}/component_server", content=chunks, headers={"Content-Type": "application/json"})
    assert answer.json()["refused"] == detail(answer) and "at most 1 MB" in detail(answer)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"[" * 10_000,
        b'{"data": ' * 2_000,
        b"\xff\xfe",
        b'{"a": ' + b"9" * 5000 + b"}",
        b'"x"',
    ],
)
def test_what_is_no_json_object_is_a_sentence(http, content):
    for path in ("queue/join", "call/race", "component_server", "cancel", "run/predict"):
        answer = http.post(f"{API}/{path}", content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422 and detail(answer) == "This is no JSON that can be read here."


@pytest.mark.parametrize("data", [[], RACE[:3], [*RACE, 1], None, "x", {"prompt": SECRET}, [[SECRET]], [SECRET]])
def test_a_wrong_count_of_values_is_a_sentence_and_quotes_nothing(http, data, capfd):
    said = detail(asked(http, {"data": data}))
    assert "It takes a list of 10 values as data" in said and SECRET not in said + "".join(capfd.readouterr())


def test_objects_and_nested_lists_never_reach_gradio(http):
    file = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
    for hostile in (file, [[]], [{"url": "http://127.0.0.1"}], [["Hi", file]], [["Hi", ["Hello!"]]], [["Hi", "", ""]]):
        assert "Values are texts, numbers" in detail(asked(http, {"data": [hostile, *RACE[1:]]}))


@pytest.mark.parametrize("name", ["x" * 5_000_000, "", "a b", "<b>", "\ud800", 7, {}, "../x"])
def test_a_session_has_a_short_name(http, name, page):
    first = min(collect_allowed_endpoints(page).value_count_by_queued_event)
    join = {"data": RACE, "fn_index": first, "session_hash": name}
    look = {"data": "tree", "component_id": component(page, "look"), "fn_name": "look", "session_hash": name}
    for path, body in (("queue/join", join), ("component_server", look), ("cancel", {**join, "event_id": "x"})):
        assert detail(post(http, path, body)).startswith(("A session's name has", "What was sent is too large"))


def test_only_the_functions_of_the_page_are_called(http, page):
    numbers = [
        -1,
        99_999,
        10**400,
        True,
        None,
        "0",
        1.5,
        *(set(range(40)) - collect_allowed_endpoints(page).value_count_by_queued_event.keys()),
    ]
    for at in numbers:
        answer = post(http, "queue/join", {"data": [], "fn_index": at, "session_hash": SESSION})
        assert answer.status_code == 404 and detail(answer).startswith("There is no such function")
    look = component(page, "look")
    for at, name in (
        (look, "__init__"),
        (look, "get_config"),
        (-1, "look"),
        (10**400, "look"),
        ("1", "look"),
        (look, None),
    ):
        body = {"data": "tree", "component_id": at, "fn_name": name, "session_hash": SESSION}
        answer = post(http, "component_server", body)
        assert answer.status_code == 404 and detail(answer) == "The page has no such function."


def test_quick_events_skip_the_queue_and_no_race_does(http, page):
    allowed = collect_allowed_endpoints(page)
    races, quick = allowed.value_count_by_queued_event, allowed.value_count_by_unqueued_event
    assert quick and not quick.keys() & races.keys()
    for at, count in races.items():
        answer = post(http, "run/predict", {"data": ["x"] * count, "fn_index": at, "session_hash": SESSION})
        assert answer.status_code == 404
    [restore] = [at for at in quick if page.fns[at].name == "restore"]
    answer = post(http, "run/predict", {"data": ["?depth=99"], "fn_index": restore, "session_hash": SESSION})
    assert "Depth must be between 1 and 12, got 99" in answer.text


# ---- what comes back


def test_an_answer_of_an_unknown_race_leaves_no_trace_in_the_log(http, capfd):
    for path in ("queue/data?session_hash=nobody", "queue/data?session_hash=nobody&__sign=a.b", "call/race/nobody"):
        assert http.get(f"{API}/{path}").status_code == 200
    assert "Traceback" not in "".join(capfd.readouterr())


def test_an_error_inside_is_a_sentence_and_its_text_stays_inside(http, page, monkeypatch, capfd):
    def broken(*_):
        raise RuntimeError(SECRET)

    look = component(page, "look")
    monkeypatch.setattr(page.blocks[look], "look", broken)
    broken._is_server_fn = True
    body = {"data": "tree", "component_id": look, "fn_name": "look", "session_hash": SESSION}
    answer = post(http, "component_server", body)
    assert answer.status_code == 500 and detail(answer) == "The server could not answer. Try again."
    printed = "".join(capfd.readouterr())
    assert "RuntimeError" in printed and SECRET not in printed


@pytest.fixture
def paced(page):
    """A client of the guard alone, the calls that passed, and the second that its clock shows."""
    passed, second = [], [0.0]

    async def app(scope, receive, send):
        passed.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    guard = RequestGuardMiddleware(app, collect_allowed_endpoints(page))
    guard.addresses.now = guard.visitors.now = lambda: second[0]
    return TestClient(guard), passed, second


def test_a_flood_of_calls_is_refused_before_the_application_sees_it(paced):
    http, passed, second = paced
    assert [asked(http, {}).status_code for _ in range(30)] == [200] * 16 + [429] * 14 and len(passed) == 16
    assert "faster than they can be answered" in detail(asked(http, {}))
    assert asked(http, {"session_hash": "another1"}).status_code == 200  # another page at the same address
    second[0] = 1.0
    assert [asked(http, {}).status_code for _ in range(10)] == [200] * 8 + [429] * 2


def test_callers_without_a_session_are_counted_by_address(paced):
    """Programs have no session. One that hurries must not use up what all others may send."""
    http, passed, _ = paced
    other = TestClient(http.app, client=("another", 1))
    assert [asked(http, {}).status_code for _ in range(20)] == [200] * 16 + [429] * 4
    assert [asked(other, {}).status_code for _ in range(5)] == [200] * 5 and len(passed) == 21


def test_functions_of_parts_are_counted_by_visitor_too(paced, page):
    http, passed, _ = paced
    at = component(page, "look")

    def look(session: str) -> str:
        body = {"data": "tree", "component_id": at, "fn_name": "look", "session_hash": session}
        return post(http, "component_server", body).text

    answers = [look("greedy") for _ in range(20)]
    assert len(passed) == 16 and all("faster than they can be answered" in each for each in answers[16:])
    assert "faster" not in look("another")


def test_who_reads_race_files_is_told_by_address(http, page, monkeypatch):
    """So that the reader can give everybody his share."""
    who = []
    monkeypatch.setattr(
        race_files, "convert_race_file_in_subprocess", lambda way, text, visitor: who.append((way, visitor)) or {}
    )
    for name in ("opened", "replay_page"):
        for session in ("one", "two"):
            body = {"data": "{}", "component_id": component(page, name), "fn_name": name, "session_hash": session}
            assert post(http, "component_server", body).json() == {}
    assert who == [("opened", "testclient")] * 2 + [("replay_page", "testclient")] * 2


def test_a_flood_under_many_names_is_refused_by_its_address(paced):
    http, passed, second = paced
    statuses = [asked(http, {"session_hash": f"visitor{number}"}).status_code for number in range(210)]
    assert statuses == [200] * 200 + [429] * 10 and len(passed) == 200
    second[0] = 1.0
    assert [asked(http, {"session_hash": f"late{number}"}).status_code for number in range(45)] == [200] * 40 + [
        429
    ] * 5
