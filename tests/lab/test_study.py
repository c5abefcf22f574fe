"""The study: verdicts on made-up counts, what the table of claims must hold, and short runs; the figures themselves are not judged."""

import re
from dataclasses import replace

import pytest

from engine.lab.study import command, counts
from engine.lab.study.claims import CLAIMS, DRAFT_FORWARD, Claim, SystemComparison
from engine.lab.study.command import (
    CONFIRMED,
    NOT_CONFIRMED,
    NOT_TESTABLE,
    bootstrap_gain_over_prompts,
    judge_claim_by_gains,
)
from engine.lab.study.counts import CachedStudyCounts, TextCounts
from engine.race import SHAPE
from engine.systems import SYSTEMS, is_sound_policy_for_acceptance, resolve_system_name
from helpers.commands import printed, told
from helpers.pairs import tiny_pair

ONES = [1.0] * 12
STORIES = [f"Story: {name} had a" for name in ("Tom", "Lily", "Ben", "Mia", "Sam", "Ann", "Max", "Eva", "Tim", "Sue")]


# ---- from counts to a verdict


@pytest.mark.parametrize(
    ("more", "published", "says", "why"),
    [
        ([1.02, 1.04] * 6, 1.0, CONFIRMED, "The interval lies above 1."),
        ([1.02, 1.10] * 6, 1.05, CONFIRMED, "The interval lies above 1 and reaches the published 1.05 times."),
        ([1.20, 1.30] * 6, 1.05, CONFIRMED, "reaches the published"),
        ([1.02, 1.04] * 6, 1.05, NOT_CONFIRMED, "a: there is a gain, but a smaller one than the published 1.05 times"),
        ([0.80, 1.50] * 6, 1.0, NOT_CONFIRMED, "a: the interval holds 1, so 12 prompts show no gain"),
        (ONES, 1.0, NOT_CONFIRMED, "a: the interval holds 1"),
        ([0.90, 0.95] * 6, 1.0, NOT_CONFIRMED, "a: it is a loss"),
        ([2.00] * 9, 1.0, NOT_TESTABLE, "An interval over 9 prompts says too little. Give at least 10."),
    ],
)
def test_a_gain_is_confirmed_by_its_whole_interval_and_by_the_published_size(more, published, says, why):
    found = judge_claim_by_gains({"a": bootstrap_gain_over_prompts(more, [1.0] * len(more), published)})
    assert found[0] == says and why in found[1]


def test_a_gain_of_the_mean_alone_confirms_nothing():
    found = bootstrap_gain_over_prompts([0.80, 1.50] * 6, ONES)
    assert found.ratio > 1.05 and found.low < 1 < found.high and judge_claim_by_gains({"a": found})[0] == NOT_CONFIRMED


def test_prompts_are_compared_with_themselves():
    texts = [1.0, 2.0, 3.0, 4.0] * 3
    found = bootstrap_gain_over_prompts([1.1 * each for each in texts], texts)
    assert (found.low, found.ratio, found.high) == pytest.approx((1.1, 1.1, 1.1))
    assert found.more / found.than == pytest.approx(found.ratio)


def test_every_comparison_of_a_claim_must_hold():
    good, bad = bootstrap_gain_over_prompts([1.5] * 12, ONES), bootstrap_gain_over_prompts([0.5] * 12, ONES)
    assert judge_claim_by_gains({"a": good, "b": bad}) == (NOT_CONFIRMED, "b: it is a loss")
    assert judge_claim_by_gains({"a": good, "b": good}) == (CONFIRMED, "Every interval lies above 1.")


def test_what_is_out_of_reach_stays_so_whatever_is_counted():
    assert judge_claim_by_gains({"a": bootstrap_gain_over_prompts([9.0] * 12, ONES)}, "It takes a clock.") == (
        NOT_TESTABLE,
        "It takes a clock.",
    )


