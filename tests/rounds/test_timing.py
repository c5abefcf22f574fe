"""What forwards cost here: measured once, in every size, and drafts by their forwards."""

import math
from types import SimpleNamespace

import pytest
import torch

from engine import race
from engine.contracts import NO_GUESSES
from engine.drafters import DRAFTERS
from engine.measure import racing
from engine.measure.repeated import RepeatedRace
from engine.race import Settings
from engine.rounds import pair_costs, timing
from engine.rounds import round as rounds_on_host
from engine.rounds.pair_costs import RECENT_ROWS, PairCosts
from engine.rounds.timing import FEWEST, LEVELS, ROWS, median_ms_interleaved, time_first_and_further_draft_level_ms
from engine.sampling import Sampling
from engine.systems import SYSTEMS
from engine.target import Target
from engine.tree import LARGEST_TREE
from helpers.pairs import tiny_pair


@pytest.fixture
def clock(monkeypatch):
    """A made-up clock, which only tests move."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(rounds_on_host, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


@pytest.mark.parametrize(("settled", "first"), [(False, [9.0, 9.0]), (True, [9.0, 9.0, 8.0])])
def test_a_timing_is_the_median_of_its_repeats_in_milliseconds(clock, settled, first):
    """First calls are not counted, and where a task is run before it is timed, that run is not."""
    repeats = [0.001, 0.007, 0.002]
    spent = iter([*first, *(repeats if not settled else [0.001, 8.0, 0.007, 8.0, 0.002])])

    def task() -> None:
        clock.now += next(spent)

    assert median_ms_interleaved(torch.device("cpu"), {"task": task}, 3, settled) == {"task": pytest.approx(2.0)}


def test_a_level_below_the_first_costs_what_further_levels_add(clock, monkeypatch):
    right, first = timing.grow_tree_of_favourites, [1.0, 1.0]

    def grow(room, drafter, root, position, sampling, levels):
        clock.now += (first.pop() if first else 0.0) + {1: 0.004, 1 + LEVELS: 0.010}[levels]
        return right(room, drafter, root, position, sampling, levels)

    monkeypatch.setattr(timing, "grow_tree_of_favourites", grow)
    assert time_first_and_further_draft_level_ms(tiny_pair(), "model", repeats=3) == pytest.approx((4.0, 2.0))


def test_races_of_tests_hurry():
    """Unnoticed, the suite would take longer: races warm up in full and run twice on a busy machine, and more forwards are timed."""
    assert (race.WARM_UP_TOKENS, racing.RUNS, ROWS) == (1, 1, (1, 2, 8, 64))


def test_the_machine_is_measured_once_and_in_every_size(clock, monkeypatch):
    """On a made-up clock, so that no other work makes a level cheaper than none."""
    right, verify, verified = timing.grow_tree_of_favourites, Target.verify, []

    def grow(room, drafter, root, position, sampling, levels):
        clock.now += {1: 0.004, 1 + LEVELS: 0.010}[levels] if drafter.guess_origin != NO_GUESSES else 0.0
        return right(room, drafter, root, position, sampling, levels)

    def slow(target, tree):
        verified.append(len(tree))
        clock.now += 0.005 + len(verified) * 1e-6
        return verify(target, tree)

    monkeypatch.setattr(timing, "grow_tree_of_favourites", grow)
    monkeypatch.setattr(Target, "verify", slow)
    pair = tiny_pair()
    found = PairCosts(pair).get_or_measure_costs("model")
    assert tuple(found.verify_ms) == ROWS and {*verified} >= {*ROWS}
    assert all(5.0 < ms < 6.0 for ms in found.verify_ms.values())
    assert (found.first_ms, found.level_ms) == pytest.approx((4.0, 2.0))
    often = len(verified)
    assert PairCosts(pair).get_or_measure_costs("model") == found and len(verified) == often
    assert PairCosts(pair).get_or_measure_costs("none").level_ms == 0.0
    for name in DRAFTERS:
        assert PairCosts(pair).get_or_measure_costs(name).verify_ms == found.verify_ms


def test_the_least_of_a_forwards_timings_counts_and_costs_rise_with_the_rows(clock, monkeypatch):
    """Of three turns two meet other work. The first verification of a size in a turn is not timed, and the first turn is none."""
    spent = [9.0, 9.0, 9.0, 9.0, *(9.0, 0.005, 9.0, 0.007), *(9.0, 0.9, 9.0, 0.006), *(9.0, 0.8, 9.0, 0.9)]
    monkeypatch.setattr(timing, "ROWS", (1, 4))
    monkeypatch.setattr(Target, "verify", lambda *_: setattr(clock, "now", clock.now + spent.pop(0)))
    assert timing.time_verify_ms_by_rows(tiny_pair(), repeats=3) == pytest.approx({1: 5.0, 4: 6.0}) and not spent
    monkeypatch.setattr(timing, "time_verify_ms_by_rows", lambda *_, **__: {1: 5.0, 4: 9.0, 8: 6.0})
    monkeypatch.setattr(timing, "time_first_and_further_draft_level_ms", lambda *_, **__: (0.0, 0.0))
    assert PairCosts(tiny_pair()).get_or_measure_costs("none").verify_ms == {1: 5.0, 4: 6.0, 8: 6.0}


@pytest.fixture
def waiting(monkeypatch):
    """A runner on a made-up clock, which `repeat_until_enough_undisturbed` read too. `waits` are the seconds of each turn without the
    processor, of one.
    """
    clock, waits = SimpleNamespace(now=0.0, waited=0.0), []
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    runner = SimpleNamespace(device=torch.device("cpu"), seconds_without_processor=lambda: clock.waited)

    def taken(repeats: int, seconds: float) -> int:
        count = 0
        for _turn, wait in zip(timing.repeat_until_enough_undisturbed(runner, repeats, seconds), waits, strict=False):
            clock.now, clock.waited = clock.now + 1.0, clock.waited + wait
            count += 1
        return count

    return SimpleNamespace(runner=runner, waits=waits, taken=taken)


def test_turns_that_other_work_disturbed_are_taken_again_while_there_is_time(waiting):
    waiting.waits[:] = [0.5, 0.0, 0.5, 0.0, 0.0, *[0.0] * 20]
    assert waiting.taken(3, 60.0) == 5
    waiting.waits[:] = [0.5] * 30
    assert waiting.taken(3, 10.0) == 11 and waiting.taken(3, 0.1) == FEWEST + 1


def test_where_clocks_cannot_tell_every_turn_counts(waiting):
    waiting.waits[:] = [0.5] * 30
    assert waiting.taken(3, math.inf) == 3
    waiting.runner.device = torch.device("cuda")
    assert waiting.taken(3, 60.0) == 3


def test_measured_again_the_least_of_both_counts(monkeypatch):
    pair, found = tiny_pair(), iter([{1: 9.0, 8: 6.0}, {1: 4.0, 8: 7.0}])
    drafts = iter([(3.0, 2.0), (4.0, 1.0)])
    monkeypatch.setattr(timing, "time_verify_ms_by_rows", lambda *_, **__: next(found))
    monkeypatch.setattr(timing, "time_first_and_further_draft_level_ms", lambda *_, **__: next(drafts))
    assert PairCosts(pair).list_remeasurement_calls() == []
    first = PairCosts(pair).get_or_measure_costs("model")
    assert (first.verify_ms, first.first_ms, first.level_ms) == ({1: 6.0, 8: 6.0}, 3.0, 2.0)
    for measure in PairCosts(pair).list_remeasurement_calls():
        measure()
    second = PairCosts(pair).get_or_measure_costs("model")
    assert (second.verify_ms, second.first_ms, second.level_ms) == ({1: 4.0, 8: 6.0}, 3.0, 1.0)


MEASURED = {1: 1.0, 8: 3.0, 16: 4.0, 24: 6.0, 32: 8.0}
FOUND = {1: 2.0, 8: 3.0, 24: 9.0}


@pytest.fixture
def changing(monkeypatch):
    """A pair whose verifications are measured as `MEASURED` and then found as `FOUND`; `looks` counts how often."""
    pair, looks = tiny_pair(), []
    monkeypatch.setattr(timing, "time_first_and_further_draft_level_ms", lambda *_, **__: (0.5, 0.5))

    def verify_ms(pair, *_, row_counts=(), **__) -> dict[int, float]:
        if row_counts:
            looks.append(row_counts)
        return FOUND if row_counts else MEASURED

    monkeypatch.setattr(timing, "time_verify_ms_by_rows", verify_ms)
    PairCosts(pair).get_or_measure_costs("best")
    return SimpleNamespace(pair=pair, looks=looks)


def test_trees_follow_verifications_that_became_faster_or_slower(changing):
    """What lies between the rows that are looked at follows in between; what lies beyond follows the last one."""
    PairCosts(changing.pair).retime_verifications_if_stale()
    assert SYSTEMS["auto"].get_or_measure_costs(changing.pair).verify_ms == pytest.approx(
        {1: 2.0, 8: 3.0, 16: 5.0, 24: 9.0, 32: 12.0}
    )
    # A tree's shape was chosen when the pair was made ready
    assert SYSTEMS["tree"].get_or_measure_costs(changing.pair).verify_ms == MEASURED
    lane = SYSTEMS["auto"].open_rounds(changing.pair, LARGEST_TREE, {"depth": 4, "width": 4, "nodes": 8}, Sampling())
    assert lane.policy.plain == pytest.approx(0.5) and changing.looks == [RECENT_ROWS]


def test_one_looks_again_after_a_while_and_only_where_it_is_brief_and_can_change(changing, monkeypatch):
    pair = changing.pair
    PairCosts(tiny_pair()).retime_verifications_if_stale()  # nothing is measured of it
    for _ in range(3):
        PairCosts(pair).retime_verifications_if_stale()
    assert len(changing.looks) == 1
    monkeypatch.setattr(pair_costs, "REFRESH_AFTER", 0.0)
    PairCosts(pair).retime_verifications_if_stale()
    assert len(changing.looks) == 2
    pair.target.device = torch.device("cuda")
    PairCosts(pair).retime_verifications_if_stale()
    pair.target.device = torch.device("cpu")
    PairCosts(pair).timings.verify_ms_by_rows = {1: 50.0, 24: 60.0}
    PairCosts(pair).retime_verifications_if_stale()
    assert len(changing.looks) == 2


@pytest.mark.parametrize(
    "race", [RepeatedRace, lambda *about: racing.run_to_result(racing.race_again_if_disturbed_in_steps(*about))]
)
def test_whoever_measures_races_looks_before_each(race, changing):
    race(changing.pair, Settings("Once", ("vanilla",), max_new_tokens=2))
    assert changing.looks == [RECENT_ROWS]


def test_a_page_waits_less_for_costs_than_it_spends_on_them_later(monkeypatch):
    pair, asked = tiny_pair(), []
    monkeypatch.setattr(pair_costs, "VERIFY_SECONDS", 60.0)
    monkeypatch.setattr(pair_costs, "QUICK_SECONDS", 2.0)
    monkeypatch.setattr(
        timing, "time_verify_ms_by_rows", lambda pair, max_seconds: asked.append(max_seconds) or {1: 1.0}
    )
    PairCosts(pair).time_verifications_quickly_if_untimed()
    PairCosts(pair).time_verifications_quickly_if_untimed()
    PairCosts(pair).get_or_measure_costs("none")
    PairCosts(pair).list_remeasurement_calls()[0]()
    assert asked == [2.0, 60.0]


def test_what_is_timed_of_best_are_draft_forwards():
    """One for every level; copies cost none, and drafting would look free."""
    pair = tiny_pair()
    drafters = []
    kept = DRAFTERS["best"].__init__
    try:
        DRAFTERS["best"].__init__ = lambda self, *args: drafters.append(self) or kept(self, *args)
        time_first_and_further_draft_level_ms(pair, "best", repeats=5)
    finally:
        DRAFTERS["best"].__init__ = kept
    assert drafters[0].draft_forward_count == 6 * (1 + 1 + LEVELS)
