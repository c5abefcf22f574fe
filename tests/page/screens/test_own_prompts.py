"""A visitor's prompts: what a file may hold, what is said when it may not, and a fair race on each prompt."""

import pytest

from engine.measure import racing
from engine.page.screens import own_prompts
from engine.page.screens.own_prompts import (
    ALLOWED,
    LARGEST_FILE,
    MOST_PROMPTS,
    compute_medians_and_totals,
    parse_prompt_file,
    race_system_and_baseline_on_prompts,
)
from engine.race import LONGEST_PROMPT, Race, Settings
from helpers.pairs import tiny_pair

TEXTS = ["Story: Once upon a time", "def add(a, b):\n    return", "The end"]


@pytest.mark.parametrize(
    ("name", "text", "prompts"),
    [
        ("a.txt", "one\n\ntwo", ["one", "two"]),
        ("a.txt", "\ufeffone\r\n \t\r\n\r\n  two\r\n  more \r\n\r\n", ["one", "  two\n  more "]),
        ("README", "only one", ["only one"]),
        ("a.jsonl", '"one"\n{"prompt": "two\\n\\nlines", "id": 7}\n\n', ["one", "two\n\nlines"]),
        ("A.NDJSON", '{"prompt": "ünö"}', ["ünö"]),
    ],
)
def test_a_file_is_read(name, text, prompts):
    assert parse_prompt_file(name, text) == prompts


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", " \n\n\t\n", "a.txt has no prompt in it."),
        ("a.txt", "x\n\n" * (MOST_PROMPTS + 1), "a.txt has 51 prompts; at most 50"),
        ("a.txt", "short\n\n" + "x" * (LONGEST_PROMPT + 1), "Prompt 2 has 20,001 characters; at most 20,000"),
        ("a.txt", "ü" * (LARGEST_FILE // 2 + 1), "a.txt has 1,000,002 bytes; at most 1,000,000"),
        ("a.txt", "half \ud800", "a.txt is not UTF-8"),
        ("a.jsonl", '"one"\n\n{"prompt": }', "Line 3 is no JSON: Expecting value"),
        ("a.jsonl", "[" * 100_000, "Line 1 is nested too deeply"),
        ("a.jsonl", '{"text": "one"}', 'Line 1 has no "prompt". Write'),
        ("a.jsonl", '"one"\n{"prompt": [1, 2]}', "The prompt on line 2 must be a string, got a list"),
        ("a.jsonl", "17", "The prompt on line 1 must be a string, got 17"),
        ("a.jsonl", '"one"\n"  "', "The prompt on line 2 is empty"),
        ("a.jsonl", '"\\ud800"', "Prompt 1 holds half a character"),
        (None, 17, "The file is no text"),
    ],
)
def test_a_bad_file_gets_a_sentence_that_says_what_is_allowed(name, text, words):
    with pytest.raises(ValueError) as caught:
        parse_prompt_file(name, text)
    assert words in str(caught.value) and str(caught.value).endswith(ALLOWED)


@pytest.fixture(autouse=True)
def told_at_every_step(monkeypatch):
    monkeypatch.setattr(own_prompts, "BATCH_SECONDS", 0.0)


def run(prompts, system="tree", pair=None, **settings):
    every = race_system_and_baseline_on_prompts(pair or tiny_pair(same=True), prompts, system, **settings)
    return [message for message in every if isinstance(message, dict)]


def rows(messages):
    return [message["row"] for message in messages if "row" in message]


def test_every_prompt_gets_a_fair_race_of_its_own():
    pair = tiny_pair(same=True)
    messages = run(TEXTS, pair=pair, temperature=0.8, seed=3, max_new_tokens=20)
    assert messages[0] == {"start": True, "prompts": 3, "system": "tree", "title": "draft tree"}
    assert messages[-1] == {"end": True}
    for text, row in zip(TEXTS, rows(messages), strict=True):
        race = Race(pair, Settings(text, ("vanilla", "tree"), temperature=0.8, seed=3, max_new_tokens=20))
        for _ in race.run():
            pass
        lane = race.result()["lanes"][1]
        assert (row["tokens"], row["tau"], row["identical"]) == (lane["tokens"], lane["tau"], True)
        assert row["tau"] > 2 and row["speedup"] == pytest.approx(
            row["tokens"] / row["seconds"] / (row["base_tokens"] / row["base_seconds"])
        )
        assert 0 < row["draft_share"] + row["verify_share"] < 1
    assert rows(messages)[1]["prompt"] == "def add(a, b): return"


