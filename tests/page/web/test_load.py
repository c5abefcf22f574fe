"""Visitors and floods against the real page and its guard, on races that are made up. Counts, and no seconds."""

import asyncio
import threading
from collections import Counter
from itertools import product

import pytest

from engine.page.screens.device import Device
from engine.page.screens.orders import Order
from engine.page.screens.turns import RACE
from engine.page.views.wire import messages
from engine.page.web import guard, pace, streams
from engine.page.web.front import Front
from engine.page.web.lending import Served
from engine.page.web.page import build, mounted
from engine.record.quiet import Quiet
from helpers.commands import awaited
from helpers.pairs import spoken_pair
from helpers.traces import race_of
from helpers.visitors import (
    CALLERS,
    Visitor,
    ask_without_listening,
    change_names,
    fetch_often,
    leave_bodies_unfinished,
    open_page,
    race,
    race_values,
)

FIELDS = {"prompt": "Once", "seed": 1, "temperature": 0.0, "tokens": 8}


@pytest.fixture
def endless():
    """Set when races go on until they are ended."""
    return threading.Event()


@pytest.fixture
def url(monkeypatch, endless):
    device = Device()

    def order(pair, kind, values) -> Order:
        if values.get("prompt") == "":
            raise ValueError("The prompt is empty.")
        race = race_of(12)
        for lane in race.lanes:
            lane.trace.prompt = values.get("prompt", "Once")

        def again():
            while True:
                yield Quiet.STEP

        def steps():
            while endless.is_set():
                yield Quiet.STEP
            if "again" in str(values.get("prompt")):
                race.again = again
            yield from messages(race, batch_seconds=0.0)

        return Order(steps, RACE, 1, 1)

    monkeypatch.setattr(streams, "order", order)
    monkeypatch.setattr(streams, "DEVICE", device)
    front = Front("")
    front.runs = lambda: len(device.line.everyone)
    port = front.serve("127.0.0.1", 0)
    front.hand_over(mounted(build(Served(spoken_pair()))))
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
    monkeypatch.setattr(guard, "READS", pace.Pace(burst=20, rate=50))
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
