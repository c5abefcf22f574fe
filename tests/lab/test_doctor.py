"""Doctor: equal runs, runs that part at a near-tie and at a clear margin, what else explains a difference, and what is refused."""

import json
from dataclasses import replace

import pytest
import torch

from engine.forward.runner import Runner
from engine.lab.pays import doctor
from engine.lab.pays.doctor import RunToDiagnose, read_run_from_file
from engine.lab.pays.rounding import rounding_threshold_of
from engine.measure.options import first_held_out_prompts
from engine.models.loading import load
from engine.race import Race, Settings
from engine.record.race_file import LaneRecord
from engine.record.trace import Trace
from engine.sampling import Sampling
from helpers.commands import run, told
from helpers.pairs import byte_tokenizer, tiny_llama, tiny_pair
from helpers.paths import ROOT
from helpers.traces import PLAIN

RACES = ROOT / "assets" / "races"
STORY, SAMPLED = RACES / "2-story-auto.json", RACES / "5-story-sampled-eagle.json"
PROMPT = "Story: Once"
KEYS = {"cause", "rounding", "index", "a", "b", "best", "margin", "threshold", "facts", "pair", "dtype"}


def best_of(model) -> list[int]:
    """The model's tokens behind the prompt, the best first."""
    with torch.no_grad():
        return model(torch.tensor([list(tokenised(PROMPT))])).logits[0, -1].argsort(descending=True).tolist()


def tokenised(text: str) -> list[int]:
    return PAIR.tokenizer(text)["input_ids"]


PAIR = tiny_pair()


def tied_pair(apart: float):
    """The tiny pair, where the token behind the best one has the best one's logit times `1 - apart`; and both tokens."""
    model = tiny_llama(0)
    best = best_of(model)[0]
    other = (best + 1) % 256
    model.lm_head.weight.data[other] = model.lm_head.weight.data[best] * (1 - apart)
    return replace(PAIR, target=Runner(model)), best, other


@pytest.fixture
def diagnosed(capsys, monkeypatch, tmp_path):
    """What the command says of two lists of tokens behind the prompt, or of other contents of the two files."""

    def run(pair, *contents, options=()):
        monkeypatch.setattr(doctor, "load_pair_of_options", lambda options: pair)
        files = []
        for name, content in zip("ab", contents, strict=True):
            files.append(tmp_path / f"{name}.json")
            made = {"prompt": PROMPT, "tokens": content} if isinstance(content, list) else content
            files[-1].write_text(made if isinstance(made, str) else json.dumps(made), encoding="utf-8")
        said, figures = told(capsys, "doctor", *map(str, files), *options)
        assert figures.keys() == KEYS and figures["facts"] == said
        assert figures["rounding"] == (figures["cause"] == "rounding") and said[-1] == doctor.CAUSES[figures["cause"]]
        return figures

    return run


def test_equal_runs_need_no_explanation(diagnosed):
    figures = diagnosed(PAIR, [5, 6, 7], [5, 6, 7])
    assert figures["cause"] == "equal" and figures["index"] is figures["margin"] is None
    assert "All 3 tokens are equal." in figures["facts"]


def test_a_near_tie_is_explained_by_rounding(diagnosed):
    pair, best, other = tied_pair(1e-7)
    figures = diagnosed(pair, [best, 1], [other, 1])
    assert figures["cause"] == "rounding" and figures["index"] == 0
    assert sorted(figures["best"]) == sorted([best, other]) and 0 <= figures["margin"] <= figures["threshold"] < 1e-3
    assert max(figures["a"]["below_best"], figures["b"]["below_best"]) == pytest.approx(figures["margin"], abs=1e-12)
    assert "The files name no temperature, so both runs are taken as greedy." in figures["facts"]


def test_a_clear_margin_is_not_explained_by_rounding(diagnosed):
    pair, best, other = tied_pair(0.05)
    figures = diagnosed(pair, [best], [other])
    assert figures["cause"] == "other" and figures["margin"] > 100 * figures["threshold"]
    assert figures["a"] == {"token": best, "text": figures["a"]["text"], "below_best": 0.0}
    assert figures["b"]["below_best"] > figures["threshold"]
    assert "They part at token 1 behind the prompt" in figures["facts"][2]


def test_a_tie_between_two_tokens_does_not_excuse_a_third(diagnosed):
    pair, best, other = tied_pair(1e-7)
    third = next(token for token in best_of(pair.target.model) if token not in (best, other))
    figures = diagnosed(pair, [best], [third])
    assert figures["margin"] <= figures["threshold"] and figures["cause"] == "other"


