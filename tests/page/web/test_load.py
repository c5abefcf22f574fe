"""Visitors and floods against the real page and its guard, on races that are made up. Counts, and no seconds."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any

import httpx
import pytest

from engine.page.screens.device import TimeSharedDeviceWorker
from engine.page.screens.requests import RunRequest
from engine.page.screens.turns import RACE
from engine.page.views.wire import run_race_and_its_repeats_as_messages
from engine.page.web import guard, pace, streams
from engine.page.web.front import OpeningPageThenLiveAppServer
from engine.page.web.lending import ServedPairs
from engine.page.web.page import build_gradio_page_and_api, mount_guarded_page
from engine.record.quiet import WorkSignal
from helpers.commands import awaited
from helpers.pairs import spoken_pair
from helpers.traces import race_of
from load.wire import fill_inputs, find_race, read_line

FIELDS = {"prompt": "Once", "seed": 1, "temperature": 0.0, "tokens": 8}
PATIENCE = 120.0  # seconds until a race counts as lost
READERS, CALLERS, SENDERS = 8, 4, 10  # at once
UNFINISHED = 999_000  # bytes of a body, of which the last one never comes
LATER = 0.05  # seconds after which somebody who was refused asks again


@dataclass
class Visitor:
    """One race of an open page. `events` are what its wire brought."""

    fields: dict[str, Any]
    leaves: bool = False
    events: list[dict] = field(default_factory=list)
    waited: float | None = None  # seconds until the race began
    refusal: str = ""

    @property
    def end(self) -> dict | None:
        return self.events[-1] if self.events and self.events[-1].get("end") else None


class Page:
    """The server as its page calls it. Fields that a caller does not set keep what the page begins with."""

    def __init__(self, url: str, address: str = "127.0.0.1"):
        """`address` is where the calls come from."""
        transport = httpx.AsyncHTTPTransport(local_address=address, limits=httpx.Limits(max_connections=None))
        self.http = httpx.AsyncClient(base_url=url, timeout=PATIENCE, transport=transport)
        self.address, self.port = address, self.http.base_url.port

    async def read_config(self) -> None:
        self.function, self.parts = find_race((await self.http.get("config")).json())

    async def join(self, data: list, session: str) -> httpx.Response:
        """Puts a race of these values into the queue."""
        body = {"data": data, "fn_index": self.function, "session_hash": session}
        return await self.http.post("gradio_api/queue/join", json=body)

    async def run(self, session: str, **fields: Any) -> AsyncIterator[dict]:
        """The events of a race on the page. Raises `ValueError` with the sentence of a refusal."""
        (await self.join(fill_inputs(self.parts, fields), session)).raise_for_status()
        async with self.http.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as stream:
            async for line in stream.aiter_lines():
                event, is_last = read_line(line)
                if event:
                    yield event
                if is_last:
                    return

    async def await_nobody(self) -> None:
        """Waits until nobody runs."""
        while (await self.http.get("readiness")).json()["runs"]:
            await asyncio.sleep(0.025)


async def open_page(url: str, address: str = "127.0.0.1") -> Page:
    page = Page(url, address)
    await page.read_config()
    return page


async def race(page: Page, visitor: Visitor, session: str) -> None:
    """One race of the visitor, who leaves early or where it runs again."""
    begun = time.monotonic()
    try:
        async for event in page.run(session, **visitor.fields):
            if "seq" not in event:  # where it stands, or that it failed
                continue
            visitor.waited = visitor.waited or time.monotonic() - begun
            visitor.events.append(event)
            if event.get("again") or (visitor.leaves and len(visitor.events) > 1):
                return
    except ValueError as error:
        visitor.refusal = str(error)


async def fetch_often(page: Page, counts: Counter) -> None:
    """Connections that fetch the page as fast as they are answered."""

    async def fetch() -> None:
        while True:
            counts[f"GET: {(await page.http.get('')).status_code}"] += 1

    await asyncio.gather(*(fetch() for _ in range(READERS)))


async def change_names(page: Page, counts: Counter) -> None:
    """Calls that cost their sender nothing, each under a new name."""
    numbers, parts = count(), page.parts

    async def call() -> None:
        while True:
            answer = await page.join([None] * len(parts), f"name{next(numbers)}")
            counts[f"names: {answer.status_code}"] += 1
            await asyncio.sleep(LATER * (answer.status_code != 200))

    await asyncio.gather(*(call() for _ in range(CALLERS)))


async def leave_bodies_unfinished(page: Page, counts: Counter) -> None:
    """Bodies just under one megabyte of which the end never comes, on plain connections."""
    head = f"POST /gradio_api/queue/join HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {UNFINISHED}\r\n\r\n"

    async def send() -> None:
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", page.port, local_addr=(page.address, 0))
            try:
                writer.write(head.encode() + b"x" * (UNFINISHED - 1))
                answer = await reader.readline()
                counts[f"bodies: {answer.split()[1].decode() if answer else 'closed'}"] += 1
            except OSError:  # it was refused while it was sent
                counts["bodies: broken off"] += 1
            finally:
                writer.close()
            await asyncio.sleep(LATER)

    await asyncio.gather(*(send() for _ in range(SENDERS)))


async def ask_without_listening(page: Page, counts: Counter) -> None:
    """Long races of the API whose news nobody fetches."""
    while True:
        answer = await page.http.post("gradio_api/call/race", json={"data": race_values("Story: Nobody listens")})
        counts[f"unheard: {answer.status_code}"] += 1
        await asyncio.sleep(LATER)


def race_values(prompt: str) -> list:
    """What the API's race takes."""
    return [prompt, "tree", 4, 4, 0.0, 200, 0, "", "", []]


