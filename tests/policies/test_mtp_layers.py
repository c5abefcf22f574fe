"""Every policy on MTP layers in a target's own files: texts are plain decoding's, and what these layers cannot serve is refused."""

from dataclasses import replace
from itertools import product

import pytest

from engine.acceptance import ACCEPTANCES
from engine.models.loading import load_pair_anew
from engine.models.pairs import build_pair
from engine.policies import POLICIES
from engine.race import Race, Settings
from engine.record.calibration import Calibration
from engine.systems import can_feed_policy, is_sound_policy_for_acceptance, resolve_system_name
from helpers.families import daily
from helpers.published.mtp import write

ABLE = [name for name in POLICIES if can_feed_policy("mtp", name)]
LUCKY = ("chain", "kary")  # whose guesses come true in this text; a drafter that is never right would prove little
LAWFUL = [name for name, rule in ACCEPTANCES.items() if rule.guarantee == "law"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A target with two MTP layers, so that one depth has a layer of its own and deeper ones share the last."""
    folder = tmp_path_factory.mktemp("mtp")
    write(folder, "GLM-4 MoE", 2)
    measured = Calibration(ranks={"medusa": [[0.5, 0.2], [0.4, 0.2], [0.3, 0.1]]})  # which the sparse tree asks for
    return replace(load_pair_anew(build_pair(str(folder)), device="cpu"), stop_ids=frozenset(), calibration=measured)


@pytest.mark.parametrize(
    ("policy", "temperature"), daily(product(ABLE, (0.0, 0.8)), *product(ABLE, (0.8,)), *product(LUCKY, (0.0,)))
)
def test_every_policy_is_lossless(policy, temperature, pair):
    """By token match token for token. By every rule that keeps the law the same at temperature 0, and in law above it."""
    rules = ["token_match", *(rule for rule in LAWFUL if is_sound_policy_for_acceptance(policy, rule))]
    systems = ("vanilla", *(f"mtp/{policy}/{rule}:3x2x7" for rule in rules))
    race = Race(pair, Settings("Once upon", systems, max_new_tokens=10, temperature=temperature, seed=16))
    for _ in race.run():
        pass
    exact, *lawful = [each["identical"] for each in race.result()["lanes"][1:]]
    assert exact is True and lawful == [True if temperature == 0 else "law"] * (len(rules) - 1)
    mine = race.lanes[1].trace
    assert (
        POLICIES[policy].reads_costs or max(len(step.tokens) for step in mine.steps) > 1
    )  # one that reads them may rest
    assert policy not in LUCKY or temperature == 0 or mine.tau > 1.2


def test_the_other_policies_ask_for_more_than_these_layers_offer():
    assert {name for name in POLICIES if name not in ABLE} == {"own_tree", "rank_guided"}


@pytest.mark.parametrize("policy", ["own_tree", "rank_guided"])
def test_a_policy_that_asks_for_more_is_refused_with_what_would_work(policy):
    with pytest.raises(
        ValueError, match=rf"{policy} needs a drafter with .*mtp has none\. Use .*or mtp with the policy best_first"
    ):
        resolve_system_name(f"mtp/{policy}/token_match")
