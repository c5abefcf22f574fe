"""What the screens say about systems, without a page."""

from dataclasses import replace

import pytest

from engine.models.pairs import PAIRS, own_pair
from engine.page.screens import answers
from engine.page.screens.cards import (
    FIELDS,
    FIRSTS,
    LANES,
    MIX,
    PROMISES,
    card,
    headings,
    label,
    lanes_of,
    menu,
    parts,
    remote_card,
    shape,
)
from engine.race import Race, Settings
from engine.remote.server import Server
from engine.systems import SYSTEMS, find
from helpers.pairs import tiny_pair


@pytest.mark.parametrize("first", FIRSTS)
def test_a_menu_goes_by_promises_begins_with_its_own_and_ends_with_the_mix(first):
    *systems, last = menu(first)
    names = [name for _, name in systems]
    promised = [list(PROMISES).index(SYSTEMS[name].guarantee) for name in names]
    assert sorted(names) == sorted(SYSTEMS) and promised == sorted(promised)
    assert names[0] == first and last[1] == MIX and MIX not in SYSTEMS


def test_headings_stand_beside_the_first_system_of_each_promise():
    names = [name for _, name in menu(LANES[0])]
    assert list(headings()) == sorted(headings()) and list(headings().values()) == list(PROMISES.values())
    for place, words in headings().items():
        assert PROMISES[SYSTEMS[names[place - 1]].guarantee] == words
        assert place == 1 or SYSTEMS[names[place - 2]].guarantee != SYSTEMS[names[place - 1]].guarantee


def test_another_server_stands_before_the_mix_under_a_heading_of_its_own():
    server = Server("http://127.0.0.1:8000/v1", "big/model")
    names = [name for _, name in menu(LANES[0], server)]
    assert names[-2:] == ["remote", MIX] and menu(LANES[0], server)[-2][0] == "remote: big/model"
    assert headings(server)[len(names) - 1] == "another server" and names[:-2] == [n for _, n in menu(LANES[0])][:-1]
    said = remote_card(server)
    assert said.keys() == card(SYSTEMS["tree"]).keys() - {"broken"} and said["guarantee"] == "text"
    assert "8000" not in str(said)


def test_lossy_systems_say_so_wherever_they_are_named():
    assert all(("lossy" in label(system)) == (system.guarantee == "lossy") for system in SYSTEMS.values())
    assert card(SYSTEMS["naive"])["guarantee"] == "lossy"


def test_a_shape_is_the_systems_own_or_none():
    assert shape("tree") == {name: getattr(find("tree"), name) for name in ("depth", "width", "nodes")}
    assert shape("tree:3x2x8") == {"depth": 3, "width": 2, "nodes": 8}
    assert shape("warp") is None and shape(None) is None and shape("") is None


def test_what_is_there_to_choose_has_words():
    assert all(words for each in parts().values() for words in each.values())
    assert {name for field in FIELDS.values() for name in field} <= SYSTEMS.keys()
    story = next(iter(FIELDS.values()))
    assert story[:4] == ("vanilla", "chain", "tree", "eagle") and {"parallel-tree", "auto"} < set(story)
    assert any(SYSTEMS[name].guarantee == "lossy" for name in story)
    assert answers.look("tree")["name"] == "tree" and "Unknown system 'warp'" in answers.look("warp")["refused"]


def test_the_opening_lanes_are_those_that_the_pair_allows():
    """A target alone has no draft model, so its page must not open with the draft tree."""
    pair = replace(tiny_pair(), draft=None, learned={}, bigram=None)
    for described, loaded in ((PAIRS["embedded"], tiny_pair()), (own_pair(f"org/large@{'a' * 40}"), pair)):
        lanes = lanes_of(described)
        race = Race(loaded, Settings("Once", lanes, max_new_tokens=8))
        for _ in race.run():
            pass
        assert race.result()["identical"] is True and lanes[0] == "vanilla"
    assert lanes_of(PAIRS["embedded"]) == LANES and lanes == ("vanilla", "auto")
