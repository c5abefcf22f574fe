"""Calibration: what is measured about a pair, on pairs whose answer is known."""

from dataclasses import replace

import pytest

from engine.lab.calibrate import acceptance, calibrate, continued, ranks, text_of
from engine.record.calibration import Calibration
from helpers.pairs import tiny_pair

PROMPTS = ["ab", "the quick brown fox", "x"]


def test_a_draft_that_is_the_target_is_always_right():
    pair = tiny_pair(same=True)
    assert acceptance(pair, continued(pair, PROMPTS, 12, 0.6), 0.6) == pytest.approx([1.0] + [0.0] * 15, abs=1e-4)
    assert ranks(pair, "model", continued(pair, PROMPTS, 20, 0.0), depth=4) == [[1.0] + [0.0] * 15] * 4


def test_chances_and_ranks_of_another_draft_are_distributions():
    pair = tiny_pair()
    chances = acceptance(pair, continued(pair, PROMPTS, 12, 0.6), 0.6)
    assert 0 < chances[0] < 1 and sum(chances) <= 1 + 1e-6
    for name in ("model", "bigram", "lookup"):
        for row in ranks(pair, name, continued(pair, PROMPTS, 20, 0.0), depth=3):
            assert len(row) == 16 and sum(row) <= 1 + 1e-9
    assert ranks(pair, "none", continued(pair, PROMPTS, 20, 0.0)) == []


def test_guesses_do_not_depend_on_how_far_rounds_advance():
    """A draft model guesses the same whether the tokens before were committed one or three at a time: every third round is shared."""
    pair = tiny_pair()
    [(prompt, written)] = continued(pair, PROMPTS[1:2], 31, 0.0)
    found = []
    for stride, steps in ((1, [(prompt + written[:at], written[at : at + 3]) for at in range(0, 30, 3)]), (3, None)):
        texts = [(prompt, written)] if steps is None else steps
        found.append(ranks(pair, "model", texts, depth=2, stride=stride))
    assert found[0] == found[1]


def test_a_calibration_survives_its_file_and_a_pair_without_draft_has_less_of_it(tmp_path):
    pair = replace(tiny_pair(), draft=None)
    measured = calibrate(pair, PROMPTS, 8, 0.6, repeats=1)
    assert (measured.acceptance, measured.ranks, measured.draft_ms) == ([], {}, 0.0)
    whole = calibrate(tiny_pair(), PROMPTS, 20, 0.6, repeats=1)
    assert (
        list(whole.ranks) == ["medusa", "eagle", "model", "dspark", "mtp"]
        and len(whole.acceptance) == 16
        and whole.draft_ms > 0
        and set(whole.verify_ms) > {1, 8, 64}
    )
    path = tmp_path / "calibration.json"
    path.write_text(text_of(whole))
    assert Calibration.load(path) == whole
    for other in ("{}", '{"verify_ms": {}, "ranks": [[0.5]]}'):
        path.write_text(other)
        with pytest.raises(ValueError, match=r"is no calibration: .* Measure one with `python -m engine calibrate`"):
            Calibration.load(path)
