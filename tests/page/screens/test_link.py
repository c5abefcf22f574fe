"""Links to a race: what an address sets, and what is said of a wrong value."""

from types import SimpleNamespace

import pytest

from engine.models.pairs import PAIRS
from engine.page.screens.cards import shape
from engine.page.screens.link import read
from engine.race import Settings


def test_a_link_sets_everything():
    query = "?prompt=Story%3A+a+%26+%3Cb%3E&left=lookup&right=model/kary/token_match&depth=3&width=2&nodes=9"
    given, refused = read(f"{query}&temperature=0.7&tokens=64&seed=9007199254740991&constraint=regex%3A%5Bab%5D%2B")
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
    }
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
    given, [sentence] = read(query)
    assert given == {} and words in sentence


def test_a_dial_that_the_link_leaves_out_is_the_right_lanes_own():
    own = shape("dspark")
    assert own["depth"] != 4 and read("?right=dspark")[0] == {"right": "dspark"} | own
    assert read("?right=dspark&depth=3&left=tree")[0] == {"right": "dspark", "left": "tree"} | own | {"depth": 3}
    assert read("?left=dspark")[0] == {"left": "dspark"}


def test_a_link_names_one_of_the_pages_pairs():
    """The page's switch takes it; the form has no field for it."""
    models = [SimpleNamespace(pair=PAIRS[name]) for name in ("embedded", "small")]
    assert read("?pair=small", models=models) == read("?pair=embedded", models=models) == ({}, [])
    for models_here, query in ((models, "pair=qwen3-8b"), (models[:1], "pair=small")):
        given, [sentence] = read(query, models=models_here)
        assert given == {} and "There is no pair" in sentence and "Available: embedded" in sentence


def test_a_foreign_address_sets_nothing():
    assert read("?view=api&learn=3&__theme=dark") == ({}, [])
    assert read("?depth=5&width=0")[0] == {"depth": 5}


def test_a_link_names_another_server_only_where_the_menus_have_one():
    assert read("?right=remote", remote=True) == ({"right": "remote"}, [])
    given, [sentence] = read("?right=remote")
    assert given == {} and "Unknown system 'remote'" in sentence
    assert read("?right=http://127.0.0.1:8000/v1", remote=True)[0] == {}
