"""Race: the fair clock, settings and their sentences, traces and their round trip, and what a closed race leaves behind."""

import gc
import math
import weakref

import pytest
import torch

from engine.forward.cache import KVCache
from engine.race import LIMITS, Lane, Race, Settings
from engine.record.disturbance import BUSY
from engine.record.trace import first_divergence
from engine.target import Target
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"


def test_the_lane_whose_clock_is_behind_steps_next():
    race = Race(tiny_pair(), Settings(TEXT, ("vanilla", "tree"), max_new_tokens=40))
    clocks = [0.0, 0.0]
    for index, step in race.run():
        running = [i for i in (0, 1) if i == index or not race.lanes[i].finished]
        assert clocks[index] == min(clocks[i] for i in running)
        clocks[index] += step.total_seconds
        assert set(step.seconds) == {"draft", "verify", "accept", "commit"} | (
            {"prefill"} if step.index == 0 else set()
        )
    assert [lane.clock for lane in race.lanes] == pytest.approx([lane.trace.seconds for lane in race.lanes])


@pytest.mark.parametrize("eager", ["", "no graphs here"])
def test_where_forwards_are_graphs_a_lane_warms_up_in_its_own_caches(eager, monkeypatch):
    """They are given back and taken again, so that its own graphs are launched before its clock runs."""
    pair, calls = tiny_pair(), []
    for right in (Lane.open_rounds_at_text_start, Lane.close):

        def noted(lane, right=right):
            calls.append((right.__name__, lane.capacity, lane.trace.max_new_tokens == 40))
            right(lane)

        monkeypatch.setattr(Lane, right.__name__, noted)
    race = Race(pair, Settings(TEXT, ("vanilla",), max_new_tokens=40))
    own = race.lanes[0].capacity
    pair.target.why_eager = eager
    calls.clear()
    race.warm_up()
    if eager:
        [(opened, small, is_own), closed] = calls
        assert (
            (opened, is_own) == ("open_rounds_at_text_start", False)
            and closed == ("close", small, False)
            and small < own
        )
    else:
        opening = "open_rounds_at_text_start"
        assert calls == [("close", own, True), (opening, own, False), ("close", own, False), (opening, own, True)]


def test_every_lane_makes_its_noise_for_itself():
    """The lane that is ahead would make it for all others, on its own clock."""
    race = Race(tiny_pair(), Settings(TEXT, ("vanilla", "tree", "lookup"), temperature=0.9, seed=4, max_new_tokens=5))
    assert len({id(lane.sampling) for lane in race.lanes}) == 3
    assert len({id(lane.sampling.noise) for lane in race.lanes}) == 3
    assert len({lane.sampling.seed for lane in race.lanes}) == 1


@pytest.mark.parametrize("waits", [(1.0, 0.0), (0.0, 1.0)])
def test_a_race_is_busy_whichever_lane_waited(waits):
    race = Race(tiny_pair(), Settings(TEXT, ("vanilla", "tree"), max_new_tokens=5))
    for lane, waited in zip(race.lanes, waits, strict=True):
        lane.clock, lane.waited = 5.0, waited
    assert race.did_threads_wait_too_long is True
    race.lanes[0].waited = race.lanes[1].waited = 5.0 * BUSY
    assert race.did_threads_wait_too_long is False


def test_swapping_the_lanes_changes_no_token():
    pair = tiny_pair()
    texts = []
    for systems in (("vanilla", "tree"), ("tree", "vanilla")):
        race = Race(pair, Settings(TEXT, systems, temperature=0.9, seed=4, max_new_tokens=50))
        for _ in race.run():
            pass
        assert race.result()["identical"] is True
        texts.append(race.lanes[0].trace.tokens)
    assert texts[0] == texts[1]


def test_another_seed_is_another_text():
    pair, texts = tiny_pair(), set()
    for seed in range(3):
        race = Race(pair, Settings(TEXT, ("vanilla",), temperature=1.0, seed=seed, max_new_tokens=20))
        texts.update(tuple(step.burst) for _, step in race.run() if step.index < 5)
    assert len(texts) > 5


