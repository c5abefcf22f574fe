"""The sentences about a step: what was guessed, what was accepted, what the target wanted."""

import pytest

from engine.page.views.sentence import estimate, quoted, sentence
from helpers.traces import make_step, one_node


def test_a_path_that_used_up_its_branch():
    assert sentence(make_step()) == (
        "5 guesses, 2 accepted: “a little”, then the target's own “fox”. The path reached the tree's last level."
    )


def test_a_branch_shorter_than_the_tree():
    short = make_step(path=[2], burst=[12, 99], parents=[-1, 0, 0, 1, 1, 3])
    assert sentence(short).endswith("The path reached the end of its branch.")


def test_a_bonus_that_no_branch_had():
    step = make_step(path=[1], burst=[11, 99])
    assert sentence(step).endswith("then the target's own “fox”. The target wanted “fox” and no branch had it.")


def test_a_bonus_that_a_branch_had_is_not_called_missing():
    """A speculative rule may turn a branch down and still draw its token from the residual of a twin."""
    assert "no branch had it" not in sentence(make_step(path=[1], burst=[11, 14], bonus=14))


def test_nothing_accepted():
    assert sentence(make_step(path=[], burst=[99])).startswith("5 guesses, none accepted, then the target's own “fox”.")


def test_the_baseline_has_words_of_its_own():
    assert sentence(one_node(burst=[99])) == "No guesses: one forward of the target, one token, “fox”."


@pytest.mark.parametrize(
    ("end", "words"),
    [("stop", "The stop token ended"), ("length", "The length limit ended"), ("context", "context window")],
)
def test_how_the_text_ended(end, words):
    assert words in sentence(make_step(end=end))
    assert words in sentence(one_node(burst=[99], end=end))


def test_what_was_replayed_is_told():
    told = sentence(make_step(replayed=3))
    assert told.endswith(" 3 tokens were replayed, because the target's state stood behind other guesses.")
    assert " 1 token was replayed" in sentence(make_step(path=[], burst=[99], replayed=1, end="stop"))
    assert "replayed" not in sentence(make_step())


def test_a_cut_burst_has_no_bonus():
    cut = sentence(make_step(burst=[11], pieces=[" a"], end="length"))
    assert cut == "5 guesses, 2 accepted, 1 kept: “a”. The length limit ended the text."


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" fox", "“fox”"), ("\n\n", "“⏎⏎”"), ("  ", "“␣␣”"), ("", "“…”"), ("\tx", "“⇥x”"), ("<b>", "“<b>”")],
)
def test_whitespace_does_not_vanish_in_quotes(text, shown):
    assert quoted(text) == shown


def test_the_estimate_names_the_guess_that_drafter_and_target_saw_most_differently():
    """Node 5 differs more, but the target never came to judge it."""
    assert estimate(make_step()) == "The drafter gave “big” 40 %, the target 10 %."


def test_without_a_guess_there_is_no_estimate():
    assert estimate(one_node()) == "Nothing was guessed in this step."
    assert estimate(make_step(verdicts=["root", *["unreached"] * 5])) == "Nothing was guessed in this step."


@pytest.mark.parametrize(
    ("q", "words"), [(1.0, "100 %"), (0.9999, "over 99 %"), (0.995, "over 99 %"), (0.0001, "under 1 %"), (0.0, "0 %")]
)
def test_rounding_claims_no_certainty(q, words):
    step = make_step(q=[1.0, q, 0.3, 0.4, 0.5, 0.7], p=[1.0, 0.5, 0.3, 0.4, 0.5, 0.7])
    assert estimate(step) == f"The drafter gave “a” {words}, the target 50 %."
