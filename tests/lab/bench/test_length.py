"""How cost grows with length: every row is there, and races leave nothing behind."""

import gc
from dataclasses import replace

import pytest
import torch

from engine.lab.bench import length
from engine.race import Race, Settings
from helpers.commands import run, told
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"
NAMES = ["vanilla", "tree", "eagle"]


def measured(capsys, monkeypatch, *arguments: str) -> dict:
    """The figures of a tiny pair half of whose tokens are stop tokens: these are ignored, or hardly any length would be reached."""
    pair = replace(tiny_pair(), stop_ids=frozenset(range(0, 256, 2)))
    monkeypatch.setattr(length, "load_pair_of_options", lambda options: pair)
    lines, figures = told(capsys, "bench --by length", *arguments)
    assert len(lines) == 1 + len(figures["rows"])
    return figures


def test_by_length(capsys, monkeypatch):
    monkeypatch.setattr(length, "LENGTHS", (8, 16, 900))
    rows = measured(capsys, monkeypatch, "--prompts", "1", "--systems", "tree,eagle")["rows"]
    assert [(row["tokens"], row["system"]) for row in rows] == [(n, name) for n in (8, 16) for name in NAMES]
    assert all(row["vs_baseline"] == 1 for row in rows if row["system"] == "vanilla")


@pytest.mark.parametrize(
    ("by", "arguments", "sentence"),
    [
        ("length", ("--prompts", "0"), "--prompts must be between 1 and 20, got 0"),
        ("size", ("--repeats", "0"), "--repeats: must be at least 1, got 0"),
        ("length", ("--systems", "perpetual"), "Unknown system 'perpetual'"),
        ("size", ("--systems", "tree"), "unrecognized arguments: --systems tree"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(capsys, by, arguments, sentence):
    with pytest.raises(SystemExit):
        run(f"bench --by {by}", *arguments)
    assert sentence in capsys.readouterr().err


@pytest.mark.slow
def test_races_leave_no_tensors_behind():
    pair, prompts, alive = tiny_pair(), [TEXT, "Story: A cat"], []
    for count in (3, 10, 10):  # the first ones make what is kept
        for index in range(count):
            settings = Settings(prompts[index % 2], tuple(NAMES), temperature=0.8, max_new_tokens=4, seed=index)
            for _ in Race(pair, settings).run():
                pass
        gc.collect()
        tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
        alive.append((len(tensors), sum(tensor.numel() * tensor.element_size() for tensor in tensors)))
    assert alive[2][0] <= alive[1][0] + 5
    assert alive[2][1] <= alive[1][1] + 2**16
