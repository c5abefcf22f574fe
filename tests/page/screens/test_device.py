"""The device: one worker for everybody, streams that free everything when they end, deadlines, and a worker that dies. By events."""

import asyncio
import json
import threading
import time

import pytest

from engine.page.screens import device as devices
from engine.page.screens.device import TimeSharedDeviceWorker
from engine.page.screens.turns import LONG, Job
from engine.page.views.wire import RunEvent
from engine.record.quiet import WorkSignal
from helpers.commands import awaited

LONGEST = 60  # seconds after which a test that waits for an event has failed


async def all_of(device: TimeSharedDeviceWorker, call: Job, watched: bool = False) -> list[str]:
    return [
        news async for news in device.queue_job_and_stream_json_events(call, watched) if "place" not in news or watched
    ]


def run(*coroutines):
    async def together():
        return await asyncio.wait_for(asyncio.gather(*coroutines), LONGEST)

    return awaited(together())


def counted(words: str, count: int, threads: set | None = None):
    for number in range(count):
        if threads is not None:
            threads.add(threading.current_thread().name)
        yield WorkSignal.STEP
        yield RunEvent(f"{words} {number}")


def test_everybody_gets_his_own_news_in_order_from_one_thread():
    device, threads = TimeSharedDeviceWorker(), set()
    calls = [Job(lambda name=name: counted(name, 5, threads), visitor=name) for name in "abcde"]
    heard = run(*(all_of(device, call) for call in calls))
    assert heard == [[f"{name} {number}" for number in range(5)] for name in "abcde"]
    assert threads == {"device"} and device.scheduler.jobs_except_preparation == [] and device.jobs == {}


def test_two_races_take_turns(monkeypatch):
    """Every turn is charged the same, so that the order does not depend on how busy the machine is."""
    monkeypatch.setattr(devices, "SLICE", 0.0)
    device, order = TimeSharedDeviceWorker(), []
    charge = device.scheduler.charge_device_seconds_to_job
    monkeypatch.setattr(device.scheduler, "charge_device_seconds_to_job", lambda call, _: charge(call, 0.001))

    def holds_the_device():
        while len(device.scheduler.jobs_except_preparation) < 3:
            threading.Event().wait(0.001)
        yield WorkSignal.STEP

    def steps(name):
        for _ in range(20):
            order.append(name)
            yield WorkSignal.STEP

    calls = Job(holds_the_device, "c"), *(Job(lambda name=name: steps(name), name) for name in "ab")
    run(*(all_of(device, call) for call in calls))
    assert "".join(order) in ("ab" * 20, "ba" * 20)


def test_a_closed_stream_closes_the_work_wherever_it_is():
    device, closed, begun = TimeSharedDeviceWorker(), threading.Event(), threading.Event()

    def endless():
        try:
            while True:
                begun.set()
                yield WorkSignal.STEP
        finally:
            closed.set()

    async def leaves():
        stream = asyncio.ensure_future(all_of(device, Job(endless, "a")))
        await asyncio.to_thread(begun.wait, LONGEST)
        waiting = asyncio.ensure_future(all_of(device, Job(endless, "a")))  # the visitor's second run waits in line
        while len(device.scheduler.jobs_except_preparation) < 2:
            await asyncio.sleep(0.01)
        waiting.cancel()
        while len(device.scheduler.jobs_except_preparation) > 1:
            await asyncio.sleep(0.01)
        assert not closed.is_set()
        stream.cancel()
        await asyncio.to_thread(closed.wait, LONGEST)

    run(leaves())
    assert closed.is_set()
    run(all_of(device, Job(lambda: counted("next", 1), "b")))
    assert device.scheduler.jobs_except_preparation == [] and device.jobs == {}


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyError("odd"), MemoryError(), SystemExit(3)])
def test_an_error_is_its_own_callers_and_nobody_elses(error):
    device = TimeSharedDeviceWorker()

    def fails():
        yield RunEvent("before")
        raise error

    async def failing():
        heard = []
        own = type(error) if isinstance(error, Exception) else RuntimeError
        with pytest.raises(own):  # an exit would end the server that hears it, without a word
            async for news in device.queue_job_and_stream_json_events(Job(fails, "a")):
                heard.append(news)
        return heard

    heard, others = run(failing(), all_of(device, Job(lambda: counted("b", 3), "b")))
    assert heard == ["before"] and others == ["b 0", "b 1", "b 2"] and device.thread.is_alive()


