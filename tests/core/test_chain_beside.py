"""The chain that races between plain decoding and a tree: the same drafter, as many guesses, the same tokens."""

import pytest

from engine.race import Race, Settings
from engine.systems import LONGEST_CHAIN, SYSTEMS, find_comparable_chain_name, resolve_system_name
from helpers.pairs import tiny_pair


@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.can_branch])
def test_every_branching_system_has_a_chain_with_as_many_guesses(name):
    system = SYSTEMS[name]
    chain = resolve_system_name(find_comparable_chain_name(system, system.default_shape))
    assert chain.drafter == system.drafter and chain.width == 1 and chain.guarantee == "tokens"
    guesses = system.depth if system.sizes_trees else min(system.nodes - 1, LONGEST_CHAIN)
    assert chain.depth == guesses and chain.title.startswith("draft chain")


def test_what_never_branches_has_none():
    for name in ("vanilla", "chain", "block"):
        assert find_comparable_chain_name(SYSTEMS[name], SYSTEMS[name].default_shape) == ""
    assert find_comparable_chain_name(resolve_system_name("tree!mask"), SYSTEMS["tree"].default_shape) == ""


def test_three_lanes_race_to_the_same_text_and_the_chain_keeps_its_shape():
    tree = SYSTEMS["tree"]
    chain = find_comparable_chain_name(tree, {"depth": 2, "width": 3, "nodes": 7})
    settings = Settings("Story: Once", ("vanilla", chain, "tree"), 2, 3, 7, max_new_tokens=24)
    race = Race(tiny_pair(), settings)
    traces = race.run_to_traces()
    assert traces[1].shape == "6x1x7" and traces[2].shape == "2x3x7"
    assert all(max(map(step_width, trace.steps)) <= width for trace, width in zip(traces, (0, 1, 3), strict=True))
    assert len({tuple(trace.tokens) for trace in traces}) == 1 and race.result()["identical"] is True


def step_width(step) -> int:
    """The most children of a node."""
    return max((step.parents.count(node) for node in range(len(step.parents))), default=0)
