"""The clock, audited: made-up clocks that only forwards or only parts move, and figures recomputed from what the page gets."""

import inspect
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from engine.acceptance import ACCEPTANCES
from engine.batch import decode_batch_round_by_round
from engine.contracts import NO_GUESSES
from engine.drafters import DRAFTERS
from engine.forward.batch import SharedForwardBatch
from engine.forward.runner import Runner
from engine.measure.repeated import RepeatedRace
from engine.models.text import TokenTextStream
from engine.nets.dflash import DFlash
from engine.nets.dspark import DSpark
from engine.policies import POLICIES
from engine.race import WARM_UP_TOKENS, Lane, Race, Settings
from engine.record.trace import PHASES
from engine.rounds import round as rounds_on_host
from engine.rounds.round import HostRoundRunner
from engine.sampling import Sampling
from engine.systems import can_feed_policy, is_sound_policy_for_acceptance, resolve_system_name
from engine.target import Target
from helpers.learned import block_net
from helpers.pairs import tiny_llama, tiny_pair
from helpers.traces import events

TEXT = "Story: Once upon a time"
PREFILL, VERIFY, UNSEEN = 8.0, 1.0, 1000.0  # seconds that each of them takes on the made-up clock
ROUNDED = 1e-4  # what is sent has a few digits
LANES = ("vanilla", "tree", "lookup", "chain")
OFF_THE_CLOCK = (
    (TokenTextStream, "add_token_and_take_text"),
    (TokenTextStream, "flush_held_text"),
    (Lane, "build_step_from_round"),
    (Lane, "__init__"),
    (Race, "warm_up"),
)


def mixes() -> list[str]:
    """Every drafter with the policies that ask it in ways of their own, and every policy with every rule that it fits, once."""
    every = [
        (d, p, r)
        for d in DRAFTERS
        for p in POLICIES
        for r in ACCEPTANCES
        if can_feed_policy(d, p) and is_sound_policy_for_acceptance(p, r)
    ]
    asks = {(d, p): (d, p, r) for d, p, r in every if p in ("auto", "best_first") or POLICIES[p].required_capability}
    judged = {(p, r): (d, p, r) for d, p, r in every if DRAFTERS[d].guess_origin != NO_GUESSES and r != "token_match"}
    grown = {p: (d, p, r) for d, p, r in every if DRAFTERS[d].guess_origin != NO_GUESSES and r == "token_match"}
    return sorted({"/".join(mix) for found in (asks, judged, grown) for mix in found.values()})


