"""Load: visitors and floods against the real page and its guard, on races that are made up. Counts, and no seconds."""

import asyncio
import json
import threading
from collections import Counter
from unittest.mock import AsyncMock, Mock

import psutil
import pytest

from engine.lab import floods, load, visitors
from engine.lab.floods import FLOODS
from engine.lab.visitors import FLOODED, Page, Visitor, posted, race
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


async def opened(url: str, address: str = "127.0.0.1") -> Page:
    page = Page(url, address)
    await page.read_config()
    return page


async def flooded(url: str, name: str, enough) -> Counter:
    counts, page = Counter(), await opened(url, "127.0.0.2")
    task = asyncio.create_task(FLOODS[name](page, counts))
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
        page = await opened(url)
        came = [
            Visitor(0, 0, False, FIELDS),
            Visitor(1, 0, True, FIELDS),
            Visitor(2, 0, False, {**FIELDS, "prompt": ""}),
        ]
        await asyncio.gather(*(race(page, visitor, f"visitor{visitor.number}") for visitor in came))
        await load.free(page)
        return came

    came = within(visit())
    assert [visitor.outcome for visitor in came] == ["finished", "left", "refused"]
    assert came[0].end["lanes"][0]["tokens"] == 12 and "prompt is empty" in came[2].refused


def test_a_race_that_runs_again_counts_by_its_first_run_and_is_left(url):
    async def visit() -> Visitor:
        page, visitor = await opened(url), Visitor(0, 0, False, {**FIELDS, "prompt": "Once again"})
        await race(page, visitor, "visitor")
        await load.free(page)
        return visitor

    visitor = within(visit())
    assert visitor.end["again"] and visitor.end["lanes"][0]["tokens"] == 12


def test_a_visitor_who_saw_anothers_race_is_mixed_and_one_without_a_result_is_lost():
    start = {"start": True, "run": "a", "seq": 1, "systems": [{"trace": {"prompt": "another"}}]}
    assert Visitor(0, 0, False, FIELDS, [start]).outcome == "mixed"
    assert Visitor(0, 0, False, FIELDS, [{"run": "a", "seq": 1}, {"run": "a", "seq": 3, "end": True}]).outcome == "lost"
    assert Visitor(0, 0, False, FIELDS, [{"run": "a", "seq": 1}]).outcome == "lost"


def test_readers_in_a_hurry_get_the_page_in_pace(url, monkeypatch):
    monkeypatch.setattr(guard, "READS", pace.Pace(burst=20, rate=50))
    counts = within(flooded(url, "gets", lambda counts: counts["GET: 200"] >= 60))
    assert set(counts) == {"GET: 200"}


@pytest.fixture
def few_calls(monkeypatch):
    """Twenty calls from one address, however slowly they come."""
    monkeypatch.setattr(guard, "OF_ADDRESS", (20, 0.0))


def test_a_flood_of_names_is_answered_and_then_turned_away(few_calls, url):
    """Each of its callers has been turned away twice, so no answer of an earlier call is still on its way."""
    turned_away = 2 * floods.CALLERS
    counts = within(
        flooded(url, "names", lambda counts: counts["names: 429"] >= turned_away and counts["names: 200"] >= 20)
    )
    assert counts["names: 200"] == 20 and set(counts) == {"names: 200", "names: 429"}


def test_unfinished_bodies_are_broken_off_when_they_are_too_many(url, monkeypatch):
    monkeypatch.setattr(floods, "SENDERS", 10)
    monkeypatch.setattr(guard, "HELD_OF_ADDRESS", 3_000_000)
    refused = "bodies: 503", "bodies: broken off"
    counts = within(flooded(url, "bodies", lambda counts: sum(counts[each] for each in refused) >= 7))
    assert set(counts) <= set(refused)


@pytest.mark.parametrize("moments", range(5))
def test_a_flood_that_is_ended_while_an_answer_comes_ends(monkeypatch, moments):
    """Whoever waits for the flood's end would wait for ever."""

    async def ended() -> bool:
        answer = asyncio.get_running_loop().create_future()

        async def readline() -> bytes:
            return await answer

        page = Mock(connection=AsyncMock(return_value=(Mock(readline=readline), Mock())))
        monkeypatch.setattr(floods, "SENDERS", 1)
        flood = asyncio.create_task(floods.bodies(page, Counter()))
        await asyncio.sleep(0.01)
        answer.set_result(b"HTTP/1.1 503 Busy")
        for _ in range(moments):
            await asyncio.sleep(0)
        flood.cancel()
        await asyncio.wait([flood], timeout=0.2)
        return flood.done()

    assert awaited(ended())


