"""What the page draws and says, from hand-made steps: no model, no page."""

import json
import subprocess
import sys

import pytest

from engine.record.race_file import Record
from engine.record.trace import Trace
from engine.views import wire
from engine.views.layout import layout
from engine.views.sentence import estimate, quoted, sentence
from helpers.paths import ROOT
from helpers.traces import PARENTS, FakeRace, make_step, one_node, race_of

# ---- layout


def test_the_first_child_continues_its_parents_row():
    assert layout(PARENTS) == ([0, 1, 1, 2, 2, 2], [0, 0, 2, 0, 1, 2])


@pytest.mark.parametrize(
    "parents",
    [[-1], [-1, 0, 1, 2, 3], [-1] + [0] * 20, [-1, 0, 1, 0, 2, 3, 0, 5, 5, 1], [-1] + [i // 2 for i in range(63)]],
)
def test_no_two_nodes_share_a_place_and_siblings_keep_their_order(parents):
    columns, rows = layout(parents)
    assert len(set(zip(columns, rows, strict=True))) == len(parents)
    for node, parent in enumerate(parents[1:], 1):
        assert columns[node] == columns[parent] + 1 and rows[node] >= rows[parent]
        assert all(rows[node] > rows[other] for other in range(1, node) if parents[other] == parent)


@pytest.mark.parametrize("parents", [[0], [-1, 1], [-1, -1], [-1, 2, 0]])
def test_layout_refuses_what_is_no_tree(parents):
    with pytest.raises(ValueError, match="cannot have parent"):
        layout(parents)


# ---- sentence


def test_a_path_that_used_up_its_branch():
    assert sentence(make_step()) == (
        "5 guesses, 2 accepted: “a little”, then the target's own “fox”. The path reached the tree's last level."
    )


def test_a_branch_shorter_than_the_tree():
    short = make_step(path=[2], burst=[12, 99], parents=[-1, 0, 0, 1, 1, 3])
    assert sentence(short).endswith("The path reached the end of its branch.")


def test_a_bonus_that_no_branch_had():
    step = make_step(path=[1], burst=[11, 99])
    assert sentence(step).endswith("then the target's own “fox”. The target wanted “fox” and no branch had it.")


def test_a_bonus_that_a_branch_had_is_not_called_missing():
    """A speculative rule may turn a branch down and still draw its token from the residual of a twin."""
    assert "no branch had it" not in sentence(make_step(path=[1], burst=[11, 14], bonus=14))


def test_nothing_accepted():
    assert sentence(make_step(path=[], burst=[99])).startswith("5 guesses, none accepted, then the target's own “fox”.")


def test_the_baseline_has_words_of_its_own():
    assert sentence(one_node(burst=[99])) == "No guesses: one forward of the target, one token, “fox”."


@pytest.mark.parametrize(
    ("end", "words"),
    [("stop", "The stop token ended"), ("length", "The length limit ended"), ("context", "context window")],
)
def test_how_the_text_ended(end, words):
    assert words in sentence(make_step(end=end))
    assert words in sentence(one_node(burst=[99], end=end))


def test_a_cut_burst_has_no_bonus():
    cut = sentence(make_step(burst=[11], pieces=[" a"], end="length"))
    assert cut == "5 guesses, 2 accepted, 1 kept: “a”. The length limit ended the text."


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" fox", "“fox”"), ("\n\n", "“⏎⏎”"), ("  ", "“␣␣”"), ("", "“…”"), ("\tx", "“⇥x”"), ("<b>", "“<b>”")],
)
def test_whitespace_does_not_vanish_in_quotes(text, shown):
    assert quoted(text) == shown


# ---- the drafter's view


def test_the_estimate_names_the_guess_that_drafter_and_target_saw_most_differently():
    """Node 5 differs more, but the target never came to judge it."""
    assert estimate(make_step()) == "The drafter gave “big” 40 %, the target 10 %."


def test_without_a_guess_there_is_no_estimate():
    assert estimate(one_node()) == "Nothing was guessed in this step."
    assert estimate(make_step(verdicts=["root", *["unreached"] * 5])) == "Nothing was guessed in this step."


@pytest.mark.parametrize(
    ("q", "words"), [(1.0, "100 %"), (0.9999, "over 99 %"), (0.995, "over 99 %"), (0.0001, "under 1 %"), (0.0, "0 %")]
)
def test_rounding_claims_no_certainty(q, words):
    step = make_step(q=[1.0, q, 0.3, 0.4, 0.5, 0.7], p=[1.0, 0.5, 0.3, 0.4, 0.5, 0.7])
    assert estimate(step) == f"The drafter gave “a” {words}, the target 50 %."


# ---- wire