@dataclass
class Clock:
    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now

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
    monkeypatch.setattr(rounds_on_host, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    clock.slowed(Target, "prefill_and_return_features", PREFILL, monkeypatch)
    clock.slowed(Target, "verify", VERIFY, monkeypatch)
    for part, name in OFF_THE_CLOCK:
        clock.slowed(part, name, UNSEEN, monkeypatch)
    return clock


def streamed(*systems: str, tokens: int = 40, temperature: float = 0.9) -> tuple[list[list[dict]], dict]:
    """The lanes' steps and the result, as a visitor's browser gets them."""
    asked = Settings(TEXT, systems, temperature=temperature, seed=4, max_new_tokens=tokens)
    race = RepeatedRace(tiny_pair(), asked, is_device_uncontested=lambda: False)
    messages = [json.loads(event) for event in events(race, batch_seconds=0)]
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
        named = ("prefill_share", "draft_share", "verify_share", "other_share")
        assert sum(figures[name] for name in named) == pytest.approx(1.0, rel=ROUNDED)
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


# ---- what parts spend

# The phase that pays for a call of a round, and for all that happens inside it.
PHASE = {
    ("target", "prefill_and_return_features"): "prefill",
    ("drafter", "begin"): "prefill",
    ("policy", "grow"): "draft",
    ("target", "verify"): "verify",
    ("rule", "decide"): "accept",
    ("target", "commit"): "commit",
    ("drafter", "observe_target_logits"): "commit",
    ("drafter", "commit"): "commit",
    ("policy", "learn_from_accepted_path"): "commit",
    ("policy", "explain_unused_nodes"): "commit",
}
FREE = ("build_tokens_positions_and_node_mask",)  # what the target is asked, which a batch's own forward pays for


@dataclass
class Ledger:
    """What one lane's parts spent on the clock since it was last read: seconds by phase, and how often each call was made."""

    clock: Clock
    seconds: Counter = field(default_factory=Counter)
    calls: Counter = field(default_factory=Counter)
    phase: str = ""  # of the call that is under way

    def watch(self, rounds: HostRoundRunner) -> None:
        """Gives every call of the rounds' parts seconds of its own, whole numbers so that sums are exact."""
        for role in ("target", "drafter", "policy", "rule"):
            part = getattr(rounds, role)
            for name, _ in inspect.getmembers(type(part), inspect.isfunction):
                if not name.startswith("_") and name not in FREE:
                    setattr(part, name, self.slowed(role, name, getattr(part, name)))

    def slowed(self, role: str, name: str, right):
        price = float(1 + sum(map(ord, role + name)) % 97)

        def slow(*arguments, **named):
            outermost = not self.phase
            if outermost:
                self.phase = PHASE[role, name]
                self.calls[role, name] += 1
            self.clock.now += price
            self.seconds[self.phase] += price
            try:
                return right(*arguments, **named)
            finally:
                self.phase = "" if outermost else self.phase

        return slow

    def read(self) -> tuple[dict[str, float], Counter]:
        """Seconds by phase and calls since the last reading."""
        found = dict(self.seconds), self.calls
        self.seconds, self.calls = Counter(), Counter()
        return found


@pytest.fixture(scope="module")
def pair():
    """A tiny pair with a net for every drafter. The blocks' nets read the fifth layer of their target."""
    made = tiny_pair()
    nets = {**made.learned, "dflash": block_net(DFlash), "dspark": block_net(DSpark)}
    return replace(made, target=Runner(tiny_llama(0, layers=6)), learned=nets)


@pytest.mark.parametrize("mix", mixes())
def test_what_a_part_spends_is_on_its_lanes_clock_all_of_it_and_once(mix, pair, monkeypatch):
    """Every call of a round takes made-up seconds: they are in the phase that the call belongs to, and nothing else is.

    Costs are measured before, on the real clock.
    """
    race = Race(pair, Settings(TEXT, (mix, "vanilla"), depth=3, width=2, nodes=8, temperature=0.8, max_new_tokens=24))
    race.to_record()
    spent, books = Clock(), []
    monkeypatch.setattr(rounds_on_host, "time", spent)
    monkeypatch.setattr(Race, "warm_up", lambda race: None)
    for lane in race.lanes:
        books.append(Ledger(spent))
        books[-1].watch(lane.rounds)
    clocks = [0.0, 0.0]
    for at, step in race.run():
        seconds, calls = books[at].read()
        once = [key for key, phase in PHASE.items() if phase != "prefill" or step.index == 0]
        assert calls == Counter(once)
        assert step.seconds == seconds
        clocks[at] += sum(seconds.values())
        assert race.lanes[at].clock == clocks[at]
    assert [lane.trace.seconds for lane in race.lanes] == clocks and sum(clocks) == spent.now


@pytest.mark.parametrize("name", ["vanilla", "tree", "eagle", "lookup", "recycling", "auto"])
def test_a_batchs_clock_is_what_its_parts_and_its_forwards_spend(name, pair, monkeypatch):
    """A sequence pays for its own parts and for its share of every forward that it was in; together that is the whole clock."""
    list(
        decode_batch_round_by_round(pair, resolve_system_name(name), [[1, 2]], [Sampling()], 2)
    )  # costs are measured before, on the real clock
    spent, books = Clock(), []
    monkeypatch.setattr(rounds_on_host, "time", spent)
    born, forward, sizes = HostRoundRunner.__init__, SharedForwardBatch.forward, []

    def watched(rounds, *parts):
        born(rounds, *parts)
        books.append(Ledger(spent))
        books[-1].watch(rounds)

    def slow(batch, asked):
        spent.now += 12.0
        sizes.append(len(asked))
        return forward(batch, asked)

    monkeypatch.setattr(HostRoundRunner, "__init__", watched)
    monkeypatch.setattr(SharedForwardBatch, "forward", slow)
    prompts, found = [[1, 2, 3], [9, 8], [4] * 20], {}
    for number, done in decode_batch_round_by_round(
        pair, resolve_system_name(name), prompts, [Sampling(0.8, seed=each) for each in range(3)], 20
    ):
        found.setdefault(number, Counter()).update(done.seconds)
        assert done.seconds["verify"] == 12.0 / sizes[-1]
    for number, seconds in found.items():
        own, _ = books[number].read()
        verified = seconds.pop("verify")
        assert seconds == own and verified > 0
        found[number] = sum(own.values()) + verified
    assert sum(found.values()) == spent.now and {1, 2, 3} >= set(sizes) >= {3}
