"""Training a drafter on for a person's own prompts: who is held out, what is written, what resumes, and what is refused."""

import json
import re
from argparse import Namespace
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.forward.runner import Runner
from engine.lab.train import features, learned, own_prompts, recipes, writing
from engine.lab.train.loop import learning_rate_factor
from engine.lab.train.own_prompts import (
    compare_tau,
    load_or_write_continuation_rows,
    split_prompts_into_training_and_held_out,
)
from engine.lab.train.writing import continue_prompts_to_full_rows
from engine.measure.prompts import read_prompts
from engine.nets import load_net_from_folder
from engine.nets.dflash import BlockLayerMask
from engine.sampling import build_generator_from_key
from helpers import checkpoints
from helpers.commands import run
from helpers.pairs import tiny_llama

PROMPTS = [f"{word} {number}." for word in ("One fox", "Two hens", "Old Ned", "A pond") for number in range(1, 5)]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A random target, whose greedy text soon repeats itself, so that a drafter learns it within seconds."""
    folder = tmp_path_factory.mktemp("target")
    checkpoints.write(folder, num_hidden_layers=4, max_position_embeddings=512)
    return folder


@pytest.fixture
def options(target, tmp_path, monkeypatch):
    """What the command is asked: an untrained drafter to go on from, 16 prompts, and a few steps."""
    for room in (writing, features, own_prompts):
        monkeypatch.setattr(room, "ROW", 48)
    for name, value in {"TOKENS": 24, "AT_ONCE": 16, "HELD_OUT_ROWS": 16, "RATE": 3.0}.items():
        monkeypatch.setattr(own_prompts, name, value)
    file, start = tmp_path / "my.jsonl", tmp_path / "start"
    file.write_text("\n".join(map(json.dumps, PROMPTS)), encoding="utf-8")
    model = checkpoints.write(tmp_path / "copy", num_hidden_layers=4, max_position_embeddings=512)
    torch.manual_seed(0)
    config = learned.drafter_config_for("eagle", model)
    learned.RECIPES["eagle"].build_untrained_net(model, config, torch.arange(256).repeat(2)).save(start)
    return Namespace(
        recipe="eagle", prompts=file, data=None, start=start, out=tmp_path / "better", work=tmp_path / "work",
        pair="small", target=str(target), revision=None, raw=False, device="cpu", own_rows=32, minutes=1.0,
        tokens=23_000, rows=8, hidden=None, domains=list(learned.DOMAINS), bf16=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_better_drafter_is_written_with_its_figures_and_drafts_as_measured(options, capsys):
    figures = recipes.main(options)
    said = capsys.readouterr().out.strip().splitlines()[-1]
    assert figures["written"] and figures["after"] > figures["before"] + 0.2 and figures["held_out"] == 4
    assert said.startswith(f"eagle now writes {figures['after']:.2f} tokens a round on 4 held-out prompts, before ")
    folder = options.out / "eagle"
    assert json.loads((folder / "figures.json").read_text()) == figures
    pair = own_prompts.load(own_prompts.Pair("own", "own", options.target), "cpu")
    held_out = split_prompts_into_training_and_held_out(PROMPTS)[1]
    again = own_prompts.race_and_count_tokens_and_forwards(
        pair, load_net_from_folder(folder, pair.target.model), held_out, "again"
    )
    assert again[:, 0].sum() / again[:, 1].sum() == figures["after"]


@pytest.mark.slow
def test_a_drafter_that_got_worse_is_not_written_and_the_sentence_says_by_how_much(options, capsys, monkeypatch):
    recipes.main(options)
    options.start, options.out = options.out / "eagle", options.out / "more"
    monkeypatch.setattr(own_prompts, "RATE", -300.0)  # away from what was learnt
    options.tokens = 8_000
    figures = recipes.main(options)
    said = capsys.readouterr().out.strip().splitlines()[-1]
    assert not figures["written"] and figures["after"] < figures["before"] and not options.out.exists()
    fewer = float(re.search(r"([0-9.]+) % fewer", said)[1])
    assert fewer == pytest.approx(100 * (1 - figures["after"] / figures["before"]), abs=0.06)
    assert "Nothing is written." in said and str(options.start) in said


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_where_it_was(options, monkeypatch):
    """Rows that were written stay, and so do the steps. Another file of prompts begins anew."""
    real, calls = own_prompts.continue_prompts_to_full_rows, []

    def stopping(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(own_prompts, "continue_prompts_to_full_rows", stopping)
    with pytest.raises(KeyboardInterrupt):
        recipes.main(options)
    [kept] = options.work.rglob("own.npy")
    first = np.load(kept)
    assert len(first) == 16
    options.tokens = 3_000
    recipes.main(options)
    assert len(calls) == 4 and np.array_equal(np.load(kept)[:16], first)  # the other half, and the held-out rows
    options.tokens = 6_000
    recipes.main(options)
    [log] = options.work.rglob("eagle.log.jsonl")
    steps = [json.loads(line)["tokens"] for line in log.read_text().splitlines()]
    assert len(calls) == 4 and len(steps) == 2 and 3_000 <= steps[0] < steps[1]
    options.prompts.write_text("\n".join(map(json.dumps, PROMPTS[1:])), encoding="utf-8")
    recipes.main(options)
    assert len(calls) == 7


def test_nothing_held_out_is_trained_on(monkeypatch, tmp_path):
    """Each text once, the same ones whatever the order, and rows that begin and go on with prompts of the other share."""
    learn, held_out = split_prompts_into_training_and_held_out([*PROMPTS, PROMPTS[3]])
    assert sorted(learn + held_out) == sorted(PROMPTS) and len(held_out) == 4
    assert sorted(split_prompts_into_training_and_held_out(PROMPTS[::-1])[1]) == sorted(held_out)
    monkeypatch.setattr(writing, "ROW", 24)
    monkeypatch.setattr(own_prompts, "ROW", 24)
    runner, seen = Runner(tiny_llama(0)), []

    def watched(runner, prompts, temperature, draws, stops, others):
        seen.extend(prompts + [next(others) for _ in range(20)])
        return continue_prompts_to_full_rows(runner, prompts, temperature, draws, stops, others)

    monkeypatch.setattr(own_prompts, "continue_prompts_to_full_rows", watched)
    ids = [list(prompt.encode()) for prompt in learn]
    rows = load_or_write_continuation_rows(runner, ids, 40, tmp_path / "own.npy", frozenset({9}))
    assert rows.shape == (40, 24) and {tuple(each) for each in seen} == {tuple(each) for each in ids}
    openings = [bytes(row.tolist()).startswith(bytes(prompt)) for row in rows for prompt in ids]
    assert sum(openings) == 40


@pytest.mark.parametrize("twice", [False, True])
def test_behind_a_text_that_ends_another_prompt_follows(monkeypatch, twice):
    """As one text at a time by forwards of one token; a token that ends and begins texts stands there once."""
    monkeypatch.setattr(writing, "ROW", 24)
    model, prompts = tiny_llama(0), [[3, 80, 33], [9, 120], [200, 41, 7, 6]]
    runner = Runner(model)
    plain = continue_prompts_to_full_rows(runner, prompts, 0.0, build_generator_from_key("none"))
    stop = int(plain[0, 5])
    other = [stop, 17, 18] if twice else [17, 18]
    rows = continue_prompts_to_full_rows(
        runner, prompts, 0.0, build_generator_from_key("none"), {stop}, cycle([other])
    ).tolist()
    expected = []
    for prompt in prompts:
        row = list(prompt)
        while len(row) < 24:
            session = Runner(model).open_session(64)
            session.prefill(row[:-1])
            row.append(int(session.forward(row[-1:], [len(row) - 1])[0][0].argmax()))
            row += [17, 18] if row[-1] == stop else []
        expected.append(row[:24])
    assert rows == expected and any(row[5:8] == [stop, 17, 18] for row in rows)


def test_the_documents_example_writes_its_prompts(monkeypatch, tmp_path):
    document = (Path(__file__).parents[3] / "engine" / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?recipes\.jsonl.*?)^```$", document, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    learn, held_out = split_prompts_into_training_and_held_out(
        [prompt.text for prompt in read_prompts(tmp_path / "recipes.jsonl")]
    )
    assert (len(learn), len(held_out)) == (108, 36)
    assert learn[0] == "Recipe: tomato soup\nYou need:\n- 2 cups of water\n- 1 onion\nHow to make it:\n1."


def test_a_run_of_few_steps_warms_up_in_a_twentieth_of_them():
    """A long one in 100 steps, and both end at 5 % of the rate."""
    few, many = ([learning_rate_factor(step / steps, step) for step in range(steps)] for steps in (200, 20_000))
    assert few[0] == 0.01 and max(few) == few[10] == pytest.approx(0.95, abs=0.01)
    assert max(many) == many[99] > 0.99 and many[49] == pytest.approx(0.5, abs=0.01)
    assert few[-1] == pytest.approx(0.05, abs=0.01) and many[-1] == pytest.approx(0.05, abs=0.001)


def test_the_gain_is_that_of_all_tokens_and_its_interval_holds_it():
    was, now = np.array([[96, 48], [96, 32], [90, 30]]), np.array([[96, 32], [96, 24], [90, 30]])
    figures = compare_tau(was, now)
    assert figures["before"] == 282 / 110 and figures["after"] == 282 / 86 and figures["written"]
    low, high = figures["interval"]
    assert 1 <= low < figures["gain"] < high <= 1.5
    assert not compare_tau(now, now)["written"] and compare_tau(now, now)["interval"] == [1, 1]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"--out": None}, "--start with --prompts needs --out: name a folder for the better drafter."),
        ({"--start": "{folder}"}, "has no config.json. Name a drafter's own folder"),
        ({"--out": "{start}/.."}, "would write over the drafter of --start. Name another folder."),
        ({"--hidden": "32"}, "--hidden 32 has no meaning with --prompts"),
        ({"--domains": "code"}, "--domains code has no meaning with --prompts, which are the texts."),
        ({"--prompts": "{folder}/few.txt"}, "few.txt has 2 prompts; between 12 and 1,000 are needed."),
        ({"--prompts": "{folder}/same.txt"}, "The file has 2 different prompts; at least 12 are needed."),
    ],
)
def test_what_cannot_be_trained_on_is_refused_before_a_model_is_loaded(wrong, sentence, tmp_path, monkeypatch, capsys):
    def load(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(own_prompts, "load", load)
    start = tmp_path / "eagle"
    start.mkdir()
    (start / "config.json").write_text("{}")
    (tmp_path / "my.txt").write_text("\n\n".join(PROMPTS))
    (tmp_path / "few.txt").write_text("A\n\nB")
    (tmp_path / "same.txt").write_text("\n\n".join(["A", "B"] * 6))
    given = {"--prompts": "{folder}/my.txt", "--start": "{start}", "--out": "{folder}/out"} | wrong
    words = [word for name, value in given.items() if value for word in (name, value)]
    with pytest.raises(SystemExit) as ended:
        run("train", "eagle", *(word.format(folder=tmp_path, start=start) for word in words))
    said = capsys.readouterr()
    assert ended.value.code == 2 and sentence in said.err and said.err.count("\n") == 1


@pytest.mark.parametrize(("recipe", "sentence"), [("medusa", "holds a drafter eagle, got medusa"), ("dflash", None)])
def test_a_drafter_of_another_kind_is_refused(options, recipe, sentence):
    """By its kind, and one that reads other layers than the recipe, or has a window, by its form."""
    if sentence is None:
        model = checkpoints.write(options.work, num_hidden_layers=8)
        net = learned.RECIPES["dflash"].build_untrained_net(model, learned.drafter_config_for("dflash", model))
        net.reads_features, sentence = (
            (1, 2, 3),
            r"has a form that is drafted with here and not trained. It must read the layers 2, 4, 7,",
        )
        with pytest.raises(ValueError, match=sentence):
            own_prompts.refuse_untrainable_drafter(net, Namespace(recipe=recipe, start=options.start), 8)
        net.reads_features, net.sizes = (
            net.sizes.reads_features,
            replace(net.sizes, layer_masks=(BlockLayerMask(4, True),)),
        )
        with pytest.raises(ValueError, match=r"has a form that is drafted with here and not trained"):
            own_prompts.refuse_untrainable_drafter(net, Namespace(recipe=recipe, start=options.start), 8)
        return
    options.recipe = recipe
    with pytest.raises(ValueError, match=sentence):
        recipes.main(options)
