"""Does it pay, for the page: what is refused, what is told, that closing frees all, and the what-if's formula."""

import json
import random
import re
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.measure import racing, verdict, words
from engine.page.screens import requests
from engine.page.screens.pays import (
    MOST_PROMPTS,
    MOST_TOKENS,
    SpeedupModelInputs,
    expected_tokens_per_round,
    measure_whether_speculation_pays,
    predict_speedup,
    solve_acceptance_for_tau,
)
from engine.race import Race
from engine.record.costs import Costs
from helpers.pairs import LETTERS, STOP, tiny_pair

TEXTS = ["Story: Once upon a time", "def add(a, b):\n    return", "The end"]
COSTS = Costs({1: 1.0, 2: 1.1, 4: 1.4, 8: 2.0, 16: 3.6, 64: 12.0}, first_ms=0.3, level_ms=0.2)


def run(prompts=TEXTS, systems=("tree", "lookup"), pair=None, **settings) -> list[dict]:
    pair = pair or tiny_pair(same=True)
    every = measure_whether_speculation_pays(pair, prompts, list(systems), **{"max_new_tokens": 10, **settings})
    return [message for message in every if isinstance(message, dict)]


def test_it_tells_how_far_it_is_and_ends_with_the_commands_figures():
    messages = run([TEXTS[0], "x " * 5000, *TEXTS[1:]])
    first, *between, last = messages
    assert first == {
        "start": True,
        "prompts": 3,
        "systems": 2,
        "done": 0,
        "of": 8,
        "doing": "Trying settings of draft tree",
    }
    assert [message["done"] for message in between] == list(range(1, 9))
    assert [message["doing"] for message in between[1:-1]] == [f"Racing prompt {at} of 3" for at in (1, 1, 2, 2, 3, 3)]
    assert last["end"] is True and last["verdict"] == words.describe_pays_verdict(last)
    assert {row["name"]: row["identical"] for row in last["systems"]} == {"tree": True, "lookup": True}
    assert [each["index"] for each in last["prompts"]] == [0, 2, 3]
    [refused] = last["refused"]
    assert refused["index"] == 1 and "tokens long" in refused["why"] and len(refused["prompt"]) == 160
    best = next(row for row in last["systems"] if row["name"] == last["best"])
    assert last["answer"] == verdict.judge_yes_no_or_only(best) and last["point"]["speedup"] == best["speedup"]
    assert best["interval"] == verdict.bootstrap_interval_of_geometric_mean(
        best["by_prompt"], verdict.draw_bootstrap_indices(3, 0)
    )
    assert last["titles"] == {"tree": "draft tree", "lookup": "prompt lookup"}
    json.dumps(last)


def test_an_acceptance_length_is_estimated_for_every_best_setting():
    end = run(systems=("tree", "auto"), acceptance=2.0)[-1]
    setting = end["systems"][0]["setting"]
    [row] = end["acceptance"]["rows"]
    assert (row["setting"], row["acceptance"]) == (setting, 2.0)
    assert row["speedup"] == pytest.approx(2.0 / row["break_even"])
    assert end["acceptance"]["refused"] == [
        "auto sizes every tree itself, so it has no shape to estimate. Name one, as in tree:4x4x8."
    ]
    assert "acceptance" not in run(systems=("tree",))[-1]


def test_a_constraint_binds_every_text_that_is_raced(monkeypatch):
    lanes, right = [], racing.append_race_to_results

    def keep(raced, race):
        if race.settings.systems[0] == "vanilla":  # not while settings are tried
            lanes.extend(lane.trace for lane in race.lanes)
        right(raced, race)

    monkeypatch.setattr(racing, "append_race_to_results", keep)
    pair = tiny_pair(stop_ids=frozenset({STOP}))
    end = run(systems=("forced", "lookup"), pair=pair, max_new_tokens=16, constraint=LETTERS)[-1]
    assert end["constraint"] == LETTERS and [row["identical"] for row in end["systems"]] == [True, True]
    assert len(lanes) == 9 and all(lane.tokens[-1] == STOP for lane in lanes)
    assert all(re.fullmatch(LETTERS.removeprefix("regex:"), pair.tokenizer.decode(lane.tokens[:-1])) for lane in lanes)
    assert end["systems"][0]["tau"] > 1 and "generate() writes without it" in words.format_pays_report(end)