def test_figures_of_a_race():
    race = Race(tiny_pair(same=True), Settings(TEXT, ("vanilla", "tree"), max_new_tokens=33))
    for _ in race.run():
        pass
    result = race.result()
    plain, tree = result["lanes"]
    assert (plain["tokens"], plain["forwards"], plain["tau"]) == (33, 33, 1.0)
    assert tree["tokens"] == 33 and tree["tau"] == 33 / tree["forwards"] > 2
    assert result["speedup"] == pytest.approx(plain["seconds"] / tree["seconds"])
    assert 0 < tree["draft_share"] < 1 and 0 < tree["verify_share"] < 1
    assert result["divergence"] is None


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_targets_own_probabilities_are_those_of_transformers(temperature):
    """Of every node given its parent's text, and of the bonus given the path's, by a plain forward over that text."""
    pair = tiny_pair(same=True)
    race = Race(pair, Settings(TEXT, ("tree",), temperature=temperature, seed=3, max_new_tokens=12))
    text, checked = list(pair.tokenizer(TEXT)["input_ids"]), 0

    def after(tokens: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return (pair.target.model(torch.tensor([tokens])).logits[0, -1] / (temperature or 1)).softmax(-1)

    for _, step in race.run():
        paths = [text]
        for node in range(1, len(step.tokens)):
            above = paths[step.parents[node]]
            assert step.p[node] == pytest.approx(float(after(above)[step.tokens[node]]), abs=1e-5)
            paths.append([*above, step.tokens[node]])
        kept = paths[step.path[-1]] if step.path else text
        assert step.bonus_p == pytest.approx(float(after(kept)[step.bonus]), abs=1e-5)
        checked, text = checked + len(step.path), text + step.burst
    assert checked


def test_draft_forwards_are_those_of_the_step():
    race = Race(tiny_pair(), Settings(TEXT, ("tree",), depth=3, max_new_tokens=30))
    steps = [step for _, step in race.run()]
    assert len(steps) > 3 and max(step.draft_forwards for step in steps) <= 4
    assert race.lanes[0].trace.draft_forwards == sum(step.draft_forwards for step in steps)


def test_divergence_is_found_where_it_is():
    assert first_divergence([1, 2, 3], [1, 2, 3]) is None
    assert first_divergence([1, 2, 3], [1, 5, 3]) == 1
    assert first_divergence([1, 2], [1, 2, 3]) == 2


def test_a_closed_race_frees_its_caches():
    race = Race(tiny_pair(), Settings(TEXT, max_new_tokens=60))
    steps = race.run()
    next(steps)
    caches = [weakref.ref(found) for found in gc.get_objects() if type(found) is KVCache]
    assert len(caches) >= 2
    steps.close()
    gc.collect()
    assert [cache() for cache in caches] == [None] * len(caches)


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


ALL_RULES = ("vanilla", "tree", "chain", "specinfer", "spectr", "dyspec", "naive", "medusa-typical", "auto")


@pytest.mark.parametrize("name", ALL_RULES)
@pytest.mark.parametrize(
    ("value", "where"),
    [(math.nan, (-1, 5)), (math.inf, (0, 5)), (-math.inf, 0), (math.nan, 0)],
    ids=["one NaN", "plus infinity", "minus infinity alone", "NaN alone"],
)
def test_logits_that_are_no_distribution_end_the_race_with_a_sentence(value, where, name, pair, monkeypatch):
    """A lane without drafts too, whether it is the first or not. No identity is claimed of such a text."""
    right, calls = Target.verify, []

    def verify(self, tree):
        logits, features = right(self, tree)
        calls.append(tree)
        if len(calls) > 30:
            logits[where] = value
        return logits, features

    monkeypatch.setattr(Target, "verify", verify)
    race = Race(pair, Settings(TEXT, (name, "vanilla"), temperature=0.8, max_new_tokens=60))
    with pytest.raises(ValueError, match=r"tiny random pair answered NaN .*token \d+,"):
        list(race.run())


def test_minus_infinity_for_a_token_rules_it_out(monkeypatch):
    right = Target.verify

    def verify(self, tree):
        logits, features = right(self, tree)
        logits[:, 60:] = -math.inf
        return logits, features

    monkeypatch.setattr(Target, "verify", verify)
    race = Race(tiny_pair(), Settings(TEXT, ("vanilla", "tree"), temperature=1.0, max_new_tokens=30))
    list(race.run())
    assert race.result()["identical"] is True and max(race.lanes[0].trace.tokens) < 60


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"prompt": ""}, "The prompt is empty"),
        ({"prompt": " \n"}, "The prompt is empty"),
        ({"prompt": "x" * 100_000}, "The prompt has 100,000 characters; at most"),
        ({"depth": 0}, "Depth must be between 1 and 12, got 0"),
        ({"depth": 999}, "Depth must be between 1 and 12, got 999"),
        ({"depth": 2.5}, "Depth must be a whole number, got 2.5"),
        ({"width": 0}, "Width must be between 1 and 16, got 0"),
        ({"nodes": 1000}, "Nodes must be between 2 and 64, got 1,000"),
        ({"temperature": 1e-38}, "Temperature must be 0 or at least 1e-30, got 1e-38"),
        ({"temperature": -1}, "Temperature must be between 0.0 and 5.0, got -1"),
        ({"temperature": math.nan}, "Temperature must be a number between 0.0 and 5.0, got nan"),
        ({"temperature": None}, "Temperature must be a number between 0.0 and 5.0, got null"),
        ({"max_new_tokens": 0}, "Max new tokens must be between 1 and 900, got 0"),
        ({"seed": -4}, "Seed must be between 0 and"),
        ({"systems": ("vanilla", "magic")}, "Unknown system 'magic'. Available: vanilla, tree"),
        ({"systems": ("vanilla", "magic:3x2x8")}, "Unknown system 'magic'"),
        ({"systems": ("vanilla", "tree:3x2")}, "Unknown system 'tree:3x2'"),
        ({"systems": ("vanilla", "tree:30x2x8")}, "Depth must be between 1 and 12, got 30"),
        ({"systems": ("vanilla", "tree:3x2x999")}, "Nodes must be between 2 and 64, got 999"),
    ],
)
def test_bad_settings_get_a_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings(**{"prompt": TEXT, **settings})