@pytest.mark.parametrize(("stays", "words"), [(True, "Disturbed: so it was."), (False, "")])
def test_a_disturbed_race_is_run_once_more_and_said_where_that_was_too(monkeypatch, stays, words):
    made, right = [], Race.result

    def result(race):
        made.extend([race] if race not in made else [])
        return right(race) | {"disturbed": "Disturbed: so it was." if stays or race is made[0] else ""}

    monkeypatch.setattr(Race, "result", result)
    monkeypatch.setattr(racing, "RUNS", 2)
    messages = run(TEXTS[:1], max_new_tokens=12)
    [row] = rows(messages)
    assert len(made) == 2 and row["disturbed"] == words and row["seconds"] == made[1].lanes[1].trace.seconds
    [total] = [message["summary"] for message in messages if "summary" in message]
    assert total["disturbed"] == ("The clocks of 1 of 1 prompts were disturbed twice; ratios vary." if stays else "")
    at = [message["tokens"] for message in messages if "at" in message]
    assert at == sorted(at)  # it never goes back


def test_it_tells_how_far_it_is():
    messages = run(TEXTS[:2], max_new_tokens=12)
    at = [(message["at"], message["tokens"]) for message in messages if "at" in message]
    assert at == sorted(at) and {index for index, _ in at} == {0, 1}
    assert max(tokens for _, tokens in at) == 12


def test_a_prompt_that_does_not_fit_is_a_row_and_not_the_end():
    messages = run(["x" * 200, TEXTS[0]], max_new_tokens=8)
    first, second = rows(messages)
    assert "200 tokens long" in first["refused"] and first["prompt"].endswith("x…") and len(first["prompt"]) == 80
    assert second["tokens"] == 8
    total = [message["summary"] for message in messages if "summary" in message][-1]
    assert (total["raced"], total["refused"], total["tokens"], total["identical"]) == (1, 1, 8, 1)


def test_the_summary_holds_medians_and_totals():
    def row(speedup, tokens, seconds, identical):
        shares = {"tau": speedup, "draft_share": 0.1, "verify_share": 0.5}
        base = {"base_tokens": tokens, "base_seconds": speedup * seconds}
        told = {"identical": identical, "disturbed": ""}
        return {"speedup": speedup, "tokens": tokens, "seconds": seconds, **told, **shares, **base}

    total = compute_medians_and_totals(
        [row(1.0, 10, 1.0, True), row(4.0, 90, 1.0, "law"), row(2.0, 20, 2.0, True), {"refused": "no"}]
    )
    assert (total["speedup"], total["tau"], total["raced"], total["refused"]) == (2.0, 2.0, 3, 1)
    assert (total["tokens"], total["seconds"], total["base_seconds"], total["identical"]) == (120, 4.0, 9.0, 2)
    assert total["speedup_total"] == pytest.approx((120 / 4.0) / (120 / 9.0))
    assert compute_medians_and_totals([{"refused": "no"}])["speedup"] is None


@pytest.mark.parametrize(
    ("prompts", "changed", "words"),
    [
        (TEXTS, {"system": "wizard"}, "Unknown system 'wizard'"),
        (TEXTS, {"max_new_tokens": 0}, "Max new tokens must be between"),
        (TEXTS, {"temperature": float("nan")}, "Temperature must be a number"),
        ([], {}, "The list has no prompt"),
        ("a text", {}, "Prompts must be a list of strings"),
        ([1], {}, "Prompts must be a list of strings"),
        (["x"] * 51, {}, "51 prompts"),
    ],
)
def test_bad_settings_are_refused_before_any_race(prompts, changed, words):
    with pytest.raises(ValueError, match=words):
        next(race_system_and_baseline_on_prompts(tiny_pair(), prompts, **{"system": "tree", **changed}))


def test_closing_it_ends_the_race_under_way():
    messages = race_system_and_baseline_on_prompts(tiny_pair(), TEXTS, "tree", max_new_tokens=100)
    race = None
    for message in messages:
        if message.get("tokens"):
            race = messages.gi_frame.f_locals["each"]
            messages.close()
    assert all(lane.rounds is None for lane in race.lanes) and not all(lane.finished for lane in race.lanes)
