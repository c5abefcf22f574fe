"""Orders: the memory and the tokens that a call reserves before it waits, by what it asks for. Knows no page."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.breaks import BREAKS
from engine.measure.racing import IN_A_RACE
from engine.models import cache_memory
from engine.page.screens import requests
from engine.page.screens.requests import build_request_within_token_limit, max_cache_bytes_of_race
from engine.tree import LARGEST_TREE
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"
FIELD = ["tree", "chain", "eagle", "lookup", "auto", "suffix", "recycling"]


@pytest.fixture(scope="module")
def pair():
    return replace(tiny_pair(), context=4096)


def lane_bytes(pair, *prompts: str, tokens: int) -> int:
    """The caches of one lane for the longest of these prompts, of which no token is shorter than a byte."""
    return cache_memory.max_lane_cache_bytes(pair, max(len(each.encode()) for each in prompts) + tokens + LARGEST_TREE)


@pytest.mark.parametrize("systems", [["vanilla"], ["vanilla", "tree"], ["vanilla", *FIELD]])
def test_a_race_reserves_the_caches_of_all_its_lanes(pair, systems):
    found = build_request_within_token_limit(pair, "race", {"prompt": TEXT, "systems": systems, "max_new_tokens": 40})
    assert (
        found.cache_bytes == len(systems) * lane_bytes(pair, TEXT, tokens=40) and found.max_tokens == len(systems) * 40
    )


def test_a_grand_prix_reserves_those_of_its_field_and_of_the_baseline(pair):
    found = build_request_within_token_limit(pair, "prix", {"prompt": TEXT, "systems": FIELD, "max_new_tokens": 40})
    assert found.cache_bytes == 8 * lane_bytes(pair, TEXT, tokens=40)


def test_long_work_reserves_as_many_caches_as_it_holds_at_a_time(pair):
    """A sweep and a visitor's prompts race two lanes, a verdict a whole field, and a distance measures three targets."""
    longer = f"{TEXT} there was a little fox"
    both = lane_bytes(pair, TEXT, longer, tokens=16)
    values = {"prompts": [TEXT, longer, TEXT], "max_new_tokens": 16}
    assert (
        build_request_within_token_limit(pair, "sweep", {**values, "depth": [1, 2], "width": [1, 2]}).cache_bytes
        == 2 * both
    )
    assert build_request_within_token_limit(pair, "prompts", {**values, "system": "tree"}).cache_bytes == 2 * both
    assert (
        build_request_within_token_limit(pair, "pays", {**values, "systems": ["tree"]}).cache_bytes
        == (1 + IN_A_RACE) * both
    )
    asked = {"prompt": longer, "broken": f"tree!{next(iter(BREAKS))}", "max_new_tokens": 16}
    assert build_request_within_token_limit(pair, "distance", asked).cache_bytes == 3 * lane_bytes(
        pair, longer, tokens=16
    )


def test_a_prompt_is_as_long_as_its_bytes_may_be_tokens(pair):
    chinese = "从前有一只小狐狸"
    assert len(chinese.encode()) == 3 * len(chinese)
    assert max_cache_bytes_of_race(pair, [chinese], 10, 1) == lane_bytes(pair, chinese, tokens=10)
    assert max_cache_bytes_of_race(pair, ["x", chinese, "yy"], 10, 3) == 3 * lane_bytes(pair, chinese, tokens=10)
    assert max_cache_bytes_of_race(pair, ["x" * 9000], 10, 1) == cache_memory.max_lane_cache_bytes(
        pair, pair.context + LARGEST_TREE
    )


def test_a_lanes_caches_are_the_targets_the_drafts_its_states_and_a_trees_nodes():
    target = SimpleNamespace(cache_row_bytes=100, state_bytes_per_text=7_000, state_bytes_per_node=10)
    alone = SimpleNamespace(target=target, draft=None)
    drafted = SimpleNamespace(target=target, draft=SimpleNamespace(cache_row_bytes=30))
    nodes = 10 * cache_memory.NODES
    assert cache_memory.max_lane_cache_bytes(drafted, 50) == 50 * 130 + 7_000 + nodes
    assert cache_memory.max_lane_cache_bytes(alone, 50) == 50 * 200 + 7_000 + nodes


def test_too_many_tokens_in_one_call_are_refused_with_their_number(pair, monkeypatch):
    monkeypatch.setattr(requests, "MOST_TOKENS", 79)
    with pytest.raises(ValueError, match="up to 80 tokens, counting every lane; at most 79"):
        build_request_within_token_limit(
            pair, "race", {"prompt": TEXT, "systems": ["vanilla", "tree"], "max_new_tokens": 40}
        )
