"""Pace: a flood is turned away before it costs anything, and everybody else is not. On a clock of the tests' own."""

import pytest

from engine.page.web import pace
from engine.page.web.pace import LONGEST, RateLimiter, client_address_of
from helpers.commands import awaited


class Clock:
    now = 0.0


@pytest.fixture
def clock():
    return Clock()


def test_a_burst_is_allowed_and_a_flood_is_not(clock):
    calls = RateLimiter(burst_calls=3, calls_per_second=2)
    calls.now = lambda: clock.now
    assert [calls.book_call_if_allowed_now("a") for _ in range(5)] == [True] * 3 + [False] * 2
    assert calls.book_call_if_allowed_now("b")
    clock.now += 0.5
    assert [calls.book_call_if_allowed_now("a") for _ in range(2)] == [True, False]
    clock.now += 100
    assert [calls.book_call_if_allowed_now("a") for _ in range(4)] == [True] * 3 + [False]


def test_a_flood_of_names_takes_no_memory(monkeypatch, clock):
    monkeypatch.setattr(pace, "MOST_NAMES", 5)
    calls = RateLimiter(burst_calls=1, calls_per_second=0)
    calls.now = lambda: clock.now
    assert all(calls.book_call_if_allowed_now(str(number)) for number in range(20)) and len(calls.left) == 5
    assert not calls.book_call_if_allowed_now("19") and calls.book_call_if_allowed_now("0")


def test_who_reads_faster_waits_for_his_turns_and_others_do_not(clock):
    waits = []

    async def sleep(seconds):
        waits.append(round(seconds, 6))

    async def reads(name, count):
        return [await turns.wait_for_turn(name) for _ in range(count)]

    turns = RateLimiter(burst_calls=3, calls_per_second=2)
    turns.now, turns.sleep = lambda: clock.now, sleep
    assert awaited(reads("a", 5)) == [True] * 5 and waits == [0.5, 1.0]
    assert awaited(reads("b", 3)) == [True] * 3 and len(waits) == 2
    come = awaited(reads("a", 200))
    assert come == [True] * (most := int(2 * LONGEST) - 2) + [False] * (200 - most) and waits[-1] == LONGEST
    clock.now += LONGEST + 1.5
    assert awaited(reads("a", 3)) == [True] * 3 and waits[-1] == LONGEST


def test_a_flood_of_readers_takes_no_memory(monkeypatch):
    monkeypatch.setattr(pace, "MOST_NAMES", 5)
    turns = RateLimiter(burst_calls=1, calls_per_second=1)

    async def read():
        return [await turns.wait_for_turn(str(number)) for number in range(20)]

    assert all(awaited(read())) and len(turns.left) == 5


def test_on_spaces_the_proxy_says_who_asks(monkeypatch):
    named = {"x-forwarded-for": "6.6.6.6, 1.2.3.4"}
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert client_address_of(named, "9.9.9.9") == "9.9.9.9"
    monkeypatch.setenv("SPACE_ID", "somebody/treerace")
    assert client_address_of(named, "9.9.9.9") == "1.2.3.4" and client_address_of({}, "9.9.9.9") == "9.9.9.9"