def test_a_run_that_takes_too_long_ends_with_a_sentence(monkeypatch):
    monkeypatch.setitem(devices.MOST_SECONDS, LONG, 0.05)
    monkeypatch.setattr(devices, "GRACE", 0.05)
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield WorkSignal.STEP
        finally:
            closed.set()

    with pytest.raises(ValueError, match="has used 0 s of the device, the most that one may"):
        run(all_of(TimeSharedDeviceWorker(), Job(endless, "a", LONG)))
    assert closed.wait(LONGEST)


def test_a_run_that_takes_too_long_sends_what_it_holds_back_before_it_ends(monkeypatch):
    """Every turn is one step and is charged a second, so that no machine is too slow for it."""
    monkeypatch.setitem(devices.MOST_SECONDS, LONG, 19.5)
    monkeypatch.setattr(devices, "SLICE", 0.0)
    monkeypatch.setattr(devices, "GRACE", 2.0)
    device, written, heard = TimeSharedDeviceWorker(), [], []
    charge = device.scheduler.charge_device_seconds_to_job
    monkeypatch.setattr(device.scheduler, "charge_device_seconds_to_job", lambda call, _: charge(call, 1.0))

    def race():
        while True:
            held_back = []
            for _ in range(3):
                held_back.append(len(written))
                written.append(len(written))
                yield WorkSignal.STEP if len(held_back) < 3 else RunEvent(json.dumps(held_back))

    async def raced():
        with pytest.raises(ValueError, match="has used 20 s of the device"):
            async for news in device.queue_job_and_stream_json_events(Job(race, "a", LONG)):
                heard.extend(json.loads(news) if "place" not in news else [])

    run(raced())
    assert heard == written == list(range(21))


def test_a_page_that_falls_silent_loses_its_run(monkeypatch):
    monkeypatch.setattr(devices, "SILENCE", 0.3)
    monkeypatch.setattr(devices, "EVERY", 0.05)
    device, signs = TimeSharedDeviceWorker(), []

    def slow():
        while True:
            threading.Event().wait(0.01)
            yield WorkSignal.STEP

    async def silent():
        with pytest.raises(ValueError, match="not heard of"):
            async for news in device.queue_job_and_stream_json_events(Job(slow, "a"), is_watched_by_page=True):
                name = json.loads(news)["run"]
                if not signs:
                    signs.append(device.extend_page_deadline(name))
        assert not device.extend_page_deadline(name)

    run(silent())
    assert signs == [True] and not device.extend_page_deadline("nobody")


def test_the_next_call_begins_another_worker_when_one_has_died(monkeypatch):
    device, died = TimeSharedDeviceWorker(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda what: died.set())
    monkeypatch.setattr(devices, "EVERY", 0.05)
    following, deaths = device.scheduler.start_jobs_and_choose_next, iter([MemoryError()])

    def once():
        for death in deaths:
            raise death
        return following()

    monkeypatch.setattr(device.scheduler, "start_jobs_and_choose_next", once)
    assert run(all_of(device, Job(lambda: counted("a", 2), "a"))) == [["a 0", "a 1"]]
    assert died.is_set()


def test_a_place_is_said_before_the_last_news_and_never_after(monkeypatch):
    """A caller who reads the last message only must find the result there."""
    monkeypatch.setattr(devices, "EVERY", 0.001)
    device, closing, places = TimeSharedDeviceWorker(), threading.Event(), iter(range(10**9))
    monkeypatch.setattr(device, "describe_queue_place", lambda call: f"place {next(places)}")

    def work():
        for _ in range(20):
            threading.Event().wait(0.005)
            yield WorkSignal.STEP
        try:
            yield RunEvent("end", is_last=True)
        finally:
            assert closing.wait(0.3) is False  # it takes a while to free what the run held

    heard = run(listened(device, Job(work, "a")))[0]
    assert heard[-1] == "end" and sum("place" in news for news in heard) > 1


async def listened(device: TimeSharedDeviceWorker, call: Job) -> list[str]:
    return [news async for news in device.queue_job_and_stream_json_events(call)]


# ---- making ready