@pytest.fixture
def endless():
    """Set when races go on until they are ended."""
    return threading.Event()


@pytest.fixture
def url(monkeypatch, endless):
    device = TimeSharedDeviceWorker()

    def order(pair, kind, values) -> RunRequest:
        if values.get("prompt") == "":
            raise ValueError("The prompt is empty.")
        race = race_of(12)
        for lane in race.lanes:
            lane.trace.prompt = values.get("prompt", "Once")

        def again():
            while True:
                yield WorkSignal.STEP

        def steps(pair):
            while endless.is_set():
                yield WorkSignal.STEP
            if "again" in str(values.get("prompt")):
                race.repeat_and_show_median_run_in_steps = again
            yield from run_race_and_its_repeats_as_messages(race, batch_seconds=0.0)

        return RunRequest(steps, RACE, 1, 1)

    monkeypatch.setattr(streams, "build_request_within_token_limit", order)
    monkeypatch.setattr(streams, "DEVICE", device)
    front = OpeningPageThenLiveAppServer("")
    front.count_runs = lambda: len(device.scheduler.jobs_except_preparation)
    port = front.start_server_thread("127.0.0.1", 0)
    front.start_and_attach_live_app(mount_guarded_page(build_gradio_page_and_api(ServedPairs(spoken_pair()))))
    return f"http://127.0.0.1:{port}/"


async def flooded(url: str, flood, enough) -> Counter:
    counts, page = Counter(), await open_page(url, "127.0.0.2")
    task = asyncio.create_task(flood(page, counts))
    while not enough(counts):
        assert not task.done(), task.exception()
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return counts


def within(coroutine):
    return awaited(asyncio.wait_for(coroutine, 120))


def test_visitors_finish_leave_and_are_refused(url):
    async def visit() -> list[Visitor]:
        page = await open_page(url)
        came = [Visitor(FIELDS), Visitor(FIELDS, leaves=True), Visitor({**FIELDS, "prompt": ""})]
        await asyncio.gather(*(race(page, visitor, f"visitor{number}") for number, visitor in enumerate(came)))
        await page.await_nobody()
        return came

    finished, left, refused = within(visit())
    assert finished.end["lanes"][0]["tokens"] == 12 and left.end is None and len(left.events) == 2
    assert "prompt is empty" in refused.refusal and not refused.events


