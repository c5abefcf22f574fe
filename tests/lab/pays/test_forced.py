"""Forced acceptance: the estimate's arithmetic on made-up costs, its words, and what is refused."""

import pytest

from engine.lab.pays import command
from engine.measure import forced
from engine.record.costs import Costs
from engine.rounds.pair_costs import PairCosts
from helpers.commands import SMALL, run, told
from helpers.pairs import tiny_pair

COSTS = Costs({1: 10.0, 4: 11.0, 8: 12.0, 64: 40.0}, first_ms=2.0, level_ms=1.0)


@pytest.fixture
def pair(monkeypatch):
    monkeypatch.setattr(PairCosts, "get_or_measure_costs", lambda *_: COSTS)
    return tiny_pair()


def test_an_estimate_is_tokens_a_round_over_what_such_a_round_costs(pair):
    found = forced.estimate_speedup_of_setting(pair, "tree:4x2x8", 3.0)
    assert (found["rows"], found["levels"]) == (8, 4)
    assert found["break_even"] == pytest.approx((12 + 2 + 3 * 1) / 10)
    assert found["speedup"] == pytest.approx(3.0 / 1.7)
    assert found["verify"] == pytest.approx(1.2) and found["draft"] == pytest.approx(0.5)


def test_a_chain_has_as_many_rows_as_its_depth_and_the_root(pair):
    found = forced.estimate_speedup_of_setting(pair, "chain:3x1x64", 2.5)
    assert found["rows"] == 4
    assert found["speedup"] == pytest.approx(2.5 / ((11 + 2 + 2) / 10))


@pytest.mark.parametrize(
    ("setting", "tokens", "most"), [("tree:3x2x8", 4.0, 4), ("tree:6x1x4", 4.0, 4), ("chain:5x1x2", 6.0, 6)]
)
def test_the_most_that_a_shape_yields_is_allowed_and_more_is_refused(pair, setting, tokens, most):
    assert forced.estimate_speedup_of_setting(pair, setting, tokens)["acceptance"] == tokens
    with pytest.raises(ValueError, match=f"{setting} .* {most} tokens"):
        forced.estimate_speedup_of_setting(pair, setting, tokens + 0.01)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("auto", "sizes every tree itself"),
        ("vanilla", "guesses nothing"),
        ("tree:4x0x8", "Width must be between 1 and 16"),
    ],
)
def test_what_has_no_shape_to_estimate_is_refused(pair, setting, words):
    with pytest.raises(ValueError, match=words):
        forced.estimate_speedup_of_setting(pair, setting, 2.0)


@pytest.mark.parametrize("tau", [0.99, -1.0, float("nan"), float("inf"), 10**400, True, "3", None])
def test_no_round_yields_less_than_the_targets_own_token(tau):
    with pytest.raises(ValueError, match=r"The acceptance length must be a number of tokens a round, from 1, .*; got "):
        forced.validate_acceptance_length(tau)
    assert forced.validate_acceptance_length(1.0) == 1.0


def test_the_words_say_that_it_is_an_estimate(pair):
    lines = forced.describe_estimates([forced.estimate_speedup_of_setting(pair, "tree:4x2x8", 3.0)])
    assert lines[0].startswith("tree:4x2x8: with 3 tokens a round this machine would give 1.76x plain decoding.")
    assert "needs 1.70 tokens to break even" in lines[0]
    assert lines[-1].startswith("These are estimates from forwards that were timed on this machine") and len(lines) == 2


def test_bench_estimates_and_races_nothing(capsys, monkeypatch, embedded):
    monkeypatch.setattr(
        "engine.lab.bench.command.race_prompts_and_compute_figures", lambda *_: pytest.fail("something was raced")
    )
    lines, figures = told(
        capsys, "bench", *SMALL, "--acceptance", "3.0", "--depth", "4", "--systems", "tree,chain", "--shape", "paper"
    )
    assert [row["setting"] for row in figures["estimates"]] == ["tree:4x4x8", "chain:4x1x5"]
    for row in figures["estimates"]:
        assert row["speedup"] == pytest.approx(3.0 / row["break_even"]) and row["verify"] >= 1 and row["draft"] > 0
    assert lines[-1] == forced.ESTIMATED and len(lines) == 4


def test_bench_refuses_to_estimate_and_race_peers_at_once(capsys):
    with pytest.raises(SystemExit):
        run("bench", *SMALL, "--acceptance", "3.0", "--peers")
    assert "--acceptance 3 races nothing, and --peers races" in capsys.readouterr().err


def test_pays_estimates_every_setting_that_has_a_shape_and_says_why_not_of_the_others(pair):
    found = forced.estimate_speedups_or_refusals(pair, ["auto", "tree:2x2x4", "chain:4x1x5"], 3.5)
    assert [row["setting"] for row in found["rows"]] == ["chain:4x1x5"]
    lines = command.format_estimates(found)
    assert "auto sizes every tree itself" in lines[-2] and "tree:2x2x4 yields at most 3 tokens" in lines[-1]
    assert forced.ESTIMATED in lines
    assert forced.ESTIMATED not in command.format_estimates(forced.estimate_speedups_or_refusals(pair, ["auto"], 3.5))
