"""The clock, audited: a made-up clock that only forwards move, and figures recomputed from the events that the page gets."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from engine.models.text import TextStream
from engine.race import WARM_UP_TOKENS, Lane, Race, Settings
from engine.record.trace import PHASES
from engine.rounds import stopwatch
from engine.target import Target
from engine.views import wire
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"
PREFILL, VERIFY, UNSEEN = 8.0, 1.0, 1000.0  # seconds that each of them takes on the made-up clock
ROUNDED = 1e-4  # what is sent has a few digits
LANES = ("vanilla", "tree", "lookup", "chain")


@dataclass
class Clock:
    now: float = 0.0

    def slowed(self, part: type, name: str, seconds: float, monkeypatch) -> None:
        right = getattr(part, name)

        def slow(*arguments):
            self.now += seconds
            return right(*arguments)

        monkeypatch.setattr(part, name, slow)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """Reading a prompt and verifying take time, and so does what must be off the clock: text, records, making lanes and warming up."""
    clock = Clock()
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    clock.slowed(Target, "prefill", PREFILL, monkeypatch)
    clock.slowed(Target, "verify", VERIFY, monkeypatch)
    for part, name in (
        (TextStream, "add"),
        (TextStream, "rest"),
        (Lane, "record"),
        (Lane, "__init__"),
        (Race, "warm_up"),
    ):
        clock.slowed(part, name, UNSEEN, monkeypatch)
    return clock


def streamed(*systems: str, tokens: int = 40, temperature: float = 0.9) -> tuple[list[list[dict]], dict]:
    """The lanes' steps and the result, as a visitor's browser gets them."""
    race = Race(tiny_pair(), Settings(TEXT, systems, temperature=temperature, seed=4, max_new_tokens=tokens))
    messages = [json.loads(event) for event in wire.events(race, batch_seconds=0)]
    steps: list[list[dict]] = [[] for _ in systems]
    for lane, step in (each for message in messages for each in message.get("steps", ())):
        steps[lane].append(step)
    return steps, messages[-1]


@pytest.mark.parametrize("systems", [LANES, LANES[::-1]])
def test_a_lanes_clock_is_its_prefill_and_its_forwards_and_nothing_else(clock, systems):
    """The same for every lane, wherever it stands. No lane is warmer than another on it."""
    steps, result = streamed(*systems)
    for lane, figures in zip(steps, result["lanes"], strict=True):
        assert figures["seconds"] == PREFILL + VERIFY * len(lane)
        assert [step["seconds"]["verify"] for step in lane] == [VERIFY] * len(lane)
        assert [step["seconds"].get("prefill") for step in lane] == [PREFILL, *[None] * (len(lane) - 1)]


@pytest.mark.parametrize("real", [True, False])
def test_figures_are_those_of_the_streamed_events(real, request):
    """Tokens a second and tau, by the raw bursts and seconds, by the lane's times that the page shows, and in the result."""
    if not real:
        request.getfixturevalue("clock")
    steps, result = streamed(*LANES)
    speeds = []
    for lane, figures in zip(steps, result["lanes"], strict=True):
        tokens, seconds = sum(len(step["burst"]) for step in lane), 0.0
        for step in lane:
            assert set(step["seconds"]) <= set(PHASES) and min(step["seconds"].values()) >= 0
            seconds += sum(step["seconds"].values())
            assert step["t"] == pytest.approx(seconds, rel=ROUNDED)  # the page's time of this burst
        assert (figures["tokens"], figures["forwards"]) == (tokens, len(lane))
        assert figures["tau"] == pytest.approx(tokens / len(lane), rel=ROUNDED)
        assert (
            figures["tokens_per_s"]
            == pytest.approx(tokens / seconds, rel=ROUNDED)
            == pytest.approx(tokens / lane[-1]["t"], rel=ROUNDED)
        )
        for phase in ("prefill", "draft", "verify"):
            spent = sum(step["seconds"].get(phase, 0.0) for step in lane)
            assert figures[f"{phase}_share"] == pytest.approx(spent / seconds, rel=ROUNDED)
        speeds.append(tokens / seconds)
    for speed, figures in zip(speeds, result["lanes"], strict=True):
        assert figures["speedup"] == pytest.approx(speed / speeds[0], rel=ROUNDED)
    assert result["speedup"] == pytest.approx(speeds[-1] / speeds[0], rel=ROUNDED)


def test_swapped_lanes_write_and_count_the_same(clock):
    (plain, tree), forth = streamed("vanilla", "tree")
    (tree_again, plain_again), back = streamed("tree", "vanilla")
    for one, other in ((plain, plain_again), (tree, tree_again)):
        for name in ("burst", "pieces", "t", "tokens", "seconds"):
            assert [step[name] for step in one] == [step[name] for step in other]
    assert forth["identical"] is back["identical"] is True
    assert back["speedup"] == pytest.approx(1 / forth["speedup"], rel=ROUNDED)


def test_every_lane_is_warmed_up_alike_and_on_no_clock(monkeypatch):
    """On the same other text, for as many tokens, before the first step of any lane."""
    seen: list[tuple[str, str, int]] = []
    right = Lane.step

    def step(self):
        done = right(self)
        seen.append((self.system.name, self.trace.prompt, len(done.burst)))
        return done

    monkeypatch.setattr(Lane, "step", step)
    race = Race(tiny_pair(), Settings("Question: who?", LANES, max_new_tokens=20))
    steps = race.run()
    next(steps)
    warm, first = seen[:-1], seen[-1]
    assert list(dict.fromkeys(name for name, *_ in warm)) == list(LANES)
    for system in LANES:
        assert sum(count for name, _, count in warm if name == system) == WARM_UP_TOKENS
    assert len({prompt for _, prompt, _ in warm}) == 1 and first[1] == "Question: who?" != warm[0][1]
    assert [len(lane.trace.steps) for lane in race.lanes] == [1, 0, 0, 0]
    assert [lane.clock > 0 for lane in race.lanes] == [True, False, False, False]
    steps.close()
