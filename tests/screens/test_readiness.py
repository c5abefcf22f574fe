"""Readiness: races and steps take turns, a race goes first, and a race on a half-ready pair makes what it needs. Held by events."""

import threading
from contextlib import suppress

import pytest
import torch

from engine.nets import load_nets
from engine.race import Race, Settings
from engine.screens import readiness
from engine.screens.device import Device
from engine.screens.readiness import AT_ONCE, HEATS, Readiness
from engine.systems import SYSTEMS
from engine.web import streams
from helpers.learned import CONFIGS, pair_with
from helpers.pairs import tiny_pair

LONG = 60  # seconds after which a test that waits for an event has failed


def beside(do) -> threading.Thread:
    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    return thread


def waits(device: Device) -> None:
    """Returns when a race waits for the device."""
    with device.changed:
        assert device.changed.wait_for(lambda: device.races_waiting == 1, LONG)


@pytest.fixture
def device(monkeypatch):
    """A device that tells when a race begins to wait."""
    device = Device()
    wait_for = device.changed.wait_for

    def telling(asked, timeout=None):
        device.changed.notify_all()
        return wait_for(asked, timeout)

    monkeypatch.setattr(device.changed, "wait_for", telling)
    return device


# ---- turns


def test_a_race_waits_for_the_step_that_runs_and_goes_before_the_next(device):
    order, inside, go_on = [], threading.Event(), threading.Event()

    def steps():
        with device.step("one"):
            inside.set()
            assert go_on.wait(LONG)
            order.append("one")
        with device.step("two"):
            order.append("two")

    def race():
        with device.race():
            order.append("race")

    stepping = beside(steps)
    assert inside.wait(LONG) and device.words == "one"
    racing = beside(race)
    waits(device)
    assert device.words == "one; the race comes next"
    go_on.set()
    racing.join(LONG)
    stepping.join(LONG)
    assert order == ["one", "race", "two"]


def test_a_step_waits_for_the_race_that_runs(device):
    order, racing, go_on = [], threading.Event(), threading.Event()

    def race():
        with device.race():
            racing.set()
            assert go_on.wait(LONG)
            order.append("race")

    thread = beside(race)
    assert racing.wait(LONG)

    def step():
        with device.step("a step"):
            order.append("step")

    stepping = beside(step)
    go_on.set()
    thread.join(LONG)
    stepping.join(LONG)
    assert order == ["race", "step"]


def test_a_turn_ends_with_an_error_and_with_a_closed_stream(monkeypatch):
    device = Device()
    monkeypatch.setattr(streams, "DEVICE", device)
    with suppress(KeyError), device.step("fails"):
        raise KeyError
    stream = streams.told(lambda: "asked", lambda asked: iter([asked, "more"]))
    assert next(stream) == "asked" and device.taken
    beside(stream.close).join(LONG)  # Gradio iterates and closes on threads of its own
    assert not device.taken


def test_what_is_asked_wrongly_is_refused_while_a_step_runs(monkeypatch):
    device = Device()
    monkeypatch.setattr(streams, "DEVICE", device)
    with device.step("a long step"), pytest.raises(Exception, match="The prompt is empty"):
        next(streams.told(lambda: Settings(""), lambda asked: iter(())))


# ---- what is made ready


@pytest.fixture
def noted(monkeypatch):
    """What is made ready, noted instead of done: (system, kind of step)."""
    done = []

    def steps(pair, system):
        return [lambda kind=kind: done.append((system.name, kind)) for kind in ("costs", "race")]

    monkeypatch.setattr(readiness, "steps", steps)
    return done


def test_the_opening_race_is_made_ready_first_and_every_system_once(noted):
    ready = Readiness(tiny_pair(), Device())
    ready.make(*AT_ONCE)
    assert [name for name, _ in noted] == ["vanilla", "vanilla", "tree", "tree"]
    assert ready.words.startswith("Making ready 2 of ")
    ready.make_rest()
    names = [name for name, kind in noted if kind == "race"]
    assert sorted(names) == sorted(SYSTEMS) and names[2] == "auto" and ready.words == ""


