"""Two embedded pairs behind one page: every run has the pair that its visitor chose, and a page of one pair offers no choice."""

import asyncio
import json
from dataclasses import replace

import gradio as gr
import pytest

from engine.models.pairs import PAIRS, LoadedPair
from engine.page.screens.cards import MIX
from engine.page.screens.device import TimeSharedDeviceWorker
from engine.page.web import streams
from engine.page.web.lending import ServedPairs
from engine.page.web.page import build_gradio_page_and_api, describe_pairs_on_offer
from engine.record.calibration import MeanRoundCountsOfShape
from engine.rounds.pair_costs import PairCosts
from engine.systems import SYSTEMS
from helpers.commands import awaited
from helpers.pairs import tiny_pair


def named(name: str) -> LoadedPair:
    return replace(tiny_pair(same=True), pair=PAIRS[name])


@pytest.fixture(scope="module")
def served() -> ServedPairs:
    return ServedPairs(named("embedded"), additional_pairs=[named("small")])


async def raced(served: ServedPairs, **given) -> list[dict]:
    settings = {"prompt": "Once upon", "systems": ["vanilla", "tree"], "max_new_tokens": 40}
    return [
        json.loads(news)
        async for news in streams.stream_request_events_and_refusals(
            served, lambda: {"kind": "race"} | settings | given
        )
    ]


def titles(events: list[dict]) -> set[str]:
    return {system["trace"]["pair"] for event in events for system in event.get("systems", [])}


def test_visitors_with_different_pairs_race_at_the_same_time_and_never_mix(served, monkeypatch):
    monkeypatch.setattr(streams, "DEVICE", TimeSharedDeviceWorker())
    asked = ["small", "", "embedded", "small"]

    async def together() -> list[list[dict]]:
        return await asyncio.gather(*(raced(served, pair=name, seed=seed) for seed, name in enumerate(asked)))

    for name, events in zip(asked, awaited(together()), strict=True):
        assert titles(events) == {PAIRS[name or "embedded"].title}
        assert events[-1]["end"] and events[-1]["identical"] is True


@pytest.mark.parametrize("name", ["qwen3-8b", "warp", 7, ["small"]])
def test_a_pair_that_is_not_there_is_refused_with_those_that_are(served, name):
    with pytest.raises(gr.Error, match=r"There is no pair .* here\. Available: embedded, small"):
        awaited(raced(served, pair=name))
    with pytest.raises(gr.Error, match=r"There is no pair 'small' here\. Available: embedded"):
        awaited(raced(ServedPairs(served.pair), pair="small"))


def test_the_head_offers_both_pairs_with_what_is_measured_of_each():
    served = ServedPairs(named("embedded"))
    assert describe_pairs_on_offer(served)["pairs"] == []
    served.additional_pairs.append(named("small"))
    PairCosts(served.additional_pairs[0]).get_or_measure_costs("none")
    small, large = describe_pairs_on_offer(served)["pairs"]
    assert [(each["name"], each["size"]) for each in (small, large)] == [("small", "11M"), ("embedded", "67M")]
    assert large["verify_ms"] == {} and small["verify_ms"][1] > 0
    assert (small["own"], large["own"]) == (False, True) and describe_pairs_on_offer(served)[
        "pair"
    ] == f"67M {large['pair']}"
    assert small["title"] == "11M embedded pair" and small["pair"].startswith("embedded pair · ")


def counted(name: str, best: str) -> LoadedPair:
    """A pair on which a draft tree of that shape is the best by far."""
    pair = named(name)
    shapes = {shape: MeanRoundCountsOfShape(9.0 if shape == best else 1.1, 8.0, 4.0) for shape in ("4x4x8", "2x3x4")}
    pair = replace(pair, calibration=replace(pair.calibration, shapes={"tree": shapes}))
    SYSTEMS["tree"].get_or_measure_costs(pair)
    return pair


def test_a_card_and_the_dials_follow_the_chosen_pair():
    """Each pair has another best shape; with a dial that the visitor has set, the switch leaves all of them."""
    page = build_gradio_page_and_api(
        ServedPairs(counted("embedded", "4x4x8"), additional_pairs=[counted("small", "2x3x4")])
    )
    functions = {each.name: each.fn for each in page.fns.values() if each.fn}
    [look] = [
        each for block in page.blocks.values() for each in getattr(block, "server_fns", ()) if each.__name__ == "look"
    ]
    shown = {"untouched": "4x4x8", "depth": 4, "width": 4, "nodes": 8}
    for name, best, dials in (
        ("", "4x4x8", [4, 4, 8]),
        ("embedded", "4x4x8", [4, 4, 8]),
        ("small", "2x3x4", [2, 3, 4]),
    ):
        shapes = look(["tree", name])["costs"]["shapes"]
        assert max(shapes, key=lambda shape: shapes[shape]["tau"]) == best
        for menus in (("tree", ""), (MIX, "tree")):
            assert [*functions["take"](*menus, name, **shown).values()] == [*dials, best]
        assert len(functions["take"]("tree", "", name, **shown | {"depth": 3})) == 1  # a skip
    assert "no pair 'warp' here" in look(["tree", "warp"])["refused"]