def test_tokens_are_added_up_over_temperatures_before_they_are_divided():
    by_temperature = [[TextCounts(6, 2, 0, 3), TextCounts(4, 4)], [TextCounts(2, 2, 0, 1), TextCounts(8, 2)]]
    assert command.compute_tokens_per_forward(by_temperature, "target forward") == [2.0, 2.0]
    assert command.compute_tokens_per_forward(by_temperature, DRAFT_FORWARD) == [
        2.0,
        12.0,
    ]  # the second drafted nothing


# ---- the table of claims


def test_every_row_that_comes_from_a_paper_has_a_claim():
    papers = {name for name, system in SYSTEMS.items() if re.search(r"\b20\d\d\b", system.source)}
    assert {claim.system for claim in CLAIMS} == papers
    assert {"block", "traversal", "gbv", "suffix", "recycling", "lookahead", "talon", "dflash", "dspark"} <= papers


# The baseline, ours, what others start from, and other shapes or training of what has a claim
WITHOUT_CLAIM = {
    *("vanilla", "auto", "nanogpt-tree", "naive", "dyspec", "dyspec-threshold", "parallel-tree"),
    *("specblock", "specblock-adapt"),
}


def test_no_row_is_added_without_a_claim():
    """Whoever adds a row counts what it claims."""
    assert SYSTEMS.keys() - {claim.system for claim in CLAIMS} == WITHOUT_CLAIM


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.system}: {claim.statement[:30]}")
def test_systems_are_compared_at_equal_shapes_and_rules_on_trees_that_they_may_judge(claim):
    assert (
        claim.comparisons
        and claim.temperatures
        and (not claim.untestable_reason or claim.untestable_reason.endswith("."))
    )
    for beside in claim.comparisons:
        if beside.tree_system:
            assert all(
                is_sound_policy_for_acceptance(resolve_system_name(beside.tree_system).policy, rule)
                for rule in (beside.claimed_better, beside.compared_with)
            )
            assert (
                not claim.on_repeating_texts and not claim.with_answer_memory
            )  # rules are compared on the held-out prompts
        elif beside.compared_with != "vanilla":
            more, than = (
                [getattr(resolve_system_name(name), part) for part in SHAPE]
                for name in (beside.claimed_better, beside.compared_with)
            )
            assert more == than
        assert claim.system in beside.name  # the row itself is counted


# ---- counts


@pytest.fixture(scope="module")
def sure():
    """A pair whose draft is the target, so that a chain is always accepted."""
    return tiny_pair(same=True)


def made_up(*beside: SystemComparison, **fields) -> Claim:
    return Claim("tree", "It holds.", beside, **fields)


def test_a_gain_that_is_there_is_confirmed(sure):
    claim = made_up(SystemComparison("model/chain/token_match:3x1x4", "vanilla", published_ratio=4.0))
    row = command.measure_and_judge_claim(CachedStudyCounts(sure, STORIES, 8), claim, (0.0,))
    [found] = row["counted"]
    assert (found["more"], found["than"], found["ratio"]) == pytest.approx((4.0, 1.0, 4.0)) and found["nodes"] == [
        4.0,
        1.0,
    ]
    assert row["verdict"] == CONFIRMED and found["prompts"] == len(STORIES)
    assert "4.00 and 1.00 tokens with 4.0 and 1.0 nodes, 4.000 times (4.000 to 4.000)" in command.format_claim_row(row)


def test_two_rules_judge_the_same_trees_and_a_rule_beside_itself_shows_no_gain(sure):
    drafts = "model/chain/speculative:4x1x5"
    row = command.measure_and_judge_claim(
        CachedStudyCounts(sure, STORIES, 6), made_up(SystemComparison("block", "block", drafts)), (0.8,)
    )
    assert row["verdict"] == NOT_CONFIRMED and row["counted"][0]["ratio"] == 1
    assert row["counted"][0]["more"] > 2  # a block keeps all that a sure draft guesses
    block, match = CachedStudyCounts(sure, STORIES, 6).counts_of_rules(drafts, ("block", "token_match"), 0.8)
    assert [each.target_forwards for each in block] == [each.target_forwards for each in match]
    assert sum(each.tokens for each in block) > sum(each.tokens for each in match)  # it draws tokens of its own


