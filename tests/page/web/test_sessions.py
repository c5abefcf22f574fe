"""Sessions: a run that is under way keeps its news however many names come, and one that nobody listens to ends."""

import json
import threading
from types import SimpleNamespace

import gradio as gr
import pytest
from gradio.context import LocalContext
from starlette.testclient import TestClient

from engine.page.screens.device import TimeSharedDeviceWorker
from engine.page.screens.requests import RunRequest
from engine.page.screens.turns import RACE
from engine.page.web import sessions, streams
from engine.page.web.lending import ServedPairs
from engine.page.web.page import mount_guarded_page
from engine.page.web.sessions import LISTENERS, StreamListeners
from helpers.commands import awaited


def test_a_flood_of_names_ends_nobodys_run(monkeypatch):
    """Gradio itself throws out the oldest name."""
    monkeypatch.setattr(sessions, "MOST", 20)
    begun, go_on = threading.Event(), threading.Event()

    def quick() -> str:
        return "quick"

    def wait() -> str:
        begun.set()
        assert go_on.wait(60)
        return "the result"

    with gr.Blocks(analytics_enabled=False) as page:
        gr.api(wait, api_name="wait", concurrency_limit=None)
        gr.api(quick, api_name="quick", concurrency_limit=None)
    names = {each.api_name: at for at, each in page.fns.items()}

    def join(http, name: str, session: str) -> None:
        body = {"data": [], "fn_index": names[name], "session_hash": session}
        assert http.post("/gradio_api/queue/join", json=body).status_code == 200

    with TestClient(mount_guarded_page(page)) as http:
        join(http, "wait", "runner")
        assert begun.wait(60)
        for number in range(25):
            join(http, "quick", f"name{number}")
            http.get("/gradio_api/queue/data", params={"session_hash": f"name{number}"})
        queue = page._queue
        assert len(queue.pending_messages_per_session) <= 20 and len(queue.pending_event_ids_session) <= 20
        go_on.set()
        said = http.get("/gradio_api/queue/data", params={"session_hash": "runner"}).text
    done = [json.loads(line[5:]) for line in said.splitlines() if "process_completed" in line]
    assert [message["output"]["data"] for message in done] == [["the result"]]


@pytest.fixture
def endless(monkeypatch):
    """A run of the session `nobody` that ends by itself after 2,000 steps, and whether it was closed before."""
    closed = threading.Event()

    def steps():
        try:
            for _ in range(2000):
                threading.Event().wait(0.001)
                yield {"news": "some"}
        except GeneratorExit:
            closed.set()
            raise

    monkeypatch.setattr(streams, "DEVICE", TimeSharedDeviceWorker())
    monkeypatch.setattr(
        streams, "build_request_within_token_limit", lambda *_: RunRequest(lambda pair: steps(), RACE, 1, 1)
    )
    monkeypatch.setattr(streams, "UNHEARD", 0.2)
    return closed


async def told(most: int) -> int:
    client = SimpleNamespace(host="127.0.0.1")
    LocalContext.request.set(SimpleNamespace(session_hash="nobody", headers={}, client=client))
    LocalContext.event_id.set("call")
    heard = 0
    stream = streams.stream_request_events_and_refusals(ServedPairs(None), lambda: {"kind": "race"})
    async for _ in stream:
        heard += 1
        if heard == most:
            break
    await stream.aclose()
    return heard


def test_a_run_that_nobody_listens_to_ends(endless):
    with pytest.raises(gr.Error, match=r"Nobody has listened to this run for 0\.2 s"):
        awaited(told(2000))
    assert endless.wait(60)


@pytest.mark.parametrize("name", ["nobody", "call"])
def test_a_run_that_somebody_listens_to_goes_on(endless, name):
    with LISTENERS.streams.count_while_open(name):
        assert awaited(told(500)) == 500


@pytest.mark.parametrize(("run", "who"), [("run1", "page1"), (None, "127.0.0.9")])
def test_a_run_says_who_asks_and_from_where(monkeypatch, run, who):
    """An open page is a visitor of its own, and all calls of the API from one address are one."""
    asked = []

    async def stream(call, watched):
        asked.append((call.visitor, call.client_address, watched))
        yield "news"

    async def ask() -> None:
        client = SimpleNamespace(host="127.0.0.9")
        LocalContext.request.set(SimpleNamespace(session_hash="page1", headers={}, client=client))
        async for _ in streams.stream_request_events_and_refusals(
            ServedPairs(None), lambda: {"kind": "race", "run": run}
        ):
            pass

    monkeypatch.setattr(streams, "DEVICE", SimpleNamespace(queue_job_and_stream_json_events=stream))
    monkeypatch.setattr(
        streams, "build_request_within_token_limit", lambda *_: RunRequest(lambda pair: iter(()), RACE, 1, 1)
    )
    awaited(ask())
    assert asked == [(who, "127.0.0.9", run is not None)]


def test_listeners_are_counted_and_names_are_forgotten(monkeypatch):
    monkeypatch.setattr(sessions, "MOST_FETCHED", 3)
    listeners = StreamListeners()
    with listeners.streams.count_while_open("a"):
        with listeners.streams.count_while_open("a"):
            pass
        assert listeners.has_listener("b", "a") and not listeners.has_listener("b")
    assert not listeners.has_listener("a") and not listeners.streams
    assert [listeners.claim_first_fetch_of_stream(name) for name in "aabcd"] == [True, False, True, True, True] and len(
        listeners.fetched
    ) == 3


@pytest.mark.parametrize(("run", "told"), [("run1", [1, 2, "failed"]), (None, [1, 2])])
def test_a_page_is_told_in_the_wire_that_its_run_has_failed(monkeypatch, run, told):
    """Behind all its news. A caller of the API hears of it from Gradio alone."""

    def steps():
        yield {"news": "some"}
        yield {"news": "more"}
        raise ValueError("It failed.")

    async def heard() -> list[dict]:
        messages = []
        with pytest.raises(gr.Error, match="It failed"):
            async for news in streams.stream_request_events_and_refusals(
                ServedPairs(None), lambda: {"kind": "race", "run": run}
            ):
                messages.append(json.loads(news))
        return [each for each in messages if "place" not in each]

    monkeypatch.setattr(streams, "DEVICE", TimeSharedDeviceWorker())
    monkeypatch.setattr(
        streams, "build_request_within_token_limit", lambda *_: RunRequest(lambda pair: steps(), RACE, 1, 1)
    )
    messages = awaited(heard())
    assert [each.get("seq", "failed") for each in messages] == told
    assert len({each["run"] for each in messages}) == 1
