"""Pace: a flood is turned away before it costs anything, and everybody else is not. On a clock of the tests' own."""

import pytest

from engine.web import pace
from engine.web.pace import Pace, address_of


class Clock:
    now = 0.0


@pytest.fixture
def clock():
    return Clock()


def test_a_burst_is_allowed_and_a_flood_is_not(clock):
    calls = Pace(burst=3, rate=2, now=lambda: clock.now)
    assert [calls.allows("a") for _ in range(5)] == [True] * 3 + [False] * 2
    assert calls.allows("b")
    clock.now += 0.5
    assert [calls.allows("a") for _ in range(2)] == [True, False]
    clock.now += 100
    assert [calls.allows("a") for _ in range(4)] == [True] * 3 + [False]


def test_a_flood_of_names_takes_no_memory(monkeypatch, clock):
    monkeypatch.setattr(pace, "MOST_NAMES", 5)
    calls = Pace(burst=1, rate=0, now=lambda: clock.now)
    assert all(calls.allows(str(number)) for number in range(20)) and len(calls.left) == 5
    assert not calls.allows("19") and calls.allows("0")


def test_on_spaces_the_proxy_says_who_asks(monkeypatch):
    named = {"x-forwarded-for": "6.6.6.6, 1.2.3.4"}
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert address_of(named, "9.9.9.9") == "9.9.9.9"
    monkeypatch.setenv("SPACE_ID", "somebody/treerace")
    assert address_of(named, "9.9.9.9") == "1.2.3.4" and address_of({}, "9.9.9.9") == "9.9.9.9"