def test_runs_that_nobody_hears_end(url, monkeypatch, endless):
    monkeypatch.setattr(streams, "UNHEARD", 0.2)
    monkeypatch.setattr(floods, "LATER", 0.05)
    endless.set()

    async def end() -> Counter:
        counts = await flooded(url, "unheard", lambda counts: counts["unheard: 200"] >= 6)
        await load.free(await opened(url))
        return counts

    assert set(within(end())) == {"unheard: 200"} and endless.is_set()


def test_runs_that_somebody_hears_go_on(url, monkeypatch, endless):
    """On the page and over the API, for longer than an unheard one may."""
    monkeypatch.setattr(streams, "UNHEARD", 0.3)
    endless.set()

    async def hear() -> tuple[Visitor, str]:
        page, visitor = await opened(url), Visitor(0, 0, False, FIELDS)
        on_page = asyncio.create_task(race(page, visitor, "heard"))
        _, answer = await posted(page, "gradio_api/call/race", FLOODED)
        fetched = asyncio.create_task(page.http.get(f"gradio_api/call/race/{json.loads(answer)['event_id']}"))
        await asyncio.sleep(1.5)
        endless.clear()
        await on_page
        return visitor, (await fetched).text

    visitor, said = within(hear())
    assert visitor.outcome == "finished" and "event: complete" in said and "event: error" not in said


def test_others_flood_sweep_send_files_and_rubbish_and_each_answer_is_counted(url, monkeypatch):
    monkeypatch.setattr(visitors, "FLOOD", 6)

    async def attend() -> Counter:
        counts, page, stranger = Counter(), await opened(url), await opened(url, "127.0.0.2")
        tasks = visitors.background(page, stranger, 0, counts)
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert done == [None] * 4
        return counts

    counts = within(attend())
    by_kind = Counter()
    for said, count in counts.items():
        by_kind[said.partition(":")[0]] += count
    assert by_kind["flood"] == 6 and by_kind["rubbish"] > 100 and not counts["rubbish: 5xx"]
    assert counts["sweep_on_page: finished"] == counts["prompts_on_page: finished"] == 1


def test_everybodys_races_are_measured_and_run_again_alone(url, monkeypatch):
    for name, value in {"REST": 0.0, "WARM": 0.0, "LEAVINGS": 2, "LONE_RACES": 1, "FLOODED_RACES": 1}.items():
        monkeypatch.setattr(load, name, value)
    strangers = NoStrangers()

    async def measure() -> dict:
        return await load.measure(Page(url), strangers, psutil.Process(), count=6, waves=2, tokens=12, seed=1)

    found = within(measure())
    assert set(found["outcomes"]) == {"finished", "left"} and sum(found["outcomes"].values()) == 12
    assert found["equal_to_alone"] == found["outcomes"]["finished"] > 0 and found["refusals"] == {}
    assert found["ratio"]["loaded"] == found["ratio"]["alone"] == found["lone"]["ratio"]["beside"]
    assert (
        found["lone"]["finished"] == 1 and found["free_seconds"]["most"] < 10 and len(found["memory_mb"]["loaded"]) == 3
    )
    assert strangers.begun == [0, 1, 1000, *FLOODS] and found["others"] == {"GET: 200": 15}
    assert all(found[f"beside {flood}"]["finished"] == 1 for flood in FLOODS)


class NoStrangers:
    """Notes the floods that begin."""

    def __init__(self):
        self.begun = []

    def begin(self, what) -> None:
        self.begun.append(what)

    async def end(self) -> Counter:
        return Counter({"GET: 200": 5})


@pytest.mark.parametrize(("slower", "disturbed", "sound"), [(1.0, False, True), (2.0, False, False), (2.0, True, True)])
def test_a_race_beside_a_flood_is_as_fast_as_alone_or_marked(monkeypatch, slower, disturbed, sound):
    strangers = NoStrangers()

    async def made(page, visitor, session) -> None:
        among = len(strangers.begun) > visitor.number // 2
        seconds = slower if among else 1.0
        end = {"end": True, "lanes": [{"tokens": 10, "seconds": seconds}], "disturbed": disturbed and among}
        visitor.events.append({"run": "a", "seq": 1, **end})

    async def nobody(page) -> None:
        pass

    monkeypatch.setattr(load, "race", made)
    monkeypatch.setattr(load, "free", nobody)
    monkeypatch.setattr(load, "WARM", 0.0)
    found = awaited(load.beside(None, strangers, "gets", 3))
    assert found["ratio"] == 1 / slower and found["sound"] is sound and found["finished"] == 3
    assert found["marked"] == 3 * disturbed and strangers.begun == ["gets"] * 3 and found["answers"] == {"GET: 200": 15}
