"""The events that a race sends to the page, from hand-made steps: every step once, in the order of the clocks, as strict JSON."""

import json
from dataclasses import asdict

import pytest

from engine.page.views import wire
from engine.page.views.wire import RunEvent, serialise_and_number_messages
from engine.record.quiet import WorkSignal
from engine.record.race_file import Record
from engine.record.trace import Trace
from helpers.traces import FakeRace, events, make_step, one_node, piece, race_of, remote_race


def test_every_step_arrives_once_in_order_and_the_clocks_add_up():
    messages = [json.loads(each) for each in events(race_of(20), batch_seconds=0)]
    assert [message["seq"] for message in messages] == list(range(1, len(messages) + 1))
    assert len({message["run"] for message in messages}) == 1
    for lane in (0, 1):
        arrived = [step for message in messages for at, step in message.get("steps", []) if at == lane]
        assert [step["index"] for step in arrived] == list(range(20))
        assert [step["t"] for step in arrived] == pytest.approx([0.005 * (index + 1) for index in range(20)])


def test_the_first_string_says_what_races_and_the_last_one_how_it_went():
    messages = [json.loads(each) for each in events(race_of(20))]
    first, last = messages[0], messages[-1]
    assert first["start"] and [system["title"] for system in first["systems"]] == ["Vanilla", "Tree"]
    trace = asdict(Trace("tree", "a pair", "a machine", "fp32", "Once", [1, 2], 0.0, 3, 4, 4, 8, 40))
    del trace["steps"], trace["turns"]  # of which there are none
    assert first["systems"][1]["trace"] == trace
    assert (
        last["end"] and last["identical"] is False and [lane["name"] for lane in last["lanes"]] == ["vanilla", "tree"]
    )
    assert not any("end" in message for message in messages[:-1])


def test_the_first_string_says_what_forwards_cost_by_lane():
    """Numbers of nodes are strings there, as all keys of JSON are."""
    first, *others = [json.loads(each) for each in events(race_of(20))]
    curve, chosen_from = {"1": 2, "2": 2.1, "4": 2.3, "8": 2.8, "16": 4, "64": 9}, {"promised": {}, "shapes": {}}
    assert [system["costs"] for system in first["systems"]] == [
        {"verify_ms": curve, "first_ms": 0, "level_ms": 0, **chosen_from},
        {"verify_ms": curve, "first_ms": 0.51, "level_ms": 0.4, **chosen_from},
    ]
    assert not any("systems" in message for message in others)


def test_costs_are_known_before_the_lanes_run():
    race = race_of(3)
    asked = []
    known = race.to_record()
    race.to_record = lambda: asked.append(len(race.lanes[0].trace.steps)) or known
    list(events(race))
    assert asked == [0]


def test_a_short_race_still_starts_and_ends():
    messages = [json.loads(each) for each in events(race_of(1))]
    assert messages[0]["start"] and messages[-1]["end"] and len(messages) == 2


def test_the_strings_are_strict_json():
    """Python writes NaN and Infinity by default; a browser's JSON.parse throws on both."""
    strings = list(events(FakeRace([(0, make_step(bonus_p=float("nan"))), (1, make_step())])))
    assert not any("NaN" in each or "Infinity" in each for each in strings)
    assert json.loads(strings[0])["steps"][0][1]["bonus_p"] is None


def test_a_race_that_is_over_is_one_event_in_the_order_of_the_clocks():
    race = race_of(6)
    live = [json.loads(each) for each in events(race)]
    event = json.loads(wire.serialise_whole_race_as_event(Record(race.to_record().lanes, "2026-01-31")))
    assert event["start"] and event["end"] and event["seq"] == 1 and event["recorded"] == "2026-01-31"
    assert event["systems"] == live[0]["systems"] and event["lanes"] == live[-1]["lanes"]
    assert event["steps"] == [step for message in live for step in message.get("steps", [])]


def test_closing_the_events_closes_the_race():
    race = race_of(50)
    stream = events(race, batch_seconds=0)
    next(stream)
    stream.close()
    assert race.closed


def until_it_breaks(race: FakeRace, **more) -> list[dict]:
    """The messages of a race that fails with `KeyError`."""
    told = []
    with pytest.raises(KeyError):
        told += (
            each
            for each in serialise_and_number_messages("run", wire.run_race_and_its_repeats_as_messages(race, **more))
            if isinstance(each, RunEvent)
        )
    return [json.loads(each.json_text) for each in told]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 40])
