"""What forwards cost here: measured once, in every size, and drafts by their forwards."""

from types import SimpleNamespace

import pytest
import torch

from engine.drafters import DRAFTERS
from engine.rounds import stopwatch, timing
from engine.rounds.timing import LEVELS, ROWS, costs_of, draft_ms, interleaved
from helpers.pairs import tiny_pair


@pytest.fixture
def clock(monkeypatch):
    """A made-up clock, which only tests move."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


@pytest.mark.parametrize(("settled", "first"), [(False, [9.0, 9.0]), (True, [9.0, 9.0, 8.0])])
def test_a_timing_is_the_median_of_its_repeats_in_milliseconds(clock, settled, first):
    """First calls are not counted, and where a task is run before it is timed, that run is not."""
    repeats = [0.001, 0.007, 0.002]
    spent = iter([*first, *(repeats if not settled else [0.001, 8.0, 0.007, 8.0, 0.002])])

    def task() -> None:
        clock.now += next(spent)

    assert interleaved(torch.device("cpu"), {"task": task}, 3, settled) == {"task": pytest.approx(2.0)}


def test_a_level_below_the_first_costs_what_further_levels_add(clock, monkeypatch):
    right, first = timing.grow, [1.0, 1.0]

    def grow(room, drafter, root, position, sampling, levels):
        clock.now += (first.pop() if first else 0.0) + {1: 0.004, 1 + LEVELS: 0.010}[levels]
        return right(room, drafter, root, position, sampling, levels)

    monkeypatch.setattr(timing, "grow", grow)
    assert draft_ms(tiny_pair(), "model", repeats=3) == pytest.approx((4.0, 2.0))


def test_the_machine_is_measured_once_and_in_every_size():
    pair = tiny_pair()
    found = costs_of(pair, "model")
    assert tuple(found.verify_ms) == ROWS and all(ms > 0 for ms in found.verify_ms.values())
    assert found.first_ms > 0 and found.level_ms > 0
    assert costs_of(pair, "model") == found and costs_of(pair, "none").level_ms < found.level_ms
    apart = {
        "dflash",
        "dspark",
        "mtp",
    }  # they read hidden states of their own choice, so their target's forwards are timed apart
    for name in set(DRAFTERS) - apart:
        assert (
            costs_of(pair, name).verify_ms
            == costs_of(pair, "eagle" if DRAFTERS[name](pair, 99).reads_features else "model").verify_ms
        )


def test_what_is_timed_of_best_are_draft_forwards():
    """One for every level; copies cost none, and drafting would look free."""
    pair = tiny_pair()
    drafters = []
    kept = DRAFTERS["best"].__init__
    try:
        DRAFTERS["best"].__init__ = lambda self, *args: drafters.append(self) or kept(self, *args)
        draft_ms(pair, "best", repeats=5)
    finally:
        DRAFTERS["best"].__init__ = kept
    assert drafters[0].forwards == 6 * (1 + 1 + LEVELS)
