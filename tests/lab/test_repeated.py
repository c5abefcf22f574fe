"""Repeated: one press, several runs, of which the first is watched. On made-up seconds, so that no machine is too busy for them."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.kernels.sharing import ThreadTeam
from engine.measure import repeated
from engine.measure.repeated import MOST, RepeatedRace
from engine.page.screens.device import TimeSharedDeviceWorker
from engine.page.screens.turns import Job
from engine.page.views import wire
from engine.page.views.wire import RunEvent, serialise_and_number_messages
from engine.race import Lane, Race, Settings
from engine.record.disturbance import BUSY, OTHERS
from engine.record.race_file import Record
from helpers.commands import awaited
from helpers.pairs import tiny_pair

SETTINGS = Settings("Story: Once upon a time", ("vanilla", "tree"), max_new_tokens=20)
PRICES = [[5.0, 15.0], [5.0, 10.0], [5.0, 5.0], [5.0, 7.5], [5.0, 12.5]]  # ms of a step, by run and lane


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.fixture
def races(monkeypatch) -> list[Race]:
    """All races that are made. The steps of each take the seconds of `PRICES`; nothing waits for the processor."""
    made: list[Race] = []
    born, right = Race.__init__, Lane.build_step_from_round

    def numbered_race(race, *arguments):
        born(race, *arguments)
        for at, lane in enumerate(race.lanes):
            lane.price = PRICES[len(made) % len(PRICES)][at] / 1000
        made.append(race)

    def priced(lane, done):
        lane.waited = 0.0
        return replace(right(lane, done), seconds={"verify": lane.price})

    monkeypatch.setattr(Race, "__init__", numbered_race)
    monkeypatch.setattr(Race, "warm_up", lambda race: None)
    monkeypatch.setattr(Lane, "build_step_from_round", priced)
    return made


def messages(race: RepeatedRace) -> list[dict]:
    strings = serialise_and_number_messages("run", wire.run_race_and_its_repeats_as_messages(race, batch_seconds=0))
    return [json.loads(each.json_text) for each in strings if isinstance(each, RunEvent)]


def test_the_headline_is_the_median_of_five_runs_and_the_lanes_show_the_nearest(pair, races):
    race = RepeatedRace(pair, SETTINGS)
    told = messages(race)
    result, again = told[-1], [message for message in told if message.get("again")]
    assert len(races) == MOST == len(result["runs"])
    forwards = [lane["forwards"] for lane in result["lanes"]]
    for run, prices in zip(result["runs"], PRICES, strict=True):
        assert run == pytest.approx([count * ms / 1000 for count, ms in zip(forwards, prices, strict=True)], rel=1e-4)
    even = result["lanes"][1]["tau"]
    for name, ms in (("speedup", 10), ("least", 15), ("most", 5)):
        assert result[name] == pytest.approx(even * 5 / ms, rel=1e-4)
    assert result["lanes"][1]["seconds"] == pytest.approx(result["runs"][1][1], rel=1e-4)
    assert race.to_record().lanes[1].trace is races[1].lanes[1].trace
    # The first run was sent step by step, then its own result, once; the last message has the times of the run that is shown
    steps = [step for message in told for at, step in message.get("steps", []) if at == 1]
    assert len(steps) == forwards[1] and steps[-1]["t"] == pytest.approx(0.015 * forwards[1], rel=1e-4)
    [first] = again
    assert first["speedup"] == pytest.approx(even / 3, rel=1e-4) and len(first["runs"]) == 1 and "end" not in first
    times = result["times"]
    assert [len(lane) for lane in times] == forwards
    assert times[1][-1] == [pytest.approx(0.010 * forwards[1], rel=1e-4), {"verify": 0.01}]
    assert Record.from_json(race.to_record().to_json()).result()["speedup"] == race.to_record().result()["speedup"]


def test_where_the_first_run_is_the_nearest_no_times_are_sent(pair, races):
    race = RepeatedRace(pair, SETTINGS)
    for lane, price in zip(race.lanes, (0.005, 0.010), strict=True):
        lane.price = price
    assert "times" not in messages(race)[-1]


@pytest.mark.parametrize(("times", "runs"), [(0.5, 1), (1.05, 2), (2.1, 4), (1e9, 5)])
def test_further_runs_are_bounded_by_seconds(pair, races, monkeypatch, times, runs):
    """As many follow as fit into the seconds, each by what the fastest before it took on its clocks."""
    first = RepeatedRace(pair, SETTINGS)
    for _ in first.race.run():
        pass
    monkeypatch.setattr(repeated, "SECONDS", times * seconds_of(first.race))
    for _ in first.repeat_and_show_median_run_in_steps():
        pass
    assert len(races) == runs == len(first.to_record().result()["runs"])
    took = [seconds_of(race) for race in races]
    assert sum(took[1:]) <= repeated.SECONDS and (runs == MOST or sum(took[1:]) + min(took) > repeated.SECONDS)


def test_a_first_run_that_was_held_up_leaves_room_for_a_median(pair, races, monkeypatch):
    """Its own seconds are no measure of the others'."""
    first = RepeatedRace(pair, SETTINGS)
    for lane in first.lanes:
        lane.price *= 8
    for _ in first.race.run():
        pass
    monkeypatch.setattr(repeated, "SECONDS", 1.1 * seconds_of(first.race))
    for _ in first.repeat_and_show_median_run_in_steps():
        pass
    assert len(races) == MOST and first.to_record().lanes[1].trace is not races[0].lanes[1].trace