def test_tokens_before_the_parting_are_read(diagnosed):
    """Both runs write plain decoding's text for five tokens; there A goes on as it does and B as the second best."""
    race = Race(PAIR, Settings(PROMPT, ("vanilla",), max_new_tokens=6))
    for _ in race.run():
        pass
    written = race.lanes[0].trace.tokens
    figures = diagnosed(PAIR, written, [*written[:5], (written[5] + 1) % 256])
    assert figures["index"] == 5 and figures["a"]["below_best"] == 0 and figures["best"][0] == written[5]


@pytest.mark.parametrize("index", range(4))
def test_sampled_runs_are_judged_by_logits_with_the_seeds_noise_as_by_hand(index):
    """Noise of the token's own position, times the temperature, on top of the model's logits. The race drew the best of them."""
    temperature, seed = 3.0, 11
    race = Race(PAIR, Settings(PROMPT, ("vanilla",), temperature=temperature, seed=seed, max_new_tokens=5))
    for _ in race.run():
        pass
    written, ids = race.lanes[0].trace.tokens, list(tokenised(PROMPT))
    with torch.no_grad():
        logits = PAIR.target.model(torch.tensor([ids + written[:index]])).logits[0, -1].double()
    noise = Sampling(temperature, seed=seed).noise.row(len(ids) + index, 256).double()
    scores = (logits / temperature + noise) * temperature
    other = (written[index] + 1) % 256
    lane = LaneRecord("", "", "tokens", PLAIN, race.lanes[0].trace)
    runs = [
        RunToDiagnose(name, PROMPT, [*written[:index], token], lane)
        for name, token in (("A", written[index]), ("B", other))
    ]
    found = doctor.diagnose_runs(PAIR, *runs)
    first, second = scores.topk(2).values.tolist()
    assert found["best"] == scores.topk(2).indices.tolist() and found["best"][0] == written[index]
    assert found["margin"] == pytest.approx(first - second, abs=1e-3)
    assert found["b"]["below_best"] == pytest.approx(first - float(scores[other]), abs=1e-3)


def test_a_run_that_ends_earlier_is_told_from_one_that_differs(diagnosed):
    figures = diagnosed(PAIR, [5, 6], [5, 6, 7])
    assert (
        figures["cause"] == "end" and figures["index"] == 2 and "Run A ends without a stop token." in figures["facts"]
    )
    figures = diagnosed(replace(PAIR, stop_ids=frozenset({6})), [5, 6, 7], [5, 6])
    assert "Run B ends at a stop token." in figures["facts"]
    other = diagnosed(PAIR, [5, 6], {"prompt": PROMPT + "!", "tokens": [5, 6]})
    assert other["cause"] == "prompt" and f"The prompts part at character {len(PROMPT)}." in other["facts"]


# ---- race files


def test_the_lanes_of_a_race_file_are_compared_and_its_noise_is_made_again(capsys, tmp_path):
    device = ("--device", "cpu")  # the default pair, on which the races were recorded
    said, figures = told(capsys, "doctor", str(STORY), str(STORY), "--lane-b", "0", *device)
    assert figures["cause"] == "equal" and "lane 0, vanilla" in said[1] and "lane 1, auto" in said[0]
    run = read_run_from_file(SAMPLED, "A", None)
    changed = tmp_path / "changed.json"
    tokens = [*run.tokens[:10], run.tokens[10] + 1]
    changed.write_text(json.dumps({"prompt": run.prompt, "tokens": tokens}), encoding="utf-8")
    figures = told(capsys, "doctor", str(SAMPLED), str(changed), *device)[1]
    assert figures["index"] == 10 and figures["cause"] == "other"
    # The race drew the best, noise included
    assert figures["best"][0] == run.tokens[10] and figures["a"]["below_best"] == 0
    assert any(fact.startswith("These logits hold the noise of seed") for fact in figures["facts"])