@pytest.mark.parametrize(
    ("error", "printed"), [(ValueError, ""), (ZeroDivisionError, "ZeroDivisionError: no such drafter")]
)
def test_a_system_that_cannot_be_made_ready_is_passed_over(error, printed, monkeypatch, capsys):
    def steps(pair, system):
        def fail():
            raise error("no such drafter")

        return [fail, lambda: pytest.fail("went on")]

    monkeypatch.setattr(readiness, "steps", steps)
    ready = Readiness(tiny_pair(), Device())
    ready.make_rest()
    assert ready.words == "" and printed in capsys.readouterr().err


def test_a_ready_system_leaves_nothing_to_a_race_but_the_race(monkeypatch):
    """A net is loaded, costs are measured and all temperatures are raced before the system counts as ready."""
    raced, measured = [], []
    monkeypatch.setattr(readiness, "costs_of", lambda pair, drafter: measured.append(drafter))
    run = Race.run
    monkeypatch.setattr(Race, "run", lambda race: raced.append(race.settings) or run(race))
    for step in readiness.steps(tiny_pair(same=True), SYSTEMS["tree"]):
        step()
    assert measured == ["model"] and tuple(each.temperature for each in raced) == HEATS
    assert all(each.systems == ("tree",) for each in raced)


# ---- nets that are loaded when they are first used


@pytest.fixture
def stored(tmp_path):
    """A pair whose two nets are in files, and of which none is loaded."""
    pair = pair_with(*CONFIGS)
    for name in CONFIGS:
        pair.learned[name].save(tmp_path / name)
    object.__setattr__(pair, "learned", load_nets(tmp_path, pair.target.model))
    return pair


def test_a_pair_says_what_nets_it_has_before_one_is_loaded(stored):
    assert set(stored.learned) == set(CONFIGS) and len(stored.learned) == 2
    assert "eagle" in stored.learned and "parallel" not in stored.learned and stored.learned.loaded == {}


def test_nets_are_loaded_one_by_one_before_the_systems(stored, noted):
    seen = []
    ready = Readiness(stored, Device())
    done = ready.done
    ready.done = lambda words, step: seen.append((words, list(stored.learned.loaded))) or done(words, step)
    ready.make_rest()
    assert seen[:2] == [("Loading the drafter eagle", []), ("Loading the drafter medusa", ["eagle"])]
    assert list(stored.learned.loaded) == ["eagle", "medusa"] and seen[2][0].startswith("Making ready 1 of ")


def test_a_race_on_a_half_ready_pair_loads_its_own_net_alone(stored):
    race = Race(stored, Settings("Story: Once", ("vanilla", "eagle"), max_new_tokens=8))
    list(race.run())
    assert race.result()["identical"] is True and list(stored.learned.loaded) == ["eagle"]


def test_two_threads_get_the_same_net_and_it_is_made_once(stored, monkeypatch):
    kind, _ = stored.learned.folders["eagle"]
    made, begun, go_on = [], threading.Event(), threading.Event()
    load = kind.load

    def slow(*given):
        begun.set()
        assert go_on.wait(LONG)
        made.append(load(*given))
        return made[-1]

    monkeypatch.setattr(kind, "load", slow)
    nets = []
    first = beside(lambda: nets.append(stored.net("eagle")))
    assert begun.wait(LONG)
    second = beside(lambda: nets.append(stored.net("eagle")))
    assert nets == []
    go_on.set()
    first.join(LONG)
    second.join(LONG)
    assert len(made) == 1 and nets == [made[0], made[0]] and made[0].compiled is not None


def test_a_race_that_loads_a_net_lets_it_learn_later(stored):
    with torch.inference_mode():
        net = stored.net("eagle")
    assert not any(each.is_inference() for each in net.parameters())
