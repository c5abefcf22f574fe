"""Readiness: what is made ready, in what order, and a race on a half-ready pair makes what it needs. Held by events."""

import threading
import time

import pytest
import torch

from engine.nets import open_lazy_nets
from engine.page.screens import readiness
from engine.page.screens.device import TimeSharedDeviceWorker
from engine.page.screens.readiness import HEATS, SystemPreparation
from engine.race import Race, Settings
from engine.record.costs import Costs
from engine.rounds.pair_costs import PairCosts
from engine.systems import SYSTEMS
from helpers.learned import RECIPES, pair_with
from helpers.pairs import tiny_pair

LONG = 60  # seconds after which a test that waits for an event has failed


def beside(do) -> threading.Thread:
    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    return thread


# ---- what is made ready


@pytest.fixture
def noted(monkeypatch):
    """What is made ready, noted instead of done: the system with "costs" or the temperature of a race."""
    done = []

    def steps(pair, system, heats):
        return [lambda kind=kind: done.append((system.name, kind)) for kind in ("costs", *heats)]

    monkeypatch.setattr(readiness, "list_preparation_steps", steps)
    monkeypatch.setattr(PairCosts, "time_verifications_quickly_if_untimed", lambda _: done.append(("all", "quickly")))
    return done


def test_the_opening_race_is_made_ready_first_and_then_every_system_at_all_temperatures(noted, monkeypatch):
    ready = SystemPreparation(tiny_pair(), TimeSharedDeviceWorker())
    ready.prepare_opening_race()
    assert noted[0] == ("all", "quickly")  # or the page would wait for the costs' full patience
    assert noted[1:] == [("vanilla", "costs"), ("vanilla", 0.0), ("tree", "costs"), ("tree", 0.0)]
    assert ready.preparation_progress_text.startswith("Making ready 2 of ") and len(ready.waiting) == len(SYSTEMS)
    noted.clear()
    monkeypatch.setattr(PairCosts, "list_remeasurement_calls", lambda _: [lambda: noted.append(("costs", "again"))])
    ready.prepare_remaining_systems()
    assert noted[-1] == ("costs", "again")  # the page's start was at work beside the first time
    for heat in HEATS:
        names = [name for name, kind in noted if kind == heat]
        assert sorted(names) == sorted(SYSTEMS) and names[:2] == ["vanilla", "tree"]
    assert ready.preparation_progress_text == ""


def test_nothing_but_the_opening_race_is_made_ready_while_a_page_is_coming(noted):
    seen = []

    def waits() -> bool:
        """Every other time, so that each step waits once."""
        seen.append(len(noted))
        return len(seen) % 2 == 1

    ready = SystemPreparation(tiny_pair(), TimeSharedDeviceWorker(), should_pause=waits)
    ready.prepare_opening_race()
    assert len(noted) == 5 and seen == []
    ready.prepare_remaining_systems()
    assert len(seen) > 2 * len(SYSTEMS) and seen[::2] == seen[1::2] and ready.preparation_progress_text == ""


def test_a_page_that_is_coming_all_the_time_holds_nothing_up_for_good(noted, monkeypatch):
    monkeypatch.setattr(readiness, "RESTS", 0.1)
    until = time.monotonic() + LONG

    def waits() -> bool:
        assert time.monotonic() < until
        return True

    ready = SystemPreparation(tiny_pair(), TimeSharedDeviceWorker(), should_pause=waits)
    ready.prepare_remaining_systems()
    assert ready.preparation_progress_text == ""


@pytest.mark.parametrize(
    ("error", "printed"), [(ValueError, ""), (ZeroDivisionError, "ZeroDivisionError: no such drafter")]
)
def test_a_system_that_cannot_be_made_ready_is_passed_over(error, printed, monkeypatch, capsys):
    def steps(pair, system, heats):
        def fail():
            raise error("no such drafter")

        return [fail, lambda: pytest.fail("went on")]

    monkeypatch.setattr(readiness, "list_preparation_steps", steps)
    ready = SystemPreparation(tiny_pair(), TimeSharedDeviceWorker())
    ready.prepare_remaining_systems()
    assert ready.preparation_progress_text == "" and printed in capsys.readouterr().err


def test_a_ready_system_leaves_nothing_to_a_race_but_the_race(monkeypatch):
    """A net is loaded, costs are measured and all temperatures are raced before the system counts as ready."""
    raced, measured = [], []
    costs = Costs({1: 1.0}, 0.0, 0.0)
    monkeypatch.setattr(
        PairCosts,
        "get_or_measure_costs",
        lambda _, drafter, use_recent_verifications: measured.append(drafter) or costs,
    )
    run = Race.run
    monkeypatch.setattr(Race, "run", lambda race: raced.append(race.settings) or run(race))
    for step in readiness.list_preparation_steps(tiny_pair(same=True), SYSTEMS["tree"], HEATS):
        step()
    assert measured == ["model"] and tuple(each.temperature for each in raced) == HEATS
    assert all(each.systems == ("tree",) for each in raced)


# ---- nets that are loaded when they are first used


@pytest.fixture
def stored(tmp_path):
    """A pair whose two nets are in files, and of which none is loaded."""
    pair = pair_with(*RECIPES)
    for name in RECIPES:
        pair.learned[name].save(tmp_path / name)
    object.__setattr__(pair, "learned", open_lazy_nets(tmp_path, pair.target.model))
    return pair


def test_a_pair_says_what_nets_it_has_before_one_is_loaded(stored):
    assert set(stored.learned) == set(RECIPES) and len(stored.learned) == 2
    assert "eagle" in stored.learned and "parallel" not in stored.learned and stored.learned.loaded == {}


def test_nets_are_loaded_one_by_one_before_the_systems(stored, noted):
    seen = []
    ready = SystemPreparation(stored, TimeSharedDeviceWorker())
    done = ready.run_preparation_step
    ready.run_preparation_step = lambda words, step: (
        seen.append((words, list(stored.learned.loaded))) or done(words, step)
    )
    ready.prepare_remaining_systems()
    assert seen[:2] == [("Loading the drafter eagle", []), ("Loading the drafter medusa", ["eagle"])]
    assert list(stored.learned.loaded) == ["eagle", "medusa"] and seen[2][0].startswith("Making ready 1 of ")


def test_a_race_on_a_half_ready_pair_loads_its_own_net_alone(stored):
    race = Race(stored, Settings("Story: Once", ("vanilla", "eagle"), max_new_tokens=8))
    list(race.run())
    assert race.result()["identical"] is True and list(stored.learned.loaded) == ["eagle"]


def test_two_threads_get_the_same_net_and_it_is_made_once(stored, monkeypatch):
    load, folder = stored.learned.folders["eagle"]
    made, begun, go_on = [], threading.Event(), threading.Event()

    def slow(*given):
        begun.set()
        assert go_on.wait(LONG)
        made.append(load(*given))
        return made[-1]

    monkeypatch.setitem(stored.learned.folders, "eagle", (slow, folder))
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
