"""Calibration: what is measured about a pair, on pairs whose answer is known."""

from dataclasses import replace

import pytest

from engine.kernels.expansion import BINS, COPY, FAVOURITE, OTHER, cell_of_score
from engine.lab import calibrate as calibrating
from engine.lab.calibrate import (
    calibrate,
    count_hits_by_score,
    measure_first_acceptance_by_child,
    measure_target_rank_frequencies_by_depth,
    serialise_calibration,
    write_continuations,
)
from engine.race import Settings
from engine.record.calibration import SCORE_CELLS, Calibration, ScoreHitCounts
from engine.systems import SYSTEMS, format_shape
from helpers.pairs import tiny_pair

PROMPTS = ["ab", "the quick brown fox", "x"]


def test_a_draft_that_is_the_target_is_always_right():
    pair = tiny_pair(same=True)
    assert measure_first_acceptance_by_child(pair, write_continuations(pair, PROMPTS, 12, 0.6), 0.6) == pytest.approx(
        [1.0] + [0.0] * 15, abs=1e-4
    )
    assert (
        measure_target_rank_frequencies_by_depth(
            pair, "model", write_continuations(pair, PROMPTS, 20, 0.0), max_depth=4
        )
        == [[1.0] + [0.0] * 15] * 4
    )


def test_chances_and_ranks_of_another_draft_are_distributions():
    pair = tiny_pair()
    chances = measure_first_acceptance_by_child(pair, write_continuations(pair, PROMPTS, 12, 0.6), 0.6)
    assert 0 < chances[0] < 1 and sum(chances) <= 1 + 1e-6
    for name in ("model", "bigram", "lookup"):
        for row in measure_target_rank_frequencies_by_depth(
            pair, name, write_continuations(pair, PROMPTS, 20, 0.0), max_depth=3
        ):
            assert len(row) == 16 and sum(row) <= 1 + 1e-9
    assert measure_target_rank_frequencies_by_depth(pair, "none", write_continuations(pair, PROMPTS, 20, 0.0)) == []