def test_all_steps_before_a_fault_arrive_however_soon_it_comes(count):
    """The first message waits for four steps of each lane, and later ones for their time. A fault waits for neither."""
    race = race_of(50)
    del race.steps[count:]

    def polled():
        yield from FakeRace.run(race)
        raise KeyError("odd")

    race.poll_steps = polled
    told = until_it_breaks(race, batch_seconds=1e6)
    assert [message["seq"] for message in told] == [*range(1, len(told) + 1)]
    assert ["start" in message for message in told] == [True] + [False] * (len(told) - 1)
    arrived = [(lane, step["index"]) for message in told for lane, step in message["steps"]]
    assert arrived == [(lane, step.index) for lane, step in race.steps]


def test_a_fault_before_any_step_has_nothing_to_tell():
    race = FakeRace([])

    def polled():
        raise KeyError("odd")
        yield

    race.poll_steps = polled
    assert until_it_breaks(race) == []


def test_a_fault_when_a_race_runs_again_comes_behind_the_last_steps():
    def again():
        raise KeyError("odd")
        yield

    race = race_of(20)
    race.repeat_and_show_median_run_in_steps = again
    told = until_it_breaks(race, batch_seconds=1e6)
    assert sum(len(message["steps"]) for message in told) == 40 and not any("end" in message for message in told)


def test_a_step_for_the_page_has_its_time_and_says_whether_its_bonus_is_kept():
    step, cut = make_step(), make_step(burst=[11], pieces=[" a"], end="length")
    assert wire.build_step_message(step, 0.25) == {**vars(step), "t": 0.25, "has_bonus": True}
    assert wire.build_step_message(cut, 0.25)["has_bonus"] is False


@pytest.mark.parametrize(
    ("seconds", "live", "over"), [(0.01, 1000, 1000), (0.8, 12.5, 12.5), (4.0, 2.5, 2.5), (40.0, 1, 0.25)]
)
def test_a_race_lasts_ten_seconds_whatever_the_machine(seconds, live, over):
    """A race that still runs cannot be shown faster than it runs."""
    steps = [make_step(index=index, seconds={"verify": seconds / 10}, burst=[1] * 4) for index in range(10)]
    trace = Trace("tree", "a pair", "a machine", "fp32", "Once", [1], 0.0, 3, 4, 4, 8, 40, steps=steps)
    assert wire.compute_playback_slowdown([trace]) == pytest.approx(live)
    steps[-1] = make_step(index=9, seconds={"verify": seconds / 10}, burst=[1] * 4, end="length")
    assert wire.compute_playback_slowdown([trace, trace]) == pytest.approx(over)


def test_a_remote_servers_step_has_no_bonus():
    event = json.loads(wire.serialise_whole_race_as_event(remote_race(end="failed", note="It broke.")))
    first, last = [step for lane, step in event["steps"] if lane == 1]
    assert (first["parents"], first["has_bonus"], last["has_bonus"]) == ([], False, False)
    assert last["bonus_text"] == "It broke." and event["identical"] == "failed"


def test_while_a_server_is_waited_for_what_has_arrived_is_sent_and_a_rest_is_asked_for():
    race = FakeRace([])

    def polled():
        yield WorkSignal.IDLE
        yield 0, one_node(burst=[99], pieces=[" fox"])
        yield WorkSignal.IDLE
        yield 1, piece(0, " a", "stop")
        for at, step in ((0, one_node()), (1, piece(0, " a", "stop"))):
            race.lanes[at].trace.steps.append(step)

    race.poll_steps = polled
    sent = list(serialise_and_number_messages("run", wire.run_race_and_its_repeats_as_messages(race, batch_seconds=0)))
    assert sent[0] is WorkSignal.IDLE
    told = [json.loads(each.json_text) for each in sent if isinstance(each, RunEvent)]
    assert [lane for message in told for lane, _ in message.get("steps", [])] == [0, 1] and told[-1]["end"]


def test_a_lane_that_has_sent_nothing_yet_is_watched_in_real_time(monkeypatch):
    monkeypatch.setattr(wire, "FIRST_SECONDS", 0.0)
    race = FakeRace([(0, one_node(burst=[99], pieces=[" fox"]))])
    race.lanes[1].trace.steps.clear()
    first = json.loads(next(events(race)))
    assert first["start"] and first["slowdown"] == 1


def test_the_pace_is_known_when_the_race_is_over():
    """A step may stall after the pace was guessed; the last message says what makes the whole race last as long as it should."""
    *_, last = [json.loads(each) for each in events(race_of(20))]
    assert last["slowdown"] == pytest.approx(
        wire.WATCHED_SECONDS / max(lane["seconds"] for lane in last["lanes"]), rel=1e-4
    )
