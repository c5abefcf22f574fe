"""The grand prix in the engine: how many systems may race, and the figures by which they are placed."""

import pytest

from engine.race import Race, Settings, parse_grand_prix_systems
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"
OTHERS = ("tree", "chain", "lookup", "medusa", "parallel-tree", "specblock", "nanogpt-tree")


def test_the_baseline_leads_the_field_wherever_it_was_named():
    assert parse_grand_prix_systems(["tree"]) == parse_grand_prix_systems(["tree", "vanilla"]) == ("vanilla", "tree")
    assert parse_grand_prix_systems(OTHERS) == ("vanilla", *OTHERS)


@pytest.mark.parametrize(
    ("systems", "sentence"),
    [
        ([], "2 to 8 systems, vanilla among them, got 1. Choose one more"),
        (["vanilla"], "got 1. Choose one more"),
        ([*OTHERS, "eagle"], "got 9. Choose fewer"),
        (["tree", "chain", "tree"], "'tree' is in the field twice"),
        (["vanilla", "vanilla", "tree"], "'vanilla' is in the field twice"),
        ("tree", "must be a list of names"),
        (None, "must be a list of names"),
        ([["tree"]], "must be a list of names"),
        ([1, 2], "must be a list of names"),
    ],
)
def test_a_field_that_cannot_race_is_refused(systems, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse_grand_prix_systems(systems)


def test_a_field_with_an_unknown_or_biased_system_is_refused():
    with pytest.raises(ValueError, match="Unknown system 'warp'"):
        Settings(TEXT, parse_grand_prix_systems(["tree", "warp"]))
    with pytest.raises(ValueError, match="would bias the output"):
        Settings(TEXT, parse_grand_prix_systems(["tree", "model/kary/speculative"]))


def test_eight_systems_race_each_on_a_clock_and_with_a_shape_of_its_own():
    race = Race(tiny_pair(), Settings(TEXT, parse_grand_prix_systems(OTHERS), temperature=0.8, max_new_tokens=24))
    clocks = [0.0] * len(race.lanes)
    for index, step in race.run():
        running = [at for at, lane in enumerate(race.lanes) if at == index or not lane.finished]
        assert clocks[index] == min(clocks[at] for at in running)
        clocks[index] += step.total_seconds
    lanes = race.result()["lanes"]
    assert [lane["name"] for lane in lanes] == ["vanilla", *OTHERS]
    assert all(lane["identical"] is True for lane in lanes if lane["name"] != "chain")
    assert len({(lane.trace.depth, lane.trace.width, lane.trace.nodes) for lane in race.lanes}) > 4


def test_a_lanes_ratio_is_to_the_first_lane_and_its_shares_make_a_whole():
    race = Race(tiny_pair(same=True), Settings(TEXT, ("vanilla", "tree", "medusa"), max_new_tokens=24))
    list(race.run())
    result = race.result()
    base, *others = result["lanes"]
    assert base["speedup"] == 1 and result["speedup"] == others[-1]["speedup"]
    for lane in others:
        assert lane["speedup"] == pytest.approx(lane["tokens_per_s"] / base["tokens_per_s"])
    for lane in result["lanes"]:
        shares = [lane[f"{phase}_share"] for phase in ("prefill", "draft", "verify", "other")]
        assert sum(shares) == pytest.approx(1) and min(shares) > 0
