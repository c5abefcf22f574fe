"""Growth: every part is measured, an interrupted run keeps what it has, and races leave nothing behind."""

import gc
import json
from dataclasses import replace

import pytest
import torch

from engine.measure import growth
from engine.race import Race, Settings
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"


def printed(capsys, monkeypatch, pair, *arguments: str) -> list[str]:
    monkeypatch.setattr(growth, "load_given", lambda options: pair)
    growth.main(list(arguments))
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_growth_measures_every_part(capsys, monkeypatch):
    monkeypatch.setattr(growth, "LENGTHS", (8, 16, 900))
    pair = replace(tiny_pair(), stop_ids=frozenset(range(0, 256, 2)))  # ignored, or hardly any length would be reached
    lines = printed(
        capsys, monkeypatch, pair, "--prompts", "1", "--repeats", "1", "--races", "30", "--systems", "tree,eagle"
    )
    figures = json.loads(lines[-1])
    parts = figures["parts"]
    assert list(parts) == list(growth.PARTS) and figures["interrupted"] is False
    assert [line for line in lines if line in growth.PARTS] == list(growth.PARTS)
    names = ["vanilla", "tree", "eagle"]
    assert [(row["tokens"], row["system"]) for row in parts["tokens"]] == [(n, s) for n in (8, 16) for s in names]
    assert all(row["vs_baseline"] == 1 for row in parts["tokens"] if row["system"] == "vanilla")
    assert [row["nodes"] for row in parts["tree"]] == list(growth.NODES) and parts["tree"][0]["vs_one"] == 1
    assert [(row["context"], row["system"]) for row in parts["context"]] == [(n, s) for n in (64, 128) for s in names]
    assert all(row["tau"] == 1 for row in parts["context"] if row["system"] == "vanilla")
    assert all(row["round_growth"] == row["token_growth"] == 1 for row in parts["context"] if row["context"] == 64)
    [memory] = parts["memory"]
    assert memory["races"] == len(memory["mib"]) == 30 and memory["growth"] == memory["last_ten"] - memory["second_ten"]


def test_growth_keeps_what_is_done_when_interrupted(capsys, monkeypatch):
    def interrupt(run):
        raise KeyboardInterrupt

    monkeypatch.setitem(growth.PARTS, "context", interrupt)
    with pytest.raises(SystemExit) as ended:
        printed(capsys, monkeypatch, tiny_pair(), "--parts", "context", "tree", "--repeats", "1")
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert ended.value.code == 130 and figures["interrupted"] is True and list(figures["parts"]) == ["tree"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--parts", "memory", "--races", "5"), "--races must be at least 30, got 5"),
        (("--prompts", "0"), "--prompts must be between 1 and 20, got 0"),
        (("--repeats", "0"), "--repeats must be at least 1, got 0"),
        (("--parts", "tree", "--systems", "perpetual"), "Unknown system 'perpetual'"),
    ],
)
def test_growth_refuses_in_a_sentence(capsys, monkeypatch, arguments, sentence):
    with pytest.raises(SystemExit):
        printed(capsys, monkeypatch, tiny_pair(), *arguments)
    assert sentence in capsys.readouterr().err


def test_a_forced_race_writes_exactly_the_length_asked_for():
    run = growth.Run(tiny_pair(stop_ids=frozenset(range(256))), [TEXT], ["tree"], 1, 30)
    lanes = run.race(run.long_prompt(0, 64), 20)
    assert [len(lane.trace.tokens) for lane in lanes] == [20, 20]
    assert lanes[0].trace.tokens == lanes[1].trace.tokens and len(lanes[0].trace.prompt_tokens) == 64
    with pytest.raises(ValueError, match="150 tokens of prompt and 20 new ones do not fit the context window of 160"):
        run.race(run.long_prompt(0, 150), 20)


@pytest.mark.slow
def test_races_leave_no_tensors_behind():
    run, alive = growth.Run(tiny_pair(), [TEXT, "Story: A cat"], ["tree", "eagle"], 1, 30), []
    for _ in range(3):
        for index in range(10):
            settings = Settings(run.prompts[index % 2], run.lanes, temperature=0.8, max_new_tokens=4, seed=index)
            for _ in Race(run.pair, settings).run():
                pass
        gc.collect()
        tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
        alive.append((len(tensors), sum(tensor.numel() * tensor.element_size() for tensor in tensors)))
    assert alive[2][0] <= alive[1][0] + 5
    assert alive[2][1] <= alive[1][1] + 2**16