def test_visitors_at_once_see_their_own_races_whole_and_in_order(url):
    async def visit() -> list[Visitor]:
        page = await open_page(url)
        came = [
            Visitor({**FIELDS, "prompt": f"{hero} by {place}"})
            for hero, place in product(("fox", "owl"), ("sea", "hill"))
        ]
        await asyncio.gather(*(race(page, visitor, f"visitor{number}") for number, visitor in enumerate(came)))
        return came

    for visitor in within(visit()):
        prompts = {
            each["trace"]["prompt"] for event in visitor.events if event.get("start") for each in event["systems"]
        }
        assert prompts == {visitor.fields["prompt"]} and len({event["run"] for event in visitor.events}) == 1
        assert [event["seq"] for event in visitor.events] == [*range(1, len(visitor.events) + 1)] and visitor.end


def test_a_race_that_runs_again_says_so_and_may_be_left(url):
    async def visit() -> Visitor:
        page, visitor = await open_page(url), Visitor({**FIELDS, "prompt": "Once again"})
        await race(page, visitor, "visitor")
        await page.await_nobody()
        return visitor

    last = within(visit()).events[-1]
    assert last["again"] and last["lanes"][0]["tokens"] == 12


def test_readers_in_a_hurry_get_the_page_in_pace(url, monkeypatch):
    monkeypatch.setattr(guard, "READS", pace.RateLimiter(burst_calls=20, calls_per_second=50))
    counts = within(flooded(url, fetch_often, lambda counts: counts["GET: 200"] >= 60))
    assert set(counts) == {"GET: 200"}


@pytest.fixture
def few_calls(monkeypatch):
    """Twenty calls from one address, however slowly they come."""
    monkeypatch.setattr(guard, "OF_ADDRESS", (20, 0.0))


def test_a_flood_of_names_is_answered_and_then_turned_away(few_calls, url):
    """Each of its callers has been turned away twice, so no answer of an earlier call is still on its way."""
    turned_away = 2 * CALLERS
    counts = within(
        flooded(url, change_names, lambda counts: counts["names: 429"] >= turned_away and counts["names: 200"] >= 20)
    )
    assert counts["names: 200"] == 20 and set(counts) == {"names: 200", "names: 429"}


def test_unfinished_bodies_are_broken_off_when_they_are_too_many(url, monkeypatch):
    monkeypatch.setattr(guard, "HELD_OF_ADDRESS", 3_000_000)
    refused = "bodies: 503", "bodies: broken off"
    counts = within(flooded(url, leave_bodies_unfinished, lambda counts: sum(counts[each] for each in refused) >= 7))
    assert set(counts) <= set(refused)


def test_runs_that_nobody_hears_end(url, monkeypatch, endless):
    monkeypatch.setattr(streams, "UNHEARD", 0.2)
    endless.set()

    async def end() -> Counter:
        counts = await flooded(url, ask_without_listening, lambda counts: counts["unheard: 200"] >= 6)
        await (await open_page(url)).await_nobody()
        return counts

    assert set(within(end())) == {"unheard: 200"} and endless.is_set()


def test_runs_that_somebody_hears_go_on(url, monkeypatch, endless):
    """On the page and over the API, for longer than an unheard one may."""
    monkeypatch.setattr(streams, "UNHEARD", 0.3)
    endless.set()

    async def hear() -> tuple[Visitor, str]:
        page, visitor = await open_page(url), Visitor(FIELDS)
        on_page = asyncio.create_task(race(page, visitor, "heard"))
        call = await page.http.post("gradio_api/call/race", json={"data": race_values("Flood")})
        fetched = asyncio.create_task(page.http.get(f"gradio_api/call/race/{call.json()['event_id']}"))
        await asyncio.sleep(1.5)
        endless.clear()
        await on_page
        return visitor, (await fetched).text

    visitor, said = within(hear())
    assert visitor.end and "event: complete" in said and "event: error" not in said