def test_guesses_do_not_depend_on_how_far_rounds_advance():
    """A draft model guesses the same whether the tokens before were committed one or three at a time: every third round is shared."""
    pair = tiny_pair()
    [(prompt, written)] = write_continuations(pair, PROMPTS[1:2], 31, 0.0)
    found = []
    for stride, steps in ((1, [(prompt + written[:at], written[at : at + 3]) for at in range(0, 30, 3)]), (3, None)):
        texts = [(prompt, written)] if steps is None else steps
        found.append(
            measure_target_rank_frequencies_by_depth(pair, "model", texts, max_depth=2, tokens_between_rounds=stride)
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_favourite_of_a_draft_that_is_the_target_comes_true_and_no_other_guess(temperature):
    counts = count_hits_by_score(tiny_pair(same=True), "model", PROMPTS, 12, temperature)
    favourites, others = slice(0, BINS), slice(BINS, None)
    assert sum(counts.guesses[favourites]) > 20 and counts.hits[favourites] == counts.guesses[favourites]
    assert sum(counts.guesses[others]) > 10 and sum(counts.hits[others]) == 0


def test_the_cells_of_scores_are_those_of_the_tree():
    assert SCORE_CELLS == COPY * BINS == cell_of_score(1.0, OTHER) + 1
    assert [cell_of_score(score, FAVOURITE) for score in (0.0, 0.19, 0.2, 0.99, 1.0)] == [0, 1, 2, 9, 9]


def test_shapes_are_counted_by_what_their_rounds_gave_and_took(monkeypatch):
    """A draft that is the target: every guess comes true, so a chain of depth d emits d + 1 tokens for d levels and d + 1 rows."""
    monkeypatch.setattr(calibrating, "TOKENS", 20)
    pair = tiny_pair(same=True)
    texts = [pair.tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    for name, depth in (("chain", 3), ("chain", 1), ("tree", 4)):
        shape = {"depth": depth, "width": 1, "nodes": depth + 1}
        found = calibrating.count_round_means_of_shape(pair, SYSTEMS[name], shape, texts)
        assert found == (depth + 1, depth + 1, depth)
    assert calibrating.count_round_means_of_shape(
        pair, SYSTEMS["lookup"], shape, texts
    ) == calibrating.count_round_means_of_shape(pair, SYSTEMS["lookup"], shape, texts)


def test_every_draft_forward_is_a_level_and_every_level_of_a_forward_too():
    pair = tiny_pair()
    texts = [pair.tokenizer(PROMPTS[1])["input_ids"]]
    one_by_one = calibrating.count_round_means_of_shape(
        pair, SYSTEMS["dyspec"], {"depth": 2, "width": 8, "nodes": 12}, texts
    )
    at_once = calibrating.count_round_means_of_shape(
        pair, SYSTEMS["parallel-tree"], {"depth": 3, "width": 2, "nodes": 7}, texts
    )
    assert one_by_one.draft_levels > 2 and at_once.draft_levels == 3 and at_once.verified_rows == 7


def test_the_shapes_to_try_can_be_grown_and_a_tree_stays_a_tree():
    pair = tiny_pair()
    for system in SYSTEMS.values():
        if not system.guesses or system.sizes_trees:
            continue
        tried = calibrating.list_non_default_candidate_shapes(system)
        assert 4 < len(tried) < 9 and system.default_shape not in tried
        for shape in tried:
            system.build_parts(pair, 100, **shape)
            Settings("a", (f"{system.name}:{format_shape(shape)}",))
            assert (shape["width"] > 1) is system.can_branch


def test_a_calibration_survives_its_file_and_a_pair_without_draft_has_less_of_it(tmp_path, monkeypatch):
    some = {name: SYSTEMS[name] for name in ("vanilla", "tree", "medusa", "auto", "lookup", "forced")}
    for name, few in (("TOKENS", 4), ("PROMPTS", 1), ("HEATS", (0.0,)), ("SYSTEMS", some)):
        monkeypatch.setattr(calibrating, name, few)
    pair = replace(tiny_pair(), draft=None)
    measured = calibrate(pair, PROMPTS, 8, 0.6)
    assert (measured.acceptance, measured.ranks) == ([], {}) and "model" not in measured.score_hits
    whole = calibrate(tiny_pair(), PROMPTS, 20, 0.6)
    assert (
        list(whole.ranks) == ["medusa", "eagle", "model", "dspark", "mtp"]
        and len(whole.acceptance) == 16
        and whole.costs.first_ms > 0
        and set(whole.costs.verify_ms) > {1, 8, 64}
    )
    assert list(whole.score_hits) == ["eagle", "model", "dspark", "mtp"]
    # Plain decoding does not guess, `auto` has limits; there is nothing to look up in so few tokens, and nothing is forced
    assert list(whole.shapes) == ["tree", "medusa"]
    assert all(next(iter(tried)) == format_shape(SYSTEMS[name].default_shape) for name, tried in whole.shapes.items())
    path = tmp_path / "calibration.json"
    path.write_text(serialise_calibration(whole))
    loaded = Calibration.load(path)
    assert serialise_calibration(loaded) == path.read_text() and replace(loaded, costs=whole.costs) == whole
    wrong = '{"costs": {"verify_ms": {}, "first_ms": 0, "level_ms": 0}, "shapes": {"tree": {"%s": [%s]}}}'
    refused = (wrong % ("4x4", "2, 8, 4"), wrong % ("4x4x8", "2, 8"), wrong % ("4x4x8", '"a", 8, 4'))
    for other in ("{}", '{"costs": {"verify_ms": {}, "first_ms": 0, "level_ms": 0}, "ranks": [[0.5]]}', *refused):
        path.write_text(other)
        with pytest.raises(ValueError, match=r"is no calibration: .* Measure one with `python -m engine calibrate`"):
            Calibration.load(path)


@pytest.mark.parametrize("broken", [([1] * 20, [0] * 20), ([-1] * 20, [0] * 20), ([0] * 3, [1] * 3)])
def test_counts_that_cannot_be_are_refused(tmp_path, broken):
    path, right = tmp_path / "calibration.json", ScoreHitCounts([0] * 20, [1] * 20)
    path.write_text(serialise_calibration(Calibration(score_hits={"eagle": (right, ScoreHitCounts(*broken))})))
    with pytest.raises(ValueError, match=r"are no counts of 20 kinds of guesses\. Measure one with"):
        Calibration.load(path)