def test_a_row_that_the_pair_cannot_run_is_left_out_with_the_reason(sure):
    pair = replace(sure, learned={})
    claim = next(claim for claim in CLAIMS if claim.system == "dflash")
    row = command.measure_and_judge_claim(CachedStudyCounts(pair, STORIES, 4), claim, (0.0,))
    assert (row["verdict"], row["counted"]) == (NOT_TESTABLE, [])
    assert "has no trained DFlash drafter" in row["why"] and "| nothing | not testable" in command.format_claim_row(row)


def test_a_constraint_is_not_tested_on_a_pair_whose_texts_cannot_end(sure):
    claim = next(claim for claim in CLAIMS if claim.constraint)
    row = command.measure_and_judge_claim(CachedStudyCounts(sure, STORIES, 4), claim, (0.0,))
    assert (row["verdict"], row["counted"]) == (NOT_TESTABLE, []) and "needs a stop token" in row["why"]


def test_what_two_claims_need_is_counted_once_and_memory_lasts_for_one_count(sure, monkeypatch):
    seen = []

    def written(pair, prompts, *others):
        seen.append((pair.memory, len(prompts), *others))
        return []

    monkeypatch.setattr(counts, "decode_prompts_untimed", written)
    counting = CachedStudyCounts(sure, STORIES, 4)
    for name in ("suffix", "suffix", "lookup"):
        counting.counts_of_system(name, 0.0, with_answer_memory=True)
    counting.counts_of_system("suffix", 0.0)
    assert [others for _, *others in seen] == [[10, name, 4, 0.0, ""] for name in ("suffix", "lookup", "suffix")]
    first, second, without = (memory for memory, *_ in seen)
    assert first is not None and second is not None and first is not second and without is None


def test_texts_that_repeat_themselves_hold_the_prompt_and_its_answer(sure):
    [text] = counts.write_self_repeating_prompts(sure, STORIES[:1], 6)
    assert text.startswith(STORIES[0]) and text.endswith("\n\n" + STORIES[0]) and len(text) > 2 * len(STORIES[0]) + 2
    with pytest.raises(ValueError, match="context window"):
        counts.write_self_repeating_prompts(sure, ["word " * 20], 6)


# ---- the command


def test_the_command_prints_a_row_for_every_claim_and_its_figures_last(capsys, monkeypatch):
    pair = tiny_pair(stop_ids=frozenset({0}))
    monkeypatch.setattr(command, "load_pair_of_options", lambda options: replace(pair, learned={}))
    monkeypatch.setattr(counts, "JUDGEMENTS", 1)
    arguments = ("--prompts", "1", "--tokens", "2", "--domains", "stories", "--temperatures", "0.6")
    lines, figures = told(capsys, "study", *arguments)
    rows = [line for line in lines if line.startswith("| ")]
    assert rows[0] == "| claim | source | counted | verdict | why |"
    assert len(rows) - 1 == len(figures["claims"]) == len(CLAIMS)
    assert all(row["verdict"] == NOT_TESTABLE and row["why"] for row in figures["claims"])  # from one prompt
    assert {claim["row"] for claim in figures["claims"] if not claim["counted"]} == {
        *("dflash", "dspark", "eagle", "talon", "medusa", "medusa-typical", "mtp")
    }
    again, figures = told(capsys, "study", *arguments, "--claims", "gbv")
    assert again[-1] in rows and [row["row"] for row in figures["claims"]] == ["gbv"]


def test_an_unknown_claim_is_refused_before_anything_is_loaded(capsys):
    with pytest.raises(SystemExit):
        printed(capsys, "study", "--claims", "perpetual motion")
    assert "Unknown claim 'perpetual motion'. Available: block, traversal," in capsys.readouterr().err
    with pytest.raises(SystemExit):
        printed(capsys, "study", "--tokens", "0")
    assert "Max new tokens must be between 1 and 900, got 0." in capsys.readouterr().err
