"""A system that stops guessing, or leaves nodes of its budget unused, says why in a sentence. Who never guesses says nothing."""

import pytest
import torch

from engine.contracts import Drafter
from engine.drafters import DRAFTERS
from engine.policies import POLICIES
from engine.race import BASELINE, Race, Settings
from engine.record.trace import Step
from engine.sampling import Sampling
from engine.systems import SYSTEMS, find_node_filling_system_name, resolve_system_name
from helpers.pairs import LETTERS, STOP, tiny_pair

LENGTH = 9  # of texts with a length that no tree of four levels fits twice into


class Sure(Drafter):
    """Gives token 1 all but `rest` everywhere, and the others the rest."""

    stop_ids = frozenset({7})

    def __init__(self, rest: float):
        row = torch.full((8,), rest / 7)
        row[1] = 1 - rest
        self.row = row.log()

    def log_q(self, tree, nodes):
        return self.row.expand(len(nodes), -1)


def unused(policy: str, rest: float, depth: int, width: int, nodes: int, room: int = 99) -> str:
    grower, drafter = POLICIES[policy](depth, width, nodes, "ranked"), Sure(rest)
    tree = grower.grow(drafter, 0, 0, Sampling(), room)
    return grower.explain_unused_nodes(tree, room, drafter.stop_ids)


def test_a_tree_with_fewer_nodes_than_its_budget_says_why():
    assert unused("best_first", 0.01, 2, 4, 16) == "3 of 16 nodes used: the others are under 1 %."
    assert unused("best_first", 0.7, 2, 4, 5) == ""  # the budget is full
    assert unused("best_first", 0.01, 2, 1, 16) == ""  # depth and width leave no more
    assert unused("best_first", 0.01, 4, 1, 16, room=1) == ""  # nor does the text
    assert unused("expand_rerank", 0.01, 2, 4, 16) == ""


def steps_of(name: str, constraint: str = "") -> list[Step]:
    pair = tiny_pair(stop_ids=frozenset({STOP}))
    race = Race(pair, Settings("Once upon a time", (BASELINE, name), max_new_tokens=LENGTH, constraint=constraint))
    plain, drafted = race.run_to_traces()
    assert not any(step.silence or step.unused for step in plain.steps)
    return drafted.steps


@pytest.mark.parametrize("name", ["auto", "tree", "chain", "lookup", "suffix", "recycling", "lookahead", "dyspec"])
def test_a_step_without_a_guess_says_why(name):
    steps = steps_of(name)
    for step in steps:
        alone = len(step.tokens) == 1
        assert step.silence.endswith(".") if alone else not step.silence
        assert not (alone and step.unused)
    assert any(len(step.tokens) == 1 for step in steps) or name in ("auto", "tree", "chain", "dyspec")


def test_where_a_constraint_leaves_a_choice_forced_tokens_say_so():
    told = {step.silence for step in steps_of("forced", LETTERS) if len(step.tokens) == 1}
    assert DRAFTERS["forced"].no_guess_reason in told


def test_the_last_token_is_written_without_a_guess_and_says_so():
    steps = steps_of("model/chain/token_match:1x1x2")
    left = LENGTH
    for step in steps:
        if left == 1:
            assert step.silence == "One token is left to write, and the target writes it without a guess."
        left -= len(step.burst)


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_leaves_nodes_unused_can_be_made_to_use_all(name):
    system = SYSTEMS[name]
    whole = find_node_filling_system_name(system)
    if not whole:
        assert not system.sizes_trees and (
            not POLICIES[system.policy].unused_budget_reason or system.acceptance != "token_match"
        )
        return
    made = resolve_system_name(whole)
    assert (made.drafter, made.acceptance) == (system.drafter, system.acceptance) and "all nodes used" in made.title
    assert not find_node_filling_system_name(made)
    assert find_node_filling_system_name(resolve_system_name(f"{name}!mask")) == ""
