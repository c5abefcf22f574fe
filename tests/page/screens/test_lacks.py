"""What a pair lacks: menus, cards and links tell it by the sentence that refuses a race, and nothing is loaded for the answer."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from engine.breaks import BREAKS
from engine.contracts import INSTEAD
from engine.drafters import DRAFTERS
from engine.models.pairs import Pair
from engine.page.screens import answers, link
from engine.page.screens.cards import (
    STAND_INS,
    TAUGHT,
    choose_initial_lane_systems,
    describe_pair,
    map_unraceable_systems_and_parts,
)
from engine.race import Race, Settings
from engine.record.calibration import Calibration
from engine.systems import SYSTEMS, resolve_system_name
from helpers.pairs import NAMES, tiny_pair


@pytest.fixture(scope="module")
def whole():
    return tiny_pair()


@pytest.fixture(scope="module")
def bare(whole, tmp_path_factory):
    """A target alone, in a folder of the server's."""
    place = Pair(name="own", title="my model", target=str(tmp_path_factory.mktemp("secret")))
    return replace(whole, pair=place, draft=None, bigram=None, learned={}, calibration=Calibration())


def refused(pair, system: str) -> str:
    """Why the pair cannot race the system, as whoever presses Race is told; "" where it can."""
    try:
        Race(pair, Settings("Once", ("vanilla", system), max_new_tokens=4))
    except ValueError as error:
        return str(error)
    return ""


class Unread(Mapping):
    """Nets of these names, none of which may be loaded."""

    def __init__(self, names):
        self.names = names

    def __contains__(self, name):
        return name in self.names

    def __iter__(self):
        return iter(self.names)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, name):
        raise AssertionError(f"{name} was loaded")


@pytest.mark.parametrize("pair", ["whole", "bare"])
def test_what_is_told_of_a_system_is_what_a_race_with_it_is_refused_by(pair, request):
    found = request.getfixturevalue(pair)
    told = map_unraceable_systems_and_parts(found)["systems"]
    assert {name: each["refusal"] for name, each in told.items()} == {
        name: why for name in SYSTEMS if (why := refused(found, name))
    }
    assert len(told) == (0 if pair == "whole" else 22)


def test_a_part_of_a_mix_is_told_of_as_the_mix_is_refused(bare):
    told = map_unraceable_systems_and_parts(bare)
    mixes = {name: refused(bare, f"{name}/best_first/token_match") for name in DRAFTERS if name != "none"}
    assert {name: each["refusal"] for name, each in told["drafter"].items()} == {
        name: why for name, why in mixes.items() if why
    }
    assert told["drafter"]["model"]["needs"] == "a draft model" and "lookup" not in told["drafter"]
    assert {*told["policy"]} == {"sparse"} and told["acceptance"] == {}


def test_nothing_is_loaded_for_the_answer(whole, bare):
    pair = replace(bare, learned=Unread(["eagle"]))
    told = map_unraceable_systems_and_parts(pair)["systems"]
    assert "eagle" not in told and "talon" not in told and told["dspark"]["needs"] == "a trained DSpark drafter"
    assert (
        "medusa" in map_unraceable_systems_and_parts(replace(whole, calibration=Calibration()))["systems"]
    )  # its tree is laid out by counts


def test_a_refusal_says_what_any_target_can_race_by_the_menus_names_and_no_path(bare):
    for name in ("auto", "lookup", "recycling"):
        assert f"“{SYSTEMS[name].title}” ({name})" in INSTEAD and refused(bare, name) == ""
    for each in map_unraceable_systems_and_parts(bare)["systems"].values():
        assert bare.pair.target not in each["refusal"] and "/" not in each["refusal"].replace(
            "medusa/best_first/token_match", ""
        )
        assert "my model" in each["refusal"] and INSTEAD in each["refusal"]


def test_the_head_tells_it_and_a_card_asked_for_is_refused_by_it(bare):
    said = describe_pair(bare)
    assert said["title"] == "my model" and said["lacks"] == map_unraceable_systems_and_parts(bare)
    why = said["lacks"]["systems"]["eagle"]["refusal"]
    assert answers.describe_system_card(["eagle", ""], [bare]) == {"refused": why}
    assert answers.describe_system_card(["eagle/chain/token_match", ""], [bare]) == {"refused": why}
    assert answers.describe_system_card(["lookup", ""], [bare])["guarantee"] == "tokens"


@pytest.mark.parametrize("name", ["eagle", "model/kary/token_match"])
def test_a_link_cannot_choose_what_the_pair_lacks(bare, whole, name):
    [lack] = {resolve_system_name(name).find_missing_requirement(bare).refusal}
    given, told = link.parse_link_to_form_values_and_refusals(f"?right={name}&seed=3", bare)
    assert (given, told) == ({"seed": 3}, [lack])
    given, told = link.parse_link_to_form_values_and_refusals(f"?right={name}&pair=tiny", bare, [bare, whole])
    assert given["right"] == name and told == []
    given, told = link.parse_link_to_form_values_and_refusals(f"?right={name}&pair=own", whole, [whole, bare])
    assert "right" not in given and told == [lack]


def test_what_stands_in_races_on_any_target(bare):
    for name in (*choose_initial_lane_systems(bare), *STAND_INS, TAUGHT[-1]):
        assert SYSTEMS[name].find_missing_requirement(bare) is None, name
    assert {*STAND_INS, *TAUGHT} <= SYSTEMS.keys()


@pytest.mark.parametrize("broken", BREAKS)
def test_every_tree_of_learn_can_be_broken_and_races_so(whole, broken):
    """The last one on a target that has nothing else."""
    for name in TAUGHT:
        assert resolve_system_name(f"{name}!{broken}").guarantee == "lossy"
    constraint = NAMES if broken == "constraint" else ""
    bare = replace(whole, draft=None, bigram=None, learned={}, stop_ids=frozenset({0}))
    asked = Settings(
        "Once", (TAUGHT[-1], f"{TAUGHT[-1]}!{broken}"), max_new_tokens=40, temperature=0.8, constraint=constraint
    )
    race = Race(bare, asked)
    assert [*race.run()] and any(len(step.tokens) > 2 for step in race.lanes[1].trace.steps)


def test_a_page_of_ones_own_pair_opens_with_no_recorded_race(bare, whole):
    """No race of it is kept, and another pair's would stand under its name."""
    shown = replace(whole, pair=replace(whole.pair, name="small"))
    assert answers.serialise_opening_race_of_embedded_pair("2-story-auto", bare) == {}
    recorded = json.loads(answers.serialise_opening_race_of_embedded_pair("2-story-auto", shown)["event"])
    assert {each["trace"]["pair"] for each in recorded["systems"]} == {"67M embedded pair"}
    assert "There is no recorded race" in answers.serialise_opening_race_of_embedded_pair("warp", bare)["refused"]