def test_systems_of_one_race_may_have_shapes_of_their_own():
    race = Race(
        tiny_pair(),
        Settings(TEXT, ("vanilla", "tree:3x2x8", "tree:2x1x3", "bigram/kary/token_match:1x5x2"), max_new_tokens=9),
    )
    list(race.run())
    traces = [lane.trace for lane in race.lanes]
    assert [(trace.depth, trace.width, trace.nodes) for trace in traces[1:]] == [(3, 2, 8), (2, 1, 3), (1, 5, 2)]
    assert max(len(step.tokens) for step in traces[2].steps) == 3
    assert race.result()["identical"] is True
    given = Race(tiny_pair(), Settings(TEXT, ("vanilla", "tree:3x2x8", "tree"), depth=1))
    assert [lane.trace.depth for lane in given.lanes[1:]] == [3, 1]  # a name that says its shape keeps it


def test_the_limits_themselves_are_allowed():
    for name, (least, most) in LIMITS.items():
        for value in (least, most):
            assert getattr(Settings(TEXT, **{name: value}), name) == value


def test_a_prompt_beyond_the_context_window_is_refused():
    with pytest.raises(ValueError, match="holds 160 and must leave room"):
        Race(tiny_pair(), Settings("x" * 500))


def test_a_mix_by_hand_races_and_an_unsound_one_is_refused_with_the_reason(embedded):
    race = Race(
        embedded, Settings("Story: A fox", ("vanilla", "model/kary/token_match"), depth=2, width=2, max_new_tokens=16)
    )
    for _ in race.run():
        pass
    assert race.result()["identical"] is True
    with pytest.raises(ValueError, match="would bias the output"):
        Settings("Story: A fox", ("vanilla", "model/kary/speculative"))
    with pytest.raises(ValueError, match="Unknown drafter 'oracle'"):
        Settings("Story: A fox", ("oracle/kary/token_match",))
    with pytest.raises(ValueError, match="Unknown system 'kary/token_match'"):
        Settings("Story: A fox", ("kary/token_match",))


def test_a_lane_is_excused_by_the_weaker_promise_of_the_two(embedded):
    """A rule that keeps the distribution only may differ from plain decoding on either side; nothing excuses it at T = 0."""

    def identical(*systems: str, temperature: float) -> bool | str:
        race = Race(embedded, Settings("Story: A fox", systems, temperature=temperature, max_new_tokens=32))
        for _ in race.run():
            pass
        return race.result()["identical"]

    assert identical("vanilla", "chain", temperature=1.0) == identical("chain", "vanilla", temperature=1.0) == "law"
    assert identical("naive", "tree", temperature=1.0) == "lossy"
    assert identical("naive", "dyspec", temperature=0.0) is True
