"""The figures of the doctor of a learned drafter, by hand: rounds, clear gains, lengths of context, and what a folder says."""

import json
import shutil

import numpy as np
import pytest
import torch

from engine.lab.pays import drafter, followed
from engine.lab.pays.drafter import drafter_folder_of, is_significant_mean_gain, trained_context_length_of
from engine.lab.pays.experiments import RepairExperiment, layers_needed_by_experiments
from engine.lab.pays.followed import (
    DrafterInputChange,
    TargetWrittenText,
    TopGuessesByRound,
    choose_context_lengths,
    count_tokens_by_round,
)
from engine.models.loading import load
from engine.models.pairs import MODELS
from engine.nets import load_net_from_folder
from helpers.pairs import tiny_pair

SHIPPED = MODELS / "small" / "drafters"


@pytest.fixture(scope="module")
def pair():
    return load("small", device="cpu")


def test_rounds_are_counted_up_to_the_first_wrong_guess_and_at_other_places():
    tokens = np.array([[9, 1, 2, 3, 4, 5, 6, 7]])
    plain = TopGuessesByRound(np.array([[1, 2, 0, 4, -1, -1]]), tokens, np.array([5]), np.array([0]))
    assert (
        count_tokens_by_round(plain.match_guesses_with_text()).tolist() == [3] and plain.match_guesses_with_text()[0, 3]
    )
    later = TopGuessesByRound(np.array([[2, 3, 4, 5, 6, 7]]), tokens, np.array([5]), np.array([0]))
    assert count_tokens_by_round(later.match_guesses_with_text()).tolist() == [1] and count_tokens_by_round(
        later.match_guesses_with_text(depth_offset=1)
    ).tolist() == [7]
    assert count_tokens_by_round(later.match_guesses_with_text(map_token_ids=lambda ids: ids - 1)).tolist() == [7]
    depths = list(drafter.acceptance_by_depth(plain))
    assert [(row["rounds"], row["accepted"]) for row in depths] == [(1, 1), (1, 1), (1, 0)]


def test_a_gain_is_clear_by_texts_and_not_by_rounds():
    texts = np.array([0] * 50 + [1])
    assert not is_significant_mean_gain(np.array([1.0] * 50 + [-0.9]), texts)
    assert is_significant_mean_gain(np.array([1.0] * 50 + [1.1]), texts)
    assert not is_significant_mean_gain(np.array([1.0] * 50), np.zeros(50))  # one text says nothing of others


def test_a_fall_is_half_of_the_right_guesses_at_least():
    texts, free = np.arange(8), np.arange(8) < 4
    far = np.array([4.0, 4.2, 3.8, 4.0, 1.9, 2.0, 2.1, 2.0])
    assert drafter.are_suspect_rounds_significantly_worse(far, free, ~free, texts)
    assert not drafter.are_suspect_rounds_significantly_worse(far, ~free, free, texts)
    assert not drafter.are_suspect_rounds_significantly_worse(
        np.where(free, far, far + 1), free, ~free, texts
    )  # another text may be harder to guess
    assert not drafter.are_suspect_rounds_significantly_worse(
        far, free, texts == 4, texts
    )  # one text says nothing of others


@pytest.mark.parametrize(("trained", "cause"), [(0, "context"), (300, "context"), (1000, "none")])
def test_a_fall_behind_long_contexts_is_told_though_no_window_repairs_it_and_is_not_taken_for_other_text(
    trained, cause, pair
):
    """Four texts of free writing, four behind short contexts and four behind long ones, where no guess is right."""
    texts, groups = np.arange(12), ["free writing"] * 4 + ["code"] * 8
    tokens = np.tile(np.arange(8), (12, 1))
    guesses = np.where((texts > 7)[:, None], -1, tokens[:, 1:7])
    plain = TopGuessesByRound(guesses, tokens, np.where(texts > 7, 900, 50), texts)
    read = [TargetWrittenText([0], 0, group, (1,), torch.zeros(1, 2, 1)) for group in groups]
    net = load_net_from_folder(SHIPPED / "medusa", pair.target.model)
    found, said = drafter.find_likeliest_cause_and_reason(
        net, read, plain, [drafter.ExperimentResult(None, np.ones(12), None)], trained
    )
    assert found == cause, said
    if cause == "context":
        assert f"gives 7.00 tokens a round behind up to {trained or 256} tokens and 1.00 behind more" in said


def test_lengths_reach_beyond_the_trained_context_as_far_as_the_window_does(pair, monkeypatch):
    monkeypatch.setattr(followed, "LENGTHS", (256, 512, 1024))
    assert choose_context_lengths(pair, 512) == [256, 512, 640]
    assert choose_context_lengths(pair, 0) == [256, 512]  # the window holds 1,024 tokens, and some must be written
    assert choose_context_lengths(pair, 128) == [160, 256, 512]  # a drafter is used beyond what it was trained for


