"""What the screens say about systems, without a page."""

from dataclasses import replace
from itertools import groupby

import pytest

from engine.contracts import GUESS_ORIGINS, OTHER, Drafter
from engine.drafters import DRAFTERS
from engine.page.screens import answers
from engine.page.screens.cards import (
    FIELDS,
    LANES,
    MIX,
    build_menu_label,
    build_system_menu,
    choose_initial_lane_systems,
    choose_shape_shown_by_dials,
    describe_parts,
    describe_remote_lane,
    describe_system,
    map_first_label_of_each_group_to_group,
    map_menu_labels_to_summaries,
    menu_group_of_system,
)
from engine.race import Race, Settings
from engine.record.costs import MeanRoundCountsOfShape
from engine.remote.server import OpenAICompatibleServer
from engine.rounds import timing
from engine.systems import SYSTEMS, resolve_system_name
from helpers.pairs import tiny_pair


@pytest.mark.parametrize("first", LANES)
def test_a_menu_goes_by_ideas_begins_with_its_own_and_ends_with_the_mix(first):
    *systems, last = build_system_menu(first)
    names = [name for _, name in systems]
    ideas = [menu_group_of_system(SYSTEMS[name]) for name in names]
    assert sorted(names) == sorted(SYSTEMS) and len(list(groupby(ideas))) == len(set(ideas)) <= len(GUESS_ORIGINS)
    assert names[0] == first and last[1] == MIX and MIX not in SYSTEMS


@pytest.mark.parametrize("first", LANES)
def test_headings_stand_above_the_first_system_of_each_idea(first):
    found, seen = map_first_label_of_each_group_to_group(first), set()
    for words, name in build_system_menu(first)[:-1]:
        idea = menu_group_of_system(SYSTEMS[name])
        assert found.get(words) == (None if idea in seen else idea)
        seen.add(idea)


def test_every_system_has_one_line_and_every_known_drafter_an_idea():
    assert map_menu_labels_to_summaries().keys() == {build_menu_label(system) for system in SYSTEMS.values()}
    assert all(10 < len(line) < 140 and "." not in line for line in map_menu_labels_to_summaries().values())
    assert {each.guess_origin for each in DRAFTERS.values()} == {*GUESS_ORIGINS} - {
        OTHER
    } and Drafter.guess_origin == OTHER


def test_another_server_stands_before_the_mix_under_a_heading_of_its_own():
    server = OpenAICompatibleServer("http://127.0.0.1:8000/v1", "big/model")
    names = [name for _, name in build_system_menu(LANES[0], server)]
    assert names[-2:] == ["remote", MIX] and build_system_menu(LANES[0], server)[-2][0] == "remote: big/model"
    assert (
        map_first_label_of_each_group_to_group(LANES[0], server)["remote: big/model"] == "another server"
        and names[:-2] == [n for _, n in build_system_menu(LANES[0])][:-1]
    )
    said = describe_remote_lane(server)
    assert said.keys() == describe_system(SYSTEMS["tree"]).keys() - {"broken"} and said["guarantee"] == "text"
    assert "8000" not in str(said)


def test_lossy_systems_say_so_wherever_they_are_named():
    assert all(("lossy" in build_menu_label(system)) == (system.guarantee == "lossy") for system in SYSTEMS.values())
    assert describe_system(SYSTEMS["naive"])["guarantee"] == "lossy"


def test_a_shape_is_the_systems_own_or_none():
    pair = tiny_pair()
    assert choose_shape_shown_by_dials("tree", [pair]) == {
        name: getattr(resolve_system_name("tree"), name) for name in ("depth", "width", "nodes")
    }
    assert choose_shape_shown_by_dials("tree:3x2x8", [pair]) == {"depth": 3, "width": 2, "nodes": 8}
    assert (
        choose_shape_shown_by_dials("warp", [pair])
        == choose_shape_shown_by_dials(None, [pair])
        == choose_shape_shown_by_dials("", [pair])
        == {}
    )


def test_what_is_there_to_choose_has_words():
    assert all(words for each in describe_parts().values() for words in each.values())
    assert {name for field in FIELDS.values() for name in field} <= SYSTEMS.keys()
    story = next(iter(FIELDS.values()))
    assert story[:4] == ("vanilla", "chain", "tree", "eagle") and {"parallel-tree", "auto"} < set(story)
    assert any(SYSTEMS[name].guarantee == "lossy" for name in story)
    pair = tiny_pair()
    assert answers.describe_system_card(["tree", ""], [pair])["name"] == "tree"
    assert "Unknown system 'warp'" in answers.describe_system_card(["warp", ""], [pair])["refused"]


def test_a_card_and_the_dials_tell_the_best_shape_once_it_is_known_and_measure_nothing_for_it(monkeypatch):
    shapes = {"4x4x8": MeanRoundCountsOfShape(2.0, 8.0, 4.0), "2x3x4": MeanRoundCountsOfShape(2.4, 4.0, 2.0)}
    pair = tiny_pair()
    pair = replace(pair, calibration=replace(pair.calibration, shapes={"tree": shapes}))
    measured: list[str] = []
    monkeypatch.setattr(
        timing, "time_verify_ms_by_rows", lambda *_, **__: measured.append("verify") or {1: 2.0, 8: 9.0}
    )
    monkeypatch.setattr(timing, "time_first_and_further_draft_level_ms", lambda *_, **__: (0.0, 0.0))
    assert (
        "costs" not in answers.describe_system_card(["tree", ""], [pair])
        and choose_shape_shown_by_dials("tree", [pair])["nodes"] == 8
        and measured == []
    )
    SYSTEMS["tree"].get_or_measure_costs(pair)
    assert choose_shape_shown_by_dials("tree", [pair]) == {"depth": 2, "width": 3, "nodes": 4} and measured == [
        "verify"
    ]
    costs = answers.describe_system_card(["tree", ""], [pair])["costs"]
    assert (
        costs["promised"] == {}
        and list(costs["shapes"]) == list(shapes)
        and costs["shapes"]["2x3x4"] == {"tau": 2.4, "cost": 2.5}
    )
    assert answers.describe_system_card(["tree", ""], [pair])["nodes"] == 8  # the paper's own
    auto = answers.describe_system_card(["auto", ""], [pair])
    assert "costs" not in auto
    SYSTEMS["auto"].get_or_measure_costs(pair)
    assert (
        answers.describe_system_card(["auto", ""], [pair])["costs"]["promised"] == {}
    )  # no ranks were counted, so the first drafter is taken


@pytest.mark.parametrize("drafted", [True, False])
def test_any_target_can_race_the_opening_lanes(drafted):
    pair = tiny_pair() if drafted else replace(tiny_pair(), draft=None, learned={}, bigram=None)
    assert choose_initial_lane_systems(pair) == (LANES if drafted else ("vanilla", "auto"))
    race = Race(pair, Settings("Once", choose_initial_lane_systems(pair), max_new_tokens=8))
    for _ in race.run():
        pass
    assert race.result()["identical"] is True
