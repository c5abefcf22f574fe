"""The curves of Learn: a point for every place, what they say in words, which trees are drawn, and the file that is shipped."""

import json

import pytest

from engine.measure.curves import batches, curves, findings
from engine.measure.curves.curves import TOKENS, measure_curve_in_steps, select_steps_where_second_gains_most
from engine.measure.options import ASSETS
from engine.page.screens.requests import build_request_within_token_limit
from engine.record.trace import Trace
from helpers.pairs import tiny_pair
from helpers.traces import make_step

TEXT = "Story: Once upon a time"
PLACES = {"nodes": [2, 4], "temperature": [0.0, 0.8], "chain": [2, 4], "batch": [1, 3]}
LINES = {"nodes": 1, "temperature": 3, "chain": 4, "batch": 2}


@pytest.fixture
def short(monkeypatch):
    """Curves of two places each, on one short text."""
    monkeypatch.setattr(curves, "NODES", (2, 4))
    monkeypatch.setattr(curves, "TEMPERATURES", (0.0, 0.8))
    monkeypatch.setattr(curves, "EQUAL", (2, 4))
    monkeypatch.setattr(curves, "SIZES", (1, 3))
    monkeypatch.setattr(curves, "DRAWN", (2, 4))
    monkeypatch.setattr(batches, "RUNS", 1)
    monkeypatch.setattr(curves, "TOKENS", dict.fromkeys(TOKENS, 8))
    monkeypatch.setattr(curves, "load_curve_prompts_by_kind", lambda: dict.fromkeys(("easy", "hard", "each"), (TEXT,)))
    monkeypatch.setattr(curves, "load_all_page_prompts", lambda: [TEXT])


@pytest.mark.parametrize("curve", TOKENS)
def test_a_curve_has_a_point_for_every_place_of_every_line(short, curve):
    start, *_, end = (each for each in measure_curve_in_steps(tiny_pair(same=True), curve) if isinstance(each, dict))
    assert start["start"] and [line["points"] for line in start["lines"]] == [[]] * LINES[curve]
    assert end["end"] and end["done"] == 1.0 and end["finding"].endswith((".", "did."))
    for line in end["lines"]:
        assert [point["x"] for point in line["points"]] == PLACES[curve]
        assert all(
            point["tau"] >= 1 and point["speedup"] > 0 and point["identical"] is True for point in line["points"]
        )
    roots = {(tree["step"]["position"], tree["step"]["tokens"][0]) for tree in end["trees"]}
    assert len(roots) == (1 if curve in ("nodes", "chain") else 0)  # they stand at one place of one text
    assert all(len(tree["step"]["tokens"]) <= tree["nodes"] for tree in end["trees"])


def test_a_batchs_tokens_a_second_are_those_of_both_sides(short):
    *_, end = (each for each in measure_curve_in_steps(tiny_pair(same=True), "batch") if isinstance(each, dict))
    for point in end["lines"][0]["points"]:
        assert point["speedup"] == pytest.approx(point["tokens_per_s"] / point["plain_tokens_per_s"])


def test_a_curve_that_is_not_there_is_refused_and_one_that_is_says_what_it_takes():
    pair = tiny_pair()
    with pytest.raises(ValueError, match=r"There is no curve 'speed'\. Available: nodes, temperature, chain, batch"):
        build_request_within_token_limit(pair, "curve", {"curve": "speed"})
    for curve in TOKENS:
        assert 0 < build_request_within_token_limit(pair, "curve", {"curve": curve}).max_tokens <= 60_000


def points(xs, taus, speeds):
    return [{"x": x, "tau": tau, "speedup": speed} for x, tau, speed in zip(xs, taus, speeds, strict=True)]


def test_the_peak_is_named_and_what_is_left_behind_it():
    line = {"title": "draft tree", "text": "", "points": points([2, 8, 64], [1.5, 4, 6], [1.4, 2.6, 0.7])}
    said = findings.describe_node_count_finding([line])
    assert said.startswith("Speed peaks at 8 nodes with 2.6× plain decoding’s.")
    assert "from 4.0 to 6.0" in said and "0.7× is left" in said
    climbing = {**line, "points": points([2, 8], [1.5, 4], [1.4, 2.6])}
    assert (
        findings.describe_node_count_finding([climbing])
        == "Speed peaks at 8 nodes with 2.6× plain decoding’s. It still climbs there."
    )


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ([2.0, 2.0, 2.0], "They cross: the wide writes more tokens a pass than the chain from T = 0.5 on."),
        ([1.0, 1.0, 1.0], "The chain writes more tokens a pass than the wide at every temperature."),
        ([9.0, 9.0, 9.0], "The wide writes more tokens a pass than the chain at every temperature."),
        ([9.0, 1.0, 9.0], "The wide writes more tokens a pass than the chain at 2 of 3 temperatures."),
    ],
)
def test_where_tree_and_chain_cross_is_said(tree, words):
    heats = [0.0, 0.5, 1.0]
    taus = {"chain": [3.0, 1.5, 1.2], "wide": tree, "deep": [3.0, 1.4, 2.0]}
    lines = [{"title": name, "points": points(heats, found, [1, 1, 1])} for name, found in taus.items()]
    assert findings.describe_temperature_finding(lines).startswith(words)
    assert findings.describe_temperature_finding(lines).endswith(
        "The deep writes at least as many as the chain at 2 of 3 temperatures."
    )


def test_the_size_at_which_a_batch_loses_is_named():
    lines = [
        {"title": "tree", "points": points([1, 8, 64], [4, 4, 4], [2.0, 1.1, 0.6])},
        {"title": "auto", "points": points([1, 8, 64], [4, 3, 1.5], [2.1, 1.4, 1.02])},
    ]
    said = findings.describe_batch_size_finding(lines)
    assert "the tree is slower from 64 sequences on" in said and "the auto still has 1.0× at 64" in said
    even = [{"title": "tree", "points": points([1, 8, 64], [4, 3, 2], [2.0, 0.998, 0.9])}]
    assert "slower from 64 sequences on" in findings.describe_batch_size_finding(
        even
    )  # what clocks cannot tell apart is no loss


def trace(*steps) -> Trace:
    made = Trace("tree", "a pair", "a machine", "fp32", "Once", [1, 2], 0.0, 0, 4, 4, 8, 40)
    made.steps.extend(steps)
    return made


def test_drawn_steps_stand_where_the_second_one_wins_most():
    chain = trace(make_step(position=7, burst=[11]), make_step(position=9, burst=[11]))
    tree = trace(make_step(position=7, burst=[11, 14]), make_step(position=9, burst=[11, 14, 99]))
    assert [step.position for step in select_steps_where_second_gains_most([[chain], [tree]])] == [9, 9]
    assert select_steps_where_second_gains_most([[chain], [trace(make_step(position=8))]]) == []


def test_the_shipped_curves_are_whole_and_name_their_processor_and_command():
    shipped = json.loads((ASSETS / "results" / "curves.json").read_text("utf-8"))
    assert list(shipped) == list(TOKENS)
    for name, curve in shipped.items():
        assert len(curve["lines"]) == LINES[name] and curve["finding"] == findings.FINDINGS[name](curve["lines"])
        assert "AMD EPYC" in curve["hardware"] and curve["command"].startswith("python -m engine curves")
        assert all(point["identical"] is True for line in curve["lines"] for point in line["points"])