def test_a_config_that_repeats_the_targets_window_tells_nothing_of_training(tmp_path):
    layer = {"max_position_embeddings": 1024}
    for said in (layer, {"transformer_layer_config": layer, "max_position_embeddings": 7}):
        (tmp_path / "config.json").write_text(json.dumps(said))
        assert [trained_context_length_of(tmp_path, window) for window in (1024, 2048)] == [0, 1024]
    assert trained_context_length_of(SHIPPED / "eagle", 1024) == 0


def test_an_experiment_about_long_contexts_is_judged_by_long_contexts_alone():
    """The window helps two of twelve texts; over all rounds that would be no clear gain."""
    texts, long = np.arange(12), np.arange(12) > 9
    tokens = np.tile(np.arange(8), (12, 1))
    guesses = np.where(long[:, None], -1, tokens[:, 1:7])
    plain = TopGuessesByRound(guesses, tokens, np.where(long, 900, 50), texts)
    now = count_tokens_by_round(plain.match_guesses_with_text())
    window = RepairExperiment(
        "context", "a window", None, DrafterInputChange(context_window=128), min_context_tokens=256
    )
    helped = drafter.ExperimentResult(window, np.where(long, 3.0, now), plain.context_lengths > 256)
    assert drafter.find_best_repair(plain, [helped]) is helped
    assert not is_significant_mean_gain(helped.tokens_by_round - now, texts)
    useless = drafter.ExperimentResult(window, np.where(long, 1.0, 9.0), plain.context_lengths > 256)
    assert drafter.find_best_repair(plain, [useless]) is None


def test_only_the_layers_that_some_experiment_shows_are_kept(pair):
    net = load_net_from_folder(SHIPPED / "eagle", pair.target.model)
    assert layers_needed_by_experiments(net, 36) == (2, 8, 9, 17, 18, 33, 34, 35)  # no layer behind the last but one
    assert layers_needed_by_experiments(load_net_from_folder(SHIPPED / "medusa", pair.target.model), 36) == (9, 18, 35)


def test_one_drafters_folder_is_found_by_its_config_or_as_the_only_one_inside(tmp_path):
    assert drafter_folder_of(SHIPPED / "eagle") == SHIPPED / "eagle"
    shutil.copytree(SHIPPED / "medusa", tmp_path / "medusa")
    assert drafter_folder_of(tmp_path) == tmp_path / "medusa"


@pytest.mark.parametrize(("elsewhere", "cause"), [((6.0, 7.0), "target"), ((1.0, 7.0), "none"), ((1.0, 1.2), "none")])
def test_another_target_is_named_only_where_features_are_clearly_worth_little(elsewhere, cause, pair):
    """With features of other places, every second text gives the one number of tokens a round and the others the other one."""
    texts, tokens = np.arange(12), np.tile(np.arange(8), (12, 1))
    plain = TopGuessesByRound(tokens[:, 1:7], tokens, np.full(12, 50), texts)
    read = [TargetWrittenText([0], 0, "code", (1,), torch.zeros(1, 2, 1))] * 12
    net = load_net_from_folder(SHIPPED / "medusa", pair.target.model)
    mixed = drafter.ExperimentResult(None, np.where(texts % 2, *elsewhere), None)
    found, said = drafter.find_likeliest_cause_and_reason(net, read, plain, [mixed], 0)
    assert found == cause, said


STORIES = ["Story: Once upon a time", "Story: A cat saw a dog", "Story: Tom and Lily went to the park"]


def test_a_context_is_other_prompts_in_front_of_the_prompt():
    pair = tiny_pair()
    for index, story in enumerate(STORIES):
        own, before = (pair.tokenizer(text)["input_ids"] for text in (story, STORIES[index - 1]))
        for length in (1, 5, len(own), len(own) + 3, len(own) + len(before) + 2, 150):
            found = followed.prepend_earlier_prompts_to_length(pair, STORIES, index, length)
            assert len(found) == length and found[-len(own) :] == own[-length:]
            if length > len(own):
                rest = found[: -len(own)]
                assert rest[-len(before) :] == before[-len(rest) :]


def test_the_token_that_begins_a_text_stays_first_and_only_there(monkeypatch):
    pair = tiny_pair()
    monkeypatch.setattr(followed, "encode_prompt", lambda pair, prompt: [0, *pair.tokenizer(prompt)["input_ids"]])
    pair.tokenizer.bos_token = pair.tokenizer.convert_ids_to_tokens(0)
    found = followed.prepend_earlier_prompts_to_length(pair, STORIES, 1, 120)
    assert len(found) == 120 and found[0] == 0 and 0 not in found[1:]
    assert followed.prepend_earlier_prompts_to_length(pair, STORIES, 1, 6) == [
        0,
        *pair.tokenizer(STORIES[1])["input_ids"][-5:],
    ]
