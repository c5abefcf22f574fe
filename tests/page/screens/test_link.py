"""Links to a race: what an address sets, and what is said of a wrong value."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.models.pairs import PAIRS
from engine.page.screens.cards import choose_shape_shown_by_dials
from engine.page.screens.link import parse_link_to_form_values_and_refusals
from engine.race import Settings
from engine.record.costs import MeanRoundCountsOfShape
from engine.remote.server import OpenAICompatibleServer
from engine.rounds import timing
from engine.systems import SYSTEMS
from helpers.pairs import tiny_pair

PAIR = tiny_pair()


def test_a_link_sets_everything():
    query = "?prompt=Story%3A+a+%26+%3Cb%3E&left=lookup&right=model/kary/token_match&depth=3&width=2&nodes=9"
    given, refused = parse_link_to_form_values_and_refusals(
        f"{query}&temperature=0.7&tokens=64&seed=9007199254740991&constraint=regex%3A%5Bab%5D%2B", PAIR
    )
    assert refused == [] and given == {
        "prompt": "Story: a & <b>",
        "left": "lookup",
        "right": "model/kary/token_match",
        "depth": 3,
        "width": 2,
        "nodes": 9,
        "temperature": 0.7,
        "max_new_tokens": 64,
        "seed": 2**53 - 1,
        "constraint": "regex:[ab]+",
        "untouched": "",
    }
    given.pop("untouched")
    Settings(given.pop("prompt"), (given.pop("left"), given.pop("right")), **given)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("prompt=", "prompt is empty"),
        ("prompt=" + "x" * 20_001, "20,001 characters"),
        ("left=warp", "Unknown system 'warp'"),
        ("right=model/kary/speculative", "would bias the output"),
        ("right=tree:3x2x8", "The menus have no system"),
        ("right=tree!mask", "The menus have no system"),
        ("depth=99", "Depth must be between"),
        ("nodes=8.5", "whole number"),
        ("nodes=", "Nodes must be a number"),
        ("temperature=nan", "Temperature must be a number"),
        ("temperature=3", "between 0 and 2 on the page"),
        ("tokens=1e9", "tokens must be between"),
        ("tokens=" + "9" * 5000, "tokens must be"),
        ("seed=-1", "Seed must be between"),
        ("seed=<b>x</b>", "Seed must be a number"),
        ("constraint=xml:a", "begins with json:"),
        ("constraint=regex:", "The constraint is empty"),
        ("&".join(["seed=1"] * 200), "too many parts"),
    ],
)
def test_a_wrong_value_in_a_link_is_a_sentence_and_sets_nothing(query, words):
    given, [sentence] = parse_link_to_form_values_and_refusals(query, PAIR)
    assert given == {} and words in sentence


def test_a_dial_that_the_link_leaves_out_is_the_right_lanes_own():
    own = choose_shape_shown_by_dials("dspark", [PAIR])
    assert (
        own["depth"] != 4
        and parse_link_to_form_values_and_refusals("?right=dspark", PAIR)[0]
        == {"right": "dspark", "untouched": "7x4x12"} | own
    )
    given = {"right": "dspark", "left": "tree", "untouched": ""} | own | {"depth": 3}
    assert parse_link_to_form_values_and_refusals("?right=dspark&depth=3&left=tree", PAIR)[0] == given
    assert parse_link_to_form_values_and_refusals("?left=dspark", PAIR)[0] == {"left": "dspark"}


def test_a_link_without_a_shape_asks_for_the_best_one_here_and_a_link_with_one_for_that(monkeypatch):
    pair = replace(
        PAIR, calibration=replace(PAIR.calibration, shapes={"tree": {"2x3x4": MeanRoundCountsOfShape(2.4, 4.0, 2.0)}})
    )
    monkeypatch.setattr(timing, "time_verify_ms_by_rows", lambda *_, **__: {1: 2.0, 8: 9.0})
    monkeypatch.setattr(timing, "time_first_and_further_draft_level_ms", lambda *_, **__: (0.0, 0.0))
    papers = {"right": "tree", "depth": 4, "width": 4, "nodes": 8}
    assert parse_link_to_form_values_and_refusals("?right=tree", pair)[0] == papers | {
        "untouched": "4x4x8"
    }  # nothing is measured yet
    assert parse_link_to_form_values_and_refusals("?right=tree&nodes=8", pair)[0] == papers | {"untouched": ""}
    SYSTEMS["tree"].get_or_measure_costs(pair)
    best = {"right": "tree", "depth": 2, "width": 3, "nodes": 4, "untouched": "2x3x4"}
    assert parse_link_to_form_values_and_refusals("?right=tree", pair)[0] == best
    assert parse_link_to_form_values_and_refusals("?right=tree&depth=2&width=3&nodes=4", pair)[0] == best
    assert parse_link_to_form_values_and_refusals("?right=tree&depth=4&width=4&nodes=8", pair)[0] == papers | {
        "untouched": ""
    }


def test_a_link_names_one_of_the_pages_pairs():
    """The page's switch takes it; the form has no field for it."""
    models = [SimpleNamespace(pair=PAIRS[name]) for name in ("embedded", "small")]
    assert (
        parse_link_to_form_values_and_refusals("?pair=small", PAIR, models)
        == parse_link_to_form_values_and_refusals("?pair=embedded", PAIR, models)
        == ({}, [])
    )
    for models_here, query in ((models, "pair=qwen3-8b"), (models[:1], "pair=small")):
        given, [sentence] = parse_link_to_form_values_and_refusals(query, PAIR, models_here)
        assert given == {} and "There is no pair" in sentence and "Available: embedded" in sentence


def test_a_foreign_address_sets_nothing():
    assert parse_link_to_form_values_and_refusals("?view=api&learn=3&__theme=dark", PAIR) == ({}, [])
    assert parse_link_to_form_values_and_refusals("?depth=5&width=0", PAIR)[0] == {"depth": 5, "untouched": ""}


def test_a_link_names_another_server_only_where_the_menus_have_one():
    served = replace(PAIR, remote=OpenAICompatibleServer("http://127.0.0.1:8000/v1", "big/model"))
    assert parse_link_to_form_values_and_refusals("?right=remote", served) == ({"right": "remote"}, [])
    given, [sentence] = parse_link_to_form_values_and_refusals("?right=remote", PAIR)
    assert given == {} and "Unknown system 'remote'" in sentence
    assert parse_link_to_form_values_and_refusals("?right=http://127.0.0.1:8000/v1", served)[0] == {}