@pytest.mark.parametrize(
    ("setups", "near", "cause"),
    [
        ([], True, "rounding"),
        ([], False, "other"),
        (
            [(0.0, 1, "tokens"), (0.0, 2, "tokens")],
            True,
            "rounding",
        ),  # greedy runs have no noise, so seeds do not count
        ([(0.7, 1, "tokens"), (0.7, 2, "tokens")], True, "setup"),
        ([(0.0, 1, "tokens"), (0.7, 1, "tokens")], False, "setup"),
        ([(0.7, 1, "tokens"), (0.7, 1, "law")], True, "rule"),
        ([(0.0, 1, "tokens"), (0.0, 1, "law")], False, "other"),
        ([(0.0, 1, "lossy")], False, "rule"),
    ],
)
def test_what_the_runs_say_of_themselves_goes_before_rounding(setups, near, cause):
    assert doctor.name_divergence_cause(setups, near) == cause


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_real_forwards_stay_within_the_threshold_and_come_near_it(dtype):
    """Our forward against that of transformers, which adds up in another order: how far any two logits move apart."""
    pair = load("small", device="cpu", dtype=dtype)
    most = 0.0
    for domain in ("stories", "code"):
        ids = pair.tokenizer(first_held_out_prompts(domain, 1)[0])["input_ids"][:60]
        ours = pair.target.open_session(len(ids)).forward(ids, list(range(len(ids))))[0].float()
        with torch.inference_mode():
            theirs = pair.target.model(torch.tensor([ids])).logits[0].float()
        for row, errors in zip(ours, ours - theirs, strict=True):
            most = max(most, float(errors.max() - errors.min()) / rounding_threshold_of(pair, row, [dtype]))
    assert 0.02 < most < 1


def test_the_coarsest_type_of_all_counts():
    logits = torch.linspace(-5, 5, 256)
    assert (
        rounding_threshold_of(PAIR, logits, [])
        == rounding_threshold_of(PAIR, logits, ["fp32"])
        < rounding_threshold_of(PAIR, logits, ["fp16"])
    )
    assert (
        rounding_threshold_of(PAIR, logits, ["fp32", "nf4"])
        == rounding_threshold_of(PAIR, logits, ["bf16"])
        > rounding_threshold_of(PAIR, logits, ["fp16"])
    )
    assert rounding_threshold_of(PAIR, 10 * logits, []) == pytest.approx(10 * rounding_threshold_of(PAIR, logits, []))


# ---- refusals


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        ("{", (), "a.json: The file is no JSON"),
        ({"prompt": PROMPT}, (), "a.json: The file is no TokenFile: missing 'tokens', unknown nothing. Name a race"),
        ({"prompt": PROMPT, "tokens": ["a"]}, (), "a.json: tokens[0] must be a whole number, got 'a'."),
        ({"prompt": PROMPT, "lanes": []}, (), "a.json: The file is no Record"),
        ([], (), "a.json holds no tokens."),
        ({"prompt": "", "tokens": [1]}, (), "A (a.json) has an empty prompt"),
        ([256], (), "A (a.json) has the token 256; the target's tokens are 0 to 255."),
        ([-1], (), "has the token -1"),
        ([1] * 150, (), "has 150 tokens, too many for the context window of 160"),
        ([1], ("--lane-a", "1"), "a.json holds one run, counted as lane 0; got lane 1."),
        (STORY.read_text(encoding="utf-8"), (), "ran on the 67M embedded pair, and this pair is the tiny random pair. Pass"),
        (STORY.read_text(encoding="utf-8"), ("--lane-a", "7"), "a.json: it has the lanes 0 to 1, got 7."),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused_with_a_sentence(capsys, diagnosed, content, options, sentence):
    with pytest.raises(SystemExit) as ended:
        diagnosed(PAIR, content, [1], options=options)
    assert ended.value.code == 2 and sentence in capsys.readouterr().err


@pytest.mark.parametrize(("was", "sentence"), [(True, "as a chat message.*without --raw"), (False, "raw.*with --raw")])
def test_a_run_that_was_sent_otherwise_is_refused(was, sentence):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }}:"
    pair = replace(PAIR, tokenizer=tokenizer, sends_raw_prompts=was)
    trace = Trace("vanilla", pair.title, "a machine", "fp32", PROMPT, [1], 0.0, 0, 1, 1, 2, 5, chat=was)
    run = RunToDiagnose("A", PROMPT, [1], LaneRecord("", "", "tokens", PLAIN, trace))
    with pytest.raises(ValueError, match=f"A was sent {sentence}"):
        doctor.refuse_run_unfit_for_pair(pair, run)
    doctor.refuse_run_unfit_for_pair(replace(pair, sends_raw_prompts=not was), run)


def test_a_file_that_is_not_there_is_named(capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        run("doctor", str(tmp_path / "none.json"), str(STORY))
    assert ended.value.code == 2 and "none.json'. Name a race file" in capsys.readouterr().err