def test_without_names_every_lossless_system_of_the_pair_is_raced(monkeypatch):
    asked = []
    monkeypatch.setattr(
        racing, "choose_systems", lambda pair, names, constraint: asked.append((names, constraint)) or ["chain"]
    )
    for constraint in ("", LETTERS):
        rows = run(systems=(), pair=tiny_pair(stop_ids=frozenset({STOP})), max_new_tokens=16, constraint=constraint)
        assert [row["name"] for row in rows[-1]["systems"]] == ["chain"] and asked[-1] == (None, constraint)


@pytest.mark.parametrize("phase", ["settings are tried", "generate() writes", "systems race"])
def test_closing_it_frees_everything_in_every_phase(phase, monkeypatch):
    made: list[Race] = []
    monkeypatch.setattr(racing, "Race", lambda *asked, **how: made.append(Race(*asked, **how)) or made[-1])
    work = measure_whether_speculation_pays(tiny_pair(), TEXTS, ["tree"], max_new_tokens=20)

    def writing() -> bool:
        return any(thread.name == "generate" for thread in threading.enumerate())

    for _ in work:
        racing_now = bool(made) and any(lane.trace.steps for lane in made[-1].lanes)
        tried = racing_now and made[-1].settings.systems[0] != "vanilla"
        if {"settings are tried": tried, "generate() writes": writing(), "systems race": racing_now and not tried}[
            phase
        ]:
            break
    work.close()
    assert all(lane.rounds is None for race in made for lane in race.lanes)
    assert not writing()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"prompts": TEXTS[:2]}, "needs 3 to 20 prompts here, got 2. Add some."),
        ({"prompts": TEXTS * 7}, "needs 3 to 20 prompts here, got 21. Leave some out"),
        ({"prompts": "a text"}, "Prompts must be a list of strings."),
        ({"prompts": [*TEXTS, " "]}, "Prompt 4 is empty."),
        ({"max_new_tokens": 73}, "at most 72 new tokens a prompt here, got 73."),
        ({"acceptance": 0.5}, "The acceptance length must be a number of tokens a round"),
        ({"acceptance": "3"}, "The acceptance length must be a number of tokens a round"),
        ({"max_new_tokens": 0}, "Max new tokens must be between"),
        ({"temperature": float("nan")}, "Temperature must be a number"),
        ({"constraint": "xml:<a>"}, "begins with json:"),
        ({"temperature": 1e-38}, "Temperature must be 0 or at least 1e-30"),
        ({"systems": "tree"}, "The systems must be a list of names"),
        ({"systems": [["tree"]]}, "The systems must be a list of names"),
        ({"systems": ["tree"] * 2}, "'tree' is named twice"),
        ({"systems": ["wizard"]}, "Unknown system 'wizard'"),
        ({"systems": ["vanilla"]}, "'vanilla' guesses nothing, so it cannot pay."),
        ({"systems": ["naive"]}, "'naive' keeps no text"),
        ({"systems": [f"tree:{depth}x1x8" for depth in range(1, 12)] + [f"tree:{depth}x2x8" for depth in range(1, 7)]},
         "at most 16 systems here, got 17"),
    ],
)  # fmt: skip
def test_too_much_and_senseless_orders_are_refused_before_they_wait_in_line(changed, sentence):
    asked = {"prompts": TEXTS, "systems": ["tree"], "max_new_tokens": 8, **changed}
    with pytest.raises(ValueError) as refusal:
        requests.build_request_within_token_limit(tiny_pair(), "pays", asked)
    assert sentence in str(refusal.value)


