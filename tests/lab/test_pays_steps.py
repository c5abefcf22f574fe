"""Pays in steps: `generate()` pauses between tokens and is ended, and all races together are one generator of small steps."""

import threading
import time

import pytest

from engine.measure import peers, racing
from engine.measure.stepped import stepped
from engine.race import Settings
from engine.record.quiet import Quiet
from helpers.decoding import innermost
from helpers.pairs import tiny_pair

PROMPTS = ["Story: Once upon a time", "Story: A cat saw a dog", "Story: Tom and Lily"]
IDS = [5, 7, 11]


def drained(steps) -> tuple[list[Quiet], object]:
    """What the steps yield, and what they return."""
    told = []
    while True:
        try:
            told.append(next(steps))
        except StopIteration as end:
            return told, end.value


def writing() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "generate"]


def test_generate_in_steps_writes_what_it_writes_at_once_and_its_clock_stands_between_steps():
    pair = tiny_pair()
    steps = stepped(pair, IDS, 12, 0.0)
    begun, waited = time.perf_counter(), 0.0
    told = []
    try:
        while True:
            told.append(next(steps))
            time.sleep(0.02)
            waited += 0.02
    except StopIteration as end:
        written = end.value
    assert written.tokens == peers.generated(pair, IDS, 12, 0.0) and len(written.tokens) == 12
    assert len(told) >= 12 and {*told} == {Quiet.STEP}
    assert 0 < written.seconds <= time.perf_counter() - begun - waited
    assert writing() == []


def test_closing_it_ends_generate_at_its_next_token():
    steps = stepped(tiny_pair(), IDS, 200, 0.0)
    next(steps), next(steps)
    assert writing() == ["generate"]
    steps.close()
    assert writing() == []


def test_what_generate_raises_is_raised_here():
    def fail(*_, **__):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        next(stepped(tiny_pair(), IDS, 4, 0.0, fail))
    assert writing() == []


def test_all_races_are_one_generator_whose_steps_are_those_of_races_and_tokens():
    pair, wish = tiny_pair(same=True), Settings("a prompt", max_new_tokens=10)
    told, outcome = drained(racing.steps(pair, PROMPTS, ["tree", "chain"], wish))
    assert told.count(Quiet.PIECE) == racing.races(2, len(PROMPTS)) and told[-1] is Quiet.PIECE
    assert len(told) > 3 * 10 * len(PROMPTS)  # the baseline and generate() alone take a step a token
    assert [len(each.tokens) for each in outcome.written[peers.PLAIN]] == [10, 10, 10]
    assert all(len(lanes) == 3 for lanes in outcome.raced.values())


def test_closing_them_frees_the_race_under_way():
    steps = racing.steps(tiny_pair(same=True), PROMPTS, ["tree"], Settings("a prompt", max_new_tokens=40))
    next(steps)
    race = innermost(steps, "believed").gi_frame.f_locals["race"]
    steps.close()
    assert len(race.lanes) == 3 and all(lane.rounds is None for lane in race.lanes)