def seconds_of(race: Race) -> float:
    return sum(lane.clock for lane in race.lanes)


def test_a_busy_machine_gets_one_run_and_a_sentence(pair, races, monkeypatch):
    race = RepeatedRace(pair, SETTINGS)
    steps = race.poll_steps()
    monkeypatch.setattr(race, "poll_steps", lambda: iter(steps))
    for _ in steps:
        pass
    for share, runs in ((1.01 * BUSY, 1), (0.99 * BUSY, 5)):
        for lane in race.lanes:
            lane.waited = share * lane.clock
        race.made = race.race.to_record()
        for _ in race.repeat_and_show_median_run_in_steps():
            pass
        result = race.to_record().result()
        assert len(result["runs"]) == runs and result["disturbed"] == (OTHERS if runs == 1 else "")


def test_a_run_waits_for_the_processor_where_its_thread_has_none(pair, monkeypatch):
    """A stop of the whole process between two readings of the clocks is such a wait: three seconds pass, and no work is done.

    So is the time in which other threads of its forwards have no processor.
    """
    now = SimpleNamespace(wall=0.0, own=0.0)
    clocks = SimpleNamespace(perf_counter=lambda: now.wall, thread_time=lambda: now.own)
    race = Race(pair, SETTINGS)
    monkeypatch.setattr("engine.forward.runner.time", clocks)
    lane = race.lanes[0]
    right = lane.decoding

    def stopped():
        for number, done in enumerate(right):
            now.wall, now.own = now.wall + (3.01 if number == 1 else 0.01), now.own + 0.01
            monkeypatch.setattr(ThreadTeam, "without", ThreadTeam.without + 0.5 * (number == 2))
            yield done

    lane.decoding = stopped()
    waits = []
    for _ in range(3):
        lane.step()
        waits.append(lane.waited)
    assert waits == pytest.approx([0.0, 3.0, 3.5], abs=0.01)
    lane.clock = 3.03
    assert race.did_threads_wait_too_long is True
    lane.waited = 0.0
    assert race.did_threads_wait_too_long is False


def test_further_runs_end_when_somebody_else_comes_and_what_is_not_over_is_not_counted(pair, races):
    alone = iter([True] * 40 + [False] * 1000)
    race = RepeatedRace(pair, SETTINGS, is_device_uncontested=lambda: next(alone))
    result = messages(race)[-1]
    assert 1 <= len(result["runs"]) < len(races) <= MOST
    assert all(lane.rounds is None for race in races for lane in race.lanes)  # every lane is free


def test_closing_the_messages_frees_the_run_that_goes_on(pair, races):
    race = RepeatedRace(pair, SETTINGS)
    told = wire.run_race_and_its_repeats_as_messages(race, batch_seconds=0)
    for message in told:
        if isinstance(message, dict) and message.get("again"):
            break
    next(told)
    assert len(races) == 2 and races[1].lanes[0].rounds is not None
    told.close()
    assert all(lane.rounds is None for each in races for lane in each.lanes)


def test_another_run_here_ends_the_loneliness_of_a_device():
    device, seen = TimeSharedDeviceWorker(), []

    def work():
        seen.append(device.has_at_most_one_visitor_job())
        device.queue_job_and_wake_worker(Job(lambda: iter(()), visitor="b"))
        seen.append(device.has_at_most_one_visitor_job())
        yield RunEvent("news")

    async def all_of():
        return [news async for news in device.queue_job_and_stream_json_events(Job(work, visitor="a"))]

    awaited(all_of())
    assert seen == [True, False]


def test_a_run_whose_trees_were_others_is_in_no_median(pair, races, monkeypatch):
    """Its seconds are those of other steps. It takes part in nothing, and is counted among the runs that there may be."""
    right = repeated.trees_and_bursts_of
    monkeypatch.setattr(repeated, "trees_and_bursts_of", lambda race: [] if race in races[2:3] else right(race))
    race = RepeatedRace(pair, SETTINGS)
    result = messages(race)[-1]
    assert len(races) == MOST and len(result["runs"]) == MOST - 1
    odd = [lane.trace.seconds for lane in races[2].lanes]
    assert all(run != pytest.approx(odd, rel=1e-4) for run in result["runs"])