def test_the_largest_order_that_is_let_in_stays_below_the_tokens_of_a_call():
    asked = {"prompts": ["Once upon"] * MOST_PROMPTS, "systems": [], "max_new_tokens": MOST_TOKENS}
    made = requests.build_request_within_token_limit(tiny_pair(), "pays", asked)
    assert made.priority == requests.LONG and MOST_PROMPTS * MOST_TOKENS < made.max_tokens <= requests.MOST_TOKENS
    assert made.cache_bytes == requests.max_cache_bytes_of_race(tiny_pair(), ["Once upon"], MOST_TOKENS, 8)


def test_a_system_that_the_pair_cannot_run_is_refused_with_the_reason():
    pair = replace(tiny_pair(), bigram=None)
    with pytest.raises(ValueError, match="no bigram table"):
        next(measure_whether_speculation_pays(pair, TEXTS, ["nanogpt-tree"], max_new_tokens=4))


# ---- what if


def test_tokens_a_round_are_those_of_many_rounds_and_an_acceptance_is_found_again():
    rolls = random.Random(3)
    for acceptance, depth in ((0.0, 3), (0.4, 1), (0.7, 4), (0.95, 12), (1.0, 5)):
        bursts = []
        for _ in range(20_000):
            accepted = 0
            while accepted < depth and rolls.random() < acceptance:
                accepted += 1
            bursts.append(accepted + 1)
        expected = expected_tokens_per_round(acceptance, depth)
        assert expected == pytest.approx(sum(bursts) / len(bursts), abs=0.12)
        assert solve_acceptance_for_tau(expected, depth) == pytest.approx(acceptance, abs=1e-7)
    assert expected_tokens_per_round(0.5, 2.5) == pytest.approx((1 - 0.5**3.5) / 0.5)


def test_the_speedup_is_that_of_the_formula_by_hand_and_ends_where_nothing_was_measured():
    """Depth 3 with one guess a level: 4 rows take 1.4 ms, three levels at 0.2 of a token 0.6 ms, and E is 1 + .5 + .25 + .125."""
    assert predict_speedup(COSTS, SpeedupModelInputs(0.5, 3, 1, 0.2)) == pytest.approx(1.875 * 1.0 / (1.4 + 0.6))
    assert predict_speedup(COSTS, SpeedupModelInputs(0.5, 3, 1, 0.2, batch=4)) == pytest.approx(
        1.875 * 1.4 / (3.6 + 0.6 * 1.4)
    )
    assert predict_speedup(COSTS, SpeedupModelInputs(0.9, 0, 1, 0.2)) == 1
    assert predict_speedup(COSTS, SpeedupModelInputs(0.5, 3, 5, 0.2, batch=4)) is not None
    assert predict_speedup(COSTS, SpeedupModelInputs(0.5, 3, 5, 0.2, batch=5)) is None  # 80 rows


def test_gains_vanish_as_the_batch_grows():
    gains = [predict_speedup(COSTS, SpeedupModelInputs(0.7, 3, 1, 0.1, batch)) for batch in (1, 2, 4, 8, 16)]
    assert gains == sorted(gains, reverse=True) and gains[0] > 1 > gains[-1]


def test_the_measured_point_is_that_of_the_steps():
    """Two rounds by hand: two levels with three guesses and both accepted, then no guess at all."""
    plain = SimpleNamespace(decode_seconds=0.5, tokens=[1] * 10)
    steps = [
        SimpleNamespace(parents=[-1, 0, 0, 1], burst=[1, 2, 3], seconds={"draft": 0.02}),
        SimpleNamespace(parents=[-1], burst=[1], seconds={}),
    ]
    point = SpeedupModelInputs.from_traces(
        [SimpleNamespace(steps=steps, tokens=[1, 2, 3, 1], target_forwards=2)], [plain]
    )
    assert (point.depth, point.width, point.batch) == (1.0, 1.5, 1)
    assert point.draft == pytest.approx(0.02 / 2 / 0.05) and point.acceptance == pytest.approx(1.0)
    nothing = SpeedupModelInputs.from_traces([SimpleNamespace(steps=steps[1:], tokens=[1], target_forwards=1)], [plain])
    assert (nothing.depth, nothing.width, nothing.draft) == (0.0, 1.0, 0.0) and predict_speedup(COSTS, nothing) == 1