def test_every_step_arrives_once_in_order_and_the_clocks_add_up():
    messages = [json.loads(each) for each in wire.events(race_of(20), batch_seconds=0)]
    assert [message["seq"] for message in messages] == list(range(1, len(messages) + 1))
    assert len({message["run"] for message in messages}) == 1
    for lane in (0, 1):
        arrived = [step for message in messages for at, step in message.get("steps", []) if at == lane]
        assert [step["index"] for step in arrived] == list(range(20))
        assert [step["t"] for step in arrived] == pytest.approx([0.005 * (index + 1) for index in range(20)])


def test_the_first_string_says_what_races_and_the_last_one_how_it_went():
    messages = [json.loads(each) for each in wire.events(race_of(20))]
    first, last = messages[0], messages[-1]
    assert first["start"] and [system["title"] for system in first["systems"]] == ["Vanilla", "Tree"]
    trace = json.loads(Trace("tree", "a pair", "a machine", "fp32", "Once", [1, 2], 0.0, 3, 4, 4, 8, 40).to_json())
    del trace["steps"]
    assert first["systems"][1]["trace"] == trace
    assert (
        last["end"] and last["identical"] is False and [lane["name"] for lane in last["lanes"]] == ["vanilla", "tree"]
    )
    assert not any("end" in message for message in messages[:-1])


def test_the_first_string_says_what_forwards_cost_by_lane():
    """Numbers of nodes are strings there, as all keys of JSON are."""
    first, *others = [json.loads(each) for each in wire.events(race_of(20))]
    curve = {"1": 2, "2": 2.1, "4": 2.3, "8": 2.8, "16": 4, "64": 9}
    assert [system["costs"] for system in first["systems"]] == [
        {"verify_ms": curve, "first_ms": 0, "level_ms": 0},
        {"verify_ms": curve, "first_ms": 0.51, "level_ms": 0.4},
    ]
    assert not any("systems" in message for message in others)


def test_costs_are_known_before_the_lanes_run():
    race = race_of(3)
    asked = []
    known = race.record()
    race.record = lambda: asked.append(len(race.lanes[0].trace.steps)) or known
    list(wire.events(race))
    assert asked == [0]


def test_a_short_race_still_starts_and_ends():
    messages = [json.loads(each) for each in wire.events(race_of(1))]
    assert messages[0]["start"] and messages[-1]["end"] and len(messages) == 2


def test_the_strings_are_strict_json():
    """Python writes NaN and Infinity by default; a browser's JSON.parse throws on both."""
    strings = list(wire.events(FakeRace([(0, make_step(bonus_p=float("nan"))), (1, make_step())])))
    assert not any("NaN" in each or "Infinity" in each for each in strings)
    assert json.loads(strings[0])["steps"][0][1]["bonus_p"] is None


def test_a_race_that_is_over_is_one_event_in_the_order_of_the_clocks():
    race = race_of(6)
    live = [json.loads(each) for each in wire.events(race)]
    event = json.loads(wire.replay(Record(race.record().lanes, "2026-01-31")))
    assert event["start"] and event["end"] and event["seq"] == 1 and event["recorded"] == "2026-01-31"
    assert event["systems"] == live[0]["systems"] and event["lanes"] == live[-1]["lanes"]
    assert event["steps"] == [step for message in live for step in message.get("steps", [])]


def test_closing_the_events_closes_the_race():
    race = race_of(50)
    stream = wire.events(race, batch_seconds=0)
    next(stream)
    stream.close()
    assert race.closed


def test_a_step_for_the_page_places_the_bonus_behind_the_path():
    step = wire.page_step(make_step(), 0.25)
    assert (step["t"], step["x"][-1], step["y"][-1]) == (0.25, 3, 1)
    assert (step["has_bonus"], step["bonus"], step["bonus_text"], step["bonus_p"]) == (True, 99, " fox", 0.5)
    assert step["score"] == make_step().score and "“big”" in step["estimate"]
    assert len(step["x"]) == len(PARENTS) + 1


def test_a_cut_step_for_the_page_has_no_bonus():
    step = wire.page_step(make_step(burst=[11], pieces=[" a"], end="length"), 0.25)
    assert step["has_bonus"] is False and len(step["x"]) == len(PARENTS)


@pytest.mark.parametrize(
    ("seconds", "factor"), [(0.01, 10), (0.7, 10), (1.5, 4), (2.5, 4), (4.0, 1), (9.0, 1), (500.0, 1)]
)
def test_fast_races_are_slowed_down_to_be_watched(seconds, factor):
    assert wire.slowdown(seconds) == factor


def test_views_need_neither_torch_nor_gradio():
    code = "import sys, engine.views.wire; sys.exit(bool({'torch', 'gradio', 'plotly', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
