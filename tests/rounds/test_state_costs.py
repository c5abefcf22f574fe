"""What a tree costs a target with states beside a chain: measured once, on the rounds themselves, and told by the page's card."""

import pytest

from engine.page.screens import answers, readiness
from engine.page.screens.device import TimeSharedDeviceWorker
from engine.page.screens.readiness import SystemPreparation
from engine.record.costs import RecurrentStateCosts
from engine.rounds import timing
from engine.rounds.pair_costs import NODES, PairCosts
from engine.target import Target
from helpers.families import state_pair
from helpers.pairs import tiny_pair

LARGE = RecurrentStateCosts(24, 12, 17.7, 36.0, 37.2, 7_040_000, 7_040_000, 8_720_000)


def test_the_words_hold_time_and_memory_of_both_and_what_copies_would_take():
    assert LARGE.summary == (
        "24 nodes, measured here: a chain takes 2.0 plain steps and keeps 7.0 MB until the round ends, a tree 2.1 and 7.0 MB. "
        "The text's states are 8.7 MB; a copy for each of the tree's 12 paths would be 104.6 MB."
    )


@pytest.mark.parametrize("name", ["mamba2", "lfm2", "qwen3_next", "falcon_h1"])
def test_a_tree_keeps_what_a_chain_keeps_and_the_card_tells_it_once_it_is_measured(name, tmp_path, monkeypatch):
    pair, verified = state_pair(name, tmp_path), []
    assert pair.timings.state_costs is None and "states" not in answers.describe_system_card(["lookup", ""], [pair])
    right = Target.verify
    monkeypatch.setattr(Target, "verify", lambda target, tree: verified.append(tree.parents) or right(target, tree))
    found = PairCosts(pair).get_or_measure_state_costs()
    assert (
        {len(parents) for parents in verified} == {1, NODES}
        and found.node_count == NODES
        and found.tree_path_count == NODES // 2
    )
    assert (
        found.chain_uncommitted_bytes == found.tree_uncommitted_bytes > 0
        and found.text_state_bytes == pair.target.state_bytes_per_text
    )
    assert min(found.single_token_ms, found.chain_verify_ms, found.tree_verify_ms) > 0
    verified.clear()
    assert PairCosts(pair).get_or_measure_state_costs() == found == pair.timings.state_costs and not verified
    assert answers.describe_system_card(["lookup", ""], [pair])["states"] == found.summary
    assert "states" not in answers.describe_system_card(["vanilla", ""], [pair])  # it grows no tree


def test_time_is_that_of_verifications(tmp_path, monkeypatch):
    monkeypatch.setattr(
        timing, "time_verify_ms_of_trees", lambda target, trees, *_: {name: 1.0 + len(name) for name in trees}
    )
    found = timing.measure_state_times_and_bytes(state_pair("lfm2", tmp_path), NODES, 1.0)
    assert (found.single_token_ms, found.chain_verify_ms, found.tree_verify_ms) == (6.0, 6.0, 5.0)


def test_a_target_without_states_has_none():
    with pytest.raises(ValueError, match="keeps no state, so its trees cost what rows cost"):
        PairCosts(tiny_pair()).get_or_measure_state_costs()
    assert "states" not in answers.describe_system_card(["tree", ""], [tiny_pair()])


@pytest.mark.parametrize("kept", [True, False])
def test_it_is_measured_while_a_pair_is_made_ready_and_for_no_other_pair(kept, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(PairCosts, "get_or_measure_state_costs", lambda costs: asked.append(costs.pair))
    monkeypatch.setattr(readiness, "list_preparation_steps", lambda *_: [])
    pair = state_pair("lfm2", tmp_path) if kept else tiny_pair()
    SystemPreparation(pair, TimeSharedDeviceWorker()).prepare_remaining_systems()
    assert asked == [pair] * kept