def test_a_race_waits_for_the_step_that_runs_and_goes_before_the_next():
    device, order, inside, go_on = TimeSharedDeviceWorker(), [], threading.Event(), threading.Event()

    def steps():
        device.preparation_description = "one"
        inside.set()
        assert go_on.wait(LONGEST)
        order.append("one")
        yield WorkSignal.STEP
        order.append("two")
        yield WorkSignal.STEP

    def race():
        order.append("race")
        yield RunEvent("news")
        order.append("race")
        yield RunEvent("more")

    async def racing():
        heard = asyncio.ensure_future(all_of(device, Job(race, "a")))
        while not device.scheduler.jobs_except_preparation:
            await asyncio.sleep(0.01)
        [call] = device.scheduler.jobs_except_preparation
        assert (
            device.preparation_progress_text == "one; the race comes next"
            and device.describe_queue_place(call) == "one; your run comes next."
        )
        go_on.set()
        return await heard

    thread = threading.Thread(target=device.run_preparation_when_idle_and_wait, args=(steps(),), daemon=True)
    thread.start()
    assert inside.wait(LONGEST) and device.preparation_progress_text == "one"
    assert run(racing()) == [["news", "more"]]
    thread.join(LONGEST)
    assert order == ["one", "race", "race", "two"]


def test_what_making_ready_raises_reaches_who_asked_for_it():
    def steps():
        yield WorkSignal.STEP
        raise KeyError("odd")

    with pytest.raises(KeyError, match="odd"):
        TimeSharedDeviceWorker().run_preparation_when_idle_and_wait(steps())


def test_a_hidden_page_is_given_more_time(monkeypatch):
    monkeypatch.setattr(devices, "SILENCE", 0.2)
    monkeypatch.setattr(devices, "EVERY", 0.05)
    device, steps = TimeSharedDeviceWorker(), iter(range(60))

    def slow():
        for _ in steps:
            threading.Event().wait(0.01)
            yield WorkSignal.STEP
        yield RunEvent("news")

    async def asleep():
        async for news in device.queue_job_and_stream_json_events(Job(slow, "a"), is_watched_by_page=True):
            if news == "news":
                return news
            assert (
                device.extend_page_deadline(json.loads(news)["run"], is_page_hidden=True)
                or steps.__length_hint__() == 0
            )

    assert run(asleep()) == ["news"]


def test_a_page_is_lost_after_ten_seconds_and_a_hidden_one_after_more():
    """Browsers let a hidden tab speak once a minute."""
    device = TimeSharedDeviceWorker()
    device.jobs["run"] = call = Job(lambda: iter(()), run_name="run")
    for hidden, seconds in ((False, devices.SILENCE), (True, devices.ASLEEP), (False, devices.SILENCE)):
        begun = time.monotonic()
        assert device.extend_page_deadline("run", hidden) and seconds <= call.page_deadline - begun < seconds + 5
    assert devices.SILENCE == 10 and devices.ASLEEP > 60


def test_a_run_that_is_not_wanted_any_more_ends_without_words():
    device, closed = TimeSharedDeviceWorker(), threading.Event()

    def endless():
        try:
            yield RunEvent("news")
            while True:
                yield WorkSignal.STEP
        finally:
            closed.set()

    async def leaves():
        call = Job(endless, "a")
        async for news in device.queue_job_and_stream_json_events(call, is_watched_by_page=True):
            if news == "news":
                device.cancel_run_even_before_it_arrives(call.run_name)

    run(leaves())
    assert closed.wait(LONGEST) and device.scheduler.jobs_except_preparation == []
    device.cancel_run_even_before_it_arrives("nobody")


def test_a_run_that_was_dropped_before_it_came_never_begins(monkeypatch):
    monkeypatch.setattr(devices, "MOST_UNWANTED", 5)
    device, call = TimeSharedDeviceWorker(), Job(lambda: counted("a", 3), "a")
    device.cancel_run_even_before_it_arrives(call.run_name)
    assert run(all_of(device, call, watched=True)) == [[]]
    for number in range(20):
        device.cancel_run_even_before_it_arrives(str(number))
    assert list(device.unwanted) == ["15", "16", "17", "18", "19"]


def test_freed_memory_is_given_back_once_when_the_device_has_nothing_to_do(monkeypatch):
    monkeypatch.setattr(devices, "REST", 0.05)
    given, device = [], TimeSharedDeviceWorker()
    monkeypatch.setattr(devices, "return_free_heap_to_system", lambda: given.append(threading.current_thread()))
    for rests in (1, 2):
        run(*(all_of(device, Job(lambda: counted("a", 3), visitor=name)) for name in "ab"))
        assert given.count(device.thread) == rests - 1
        threading.Event().wait(0.5)
        assert given.count(device.thread) == rests
