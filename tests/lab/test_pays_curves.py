"""Pays by batch and by context: curves and crossings on made-up seconds, short runs, and what is refused."""

import gc
import json
import weakref
from contextlib import suppress
from types import SimpleNamespace

import pytest

from engine import __main__ as commands
from engine.forward.cache import KVCache
from engine.lab.pays import batch, command, context
from engine.measure import racing
from engine.measure.curves import batches
from engine.measure.ways import iterate_rounds
from engine.models import cache_memory
from engine.race import Race, Settings, encode_prompt
from engine.record.disturbance import OTHERS
from engine.sampling import Sampling
from engine.systems import find
from helpers.commands import SMALL, run, told
from helpers.pairs import tiny_pair

STORIES = ["Story: Once upon a time", "Story: A cat saw a dog", "Story: Tom and Lily went to the park"]
POINT = {
    "batch",
    "plain_tokens_per_s",
    "tokens_per_s",
    "speedup",
    "tau",
    "identical",
    "unlike",
    "near_ties",
    "disturbed",
}
PLACE = {"setting", "plain_tokens_per_s", "speedup", "speedup_with_prefill", "tau", "identical", "disturbed"}


def wish(tokens: int, temperature: float = 0.0) -> Settings:
    return Settings("a prompt", temperature=temperature, max_new_tokens=tokens, seed=3)


# ---- batches


def test_a_curve_takes_medians_and_its_crossing_is_the_first_size_that_loses(monkeypatch):
    """The clock is a stub: plain rounds take a second at every size, and guessing 0.4 seconds a sequence.

    Of three plain runs one is slow and one is quick.
    """
    odd = {4: 0.5, 5: 99.0}
    asked: list[tuple[str, int]] = []

    def stub(pair, setting, texts, tokens):
        asked.append((setting, len(texts)))
        seconds = 1.0 if setting == "vanilla" else 0.4 * len(texts)
        return batch.BatchRun([text.alone for text in texts], [odd.get(len(asked) % 6, seconds)], 4 * len(texts))

    monkeypatch.setattr(batch, "run_batch", stub)
    sizes = [1, 2, 3, 5]
    found = batch.measure_batch_curve(tiny_pair(), STORIES, ["tree"], sizes, wish(8))
    [row] = found["settings"]
    assert [point["speedup"] for point in row["points"]] == pytest.approx([2.5, 1.25, 1 / 1.2, 1 / 2])
    assert row["crossing"] == 3 and found["cycled"] and found["prompts"] == 3
    assert [point["plain_tokens_per_s"] for point in row["points"]] == [8 * size for size in sizes]
    assert all(point.keys() == POINT and point["tau"] == 2 for point in row["points"])
    assert not any(point["disturbed"] for point in row["points"])  # the runs of the median are as usual
    assert len(asked) == 2 * 4 * len(sizes) and asked[:4] == [
        ("vanilla", 1),
        ("tree", 1),
        ("tree", 1),
        ("vanilla", 1),
    ]


def test_a_batch_whose_median_run_was_disturbed_says_so():
    [text] = batch.build_batch_requests(tiny_pair(), STORIES[:1], wish(4), 1)

    def made(*runs: list[float], waited: float = 0.0) -> list[batch.BatchRun]:
        return [batch.BatchRun([text.alone], seconds, 4, waited) for seconds in runs]

    steady = [0.01] * 4
    some = {
        "vanilla": made(steady, steady, steady),
        "tree": made(steady, [0.01, 0.01, 0.01, 2.0], [0.01, 0.01, 1.0, 0.01]),
    }
    found = batch.build_batch_point(tiny_pair(), 1, some, "tree", [text])
    words = "Disturbed: one of 4 steps of tree stalled, the longest for 1,000 ms where 10.0 ms are usual."
    assert found["disturbed"] == words and found["tokens_per_s"] == pytest.approx(4 / 1.03)
    row = {"setting": "tree", "points": [found], "crossing": None}
    told = command.format_batches({"settings": [row], "cycled": False, "prompts": 1, "refused": []})
    assert told[-1] == f"A batch of 1 with tree: {words}"
    some["tree"] = made(steady, steady, steady)
    assert batch.build_batch_point(tiny_pair(), 1, some, "tree", [text])["disturbed"] == ""
    some["vanilla"] = made(steady, steady, steady, waited=0.01)
    assert batch.build_batch_point(tiny_pair(), 1, some, "tree", [text])["disturbed"] == OTHERS


def test_a_batchs_rounds_are_of_all_sequences_and_waits_are_outside_the_clock(monkeypatch):
    """Two sequences with three rounds and one, of a second each. Their thread waits for half a second before every one of them."""
    pair = tiny_pair()
    texts = batch.build_batch_requests(pair, STORIES[:2], wish(3), 2)
    waits = iter([at / 2 for at in (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)])
    monkeypatch.setattr(pair.target, "seconds_without_processor", lambda: next(waits))
    done = SimpleNamespace(burst=[7], seconds={"verify": 0.75, "draft": 0.25})
    monkeypatch.setattr(batches, "decode_together", lambda *_: ((number, done) for number in (0, 1, 0, 0)))
    found = batch.run_batch(pair, "tree", texts, 3)
    assert found.steps == [2.0, 1.0, 1.0] and found.seconds == 4.0 and found.rounds == 4 and found.waited == 2.0


def test_a_batchs_seconds_hold_the_reading_of_its_prompts(monkeypatch):
    pair = tiny_pair()
    texts = batch.build_batch_requests(pair, STORIES[:1], wish(3), 1)
    rounds = [SimpleNamespace(burst=[7], seconds=each) for each in ({"prefill": 8.0, "verify": 1.0}, {"verify": 1.0})]
    monkeypatch.setattr(batches, "decode_together", lambda *_: ((0, done) for done in rounds))
    found = batch.run_batch(pair, "tree", texts, 3)
    assert found.steps == [9.0, 1.0] and found.speed == pytest.approx(2 / 10.0)


def test_without_a_size_that_loses_there_is_no_crossing():
    points = [{"batch": size, "speedup": speedup} for size, speedup in ((1, 1.5), (4, 1.0), (16, 1.2))]
    assert batch.summarise_setting(points)["crossing"] is None
    row = {"setting": "tree", "crossing": None, "points": points}
    assert (
        command.describe_losing_batch_size(row) == "tree falls behind plain decoding at none of the batches up to 16."
    )
    assert (
        command.describe_losing_batch_size(row | {"crossing": 4}) == "tree falls behind plain decoding at a batch of 4."
    )
    assert batch.summarise_setting([{"batch": 1, "speedup": 0.99}, {"batch": 4, "speedup": 1.1}])["crossing"] == 1


@pytest.mark.parametrize("own", [True, False])
def test_every_sequence_of_every_size_writes_its_own_text(own, monkeypatch):
    """Sequences beyond the prompts have seeds of their own, so sampled texts differ. No time counts, so one run of each is enough."""
    monkeypatch.setattr(batch, "REPEATS", 1)
    pair = tiny_pair(own=own)
    texts = batch.build_batch_requests(pair, STORIES, wish(10, 0.9), 7)
    assert texts[0].prompt == texts[3].prompt and texts[0].alone != texts[3].alone
    assert [text.sampling.seed for text in texts] == [3, 3, 3, 4, 4, 4, 5]
    found = batch.measure_batch_curve(pair, STORIES, ["tree", "lookup"], [1, 7], wish(10, 0.9))
    for row in found["settings"]:
        assert [point["identical"] for point in row["points"]] == [True, True] and row["points"][0]["unlike"] == 0
        assert all(1 <= point["tau"] < 4 and point["tokens_per_s"] > 0 for point in row["points"])


def test_another_text_is_counted_and_rounding_explains_only_near_tokens(monkeypatch):
    pair = tiny_pair()
    [text] = batch.build_batch_requests(pair, STORIES[:1], wish(6), 1)
    *_, third = iterate_rounds(pair, find("vanilla"), text.prompt, 3, text.sampling)
    logits = third.logits[0]
    order = logits.argsort(descending=True).tolist()
    assert order[0] == text.alone[2]
    close, far = ([*text.alone[:2], token, 1, 1, 1] for token in (order[1], order[-1]))
    margin = float(logits[order[0]] - logits[order[1]])
    for limit, expected in ((margin * 1.01, (True, False)), (margin * 0.99, (False, False))):
        monkeypatch.setattr(batch, "rounding_threshold_of", lambda *_, limit=limit: limit)
        assert (
            batch.is_rounding_difference(pair, text, close),
            batch.is_rounding_difference(pair, text, far),
        ) == expected
    assert not batch.is_rounding_difference(pair, text, text.alone)
    some = {name: [batch.BatchRun([written], [1.0], 3)] for name, written in (("vanilla", close), ("tree", far))}
    found = batch.build_batch_point(pair, 1, some, "tree", [text])
    assert (found["identical"], found["unlike"], found["near_ties"]) == (False, 1, 0)
    assert command.describe_equality(found) == "1 NOT"
    monkeypatch.setattr(batch, "rounding_threshold_of", lambda *_: 1e9)
    found = batch.build_batch_point(pair, 1, some, "tree", [text])
    assert (found["unlike"], found["near_ties"]) == (1, 1) and command.describe_equality(found) == "1 tied"


def test_batches_take_the_best_setting_that_keeps_the_tokens_and_auto():
    rows = [
        {"name": "chain", "setting": "chain", "guarantee": "law", "speedup": 3.0},
        {"name": "tree", "setting": "tree:2x2x4", "guarantee": "tokens", "speedup": 1.5},
        {"name": "auto", "setting": "auto", "guarantee": "tokens", "speedup": 1.2},
        {"name": "lookup", "setting": "lookup", "guarantee": "tokens", "speedup": 1.1},
    ]
    assert batch.select_batch_settings(rows) == ["tree:2x2x4", "auto"]
    assert batch.select_batch_settings(rows[2:]) == ["auto"] and batch.select_batch_settings(rows[:2]) == ["tree:2x2x4"]
    assert batch.select_batch_settings(rows[:1]) == []
    assert command.format_batches({"settings": []}) == [
        "No batch was decoded: none of the raced systems writes plain decoding's own tokens."
    ]
    assert context.select_context_settings({"best": "chain", "systems": rows}) == ["chain", "auto"]
    assert context.select_context_settings({"best": "tree", "systems": rows[:2]}) == ["tree:2x2x4"]


def test_what_the_memory_does_not_hold_is_left_out_with_a_sentence(monkeypatch):
    pair = tiny_pair()
    rows = max(len(encode_prompt(pair, text)) for text in STORIES) + 4 + 400
    one = cache_memory.lane_cache_bytes(pair, rows)
    monkeypatch.setattr(cache_memory, "cache_budget", lambda pair: 2.5 * one)
    found = batch.measure_batch_curve(pair, STORIES, ["lookup"], [2, 3], wish(4))
    assert [point["batch"] for point in found["settings"][0]["points"]] == [2]
    assert found["refused"] == [{"batch": 3, "why": found["refused"][0]["why"]}]
    assert found["refused"][0]["why"].startswith(f"3 caches of {rows} rows take ")
    assert found["refused"][0]["why"].endswith(" MB are there. 2 would fit.")
    assert command.format_batches(found)[-1] == f"A batch of 3 was left out: {found['refused'][0]['why']}"
    none = batch.measure_batch_curve(pair, STORIES, ["lookup"], [3], wish(4))
    assert none["settings"] == [{"setting": "lookup", "points": [], "crossing": None}]
    assert command.format_batches(none)[-1].startswith("A batch of 3 was left out")
    assert context.explain_unraceable_length(pair, 60, 3, 4).startswith("3 caches of 464 rows take")


# ---- contexts


def test_a_context_is_other_prompts_in_front_of_the_prompt():
    pair = tiny_pair()
    for index, story in enumerate(STORIES):
        own, before = (pair.tokenizer(text)["input_ids"] for text in (story, STORIES[index - 1]))
        for length in (1, 5, len(own), len(own) + 3, len(own) + len(before) + 2, 150):
            found = context.lengthen_prompt(pair, STORIES, index, length)
            assert len(found) == length and found[-len(own) :] == own[-length:]
            if length > len(own):
                rest = found[: -len(own)]
                assert rest[-len(before) :] == before[-len(rest) :]


def test_the_token_that_begins_a_text_stays_first_and_only_there(monkeypatch):
    pair = tiny_pair()
    monkeypatch.setattr(context, "encode_prompt", lambda pair, prompt: [0, *pair.tokenizer(prompt)["input_ids"]])
    pair.tokenizer.bos_token = pair.tokenizer.convert_ids_to_tokens(0)
    found = context.lengthen_prompt(pair, STORIES, 1, 120)
    assert len(found) == 120 and found[0] == 0 and 0 not in found[1:]
    assert context.lengthen_prompt(pair, STORIES, 1, 6) == [0, *pair.tokenizer(STORIES[1])["input_ids"][-5:]]


def test_a_race_behind_a_context_that_was_disturbed_is_run_once_more_and_told(monkeypatch):
    raced, right = [], Race.result
    monkeypatch.setattr(Race, "result", lambda race: raced.append(race) or right(race) | {"disturbed": "It was."})
    monkeypatch.setattr(racing, "RUNS", 2)
    found = context.measure_by_context_length(tiny_pair(), STORIES, ["tree"], [40], wish(6))
    assert len({id(race) for race in raced}) == 2 * len(STORIES)
    assert [each["disturbed"] for each in found["lengths"][0]["settings"]] == [3]
    assert command.format_contexts(found)[-1] == (
        "Behind 40 tokens with tree: The clocks of 3 of 3 prompts were disturbed twice; ratios vary."
    )


def test_lengths_are_raced_where_the_window_holds_them():
    pair = tiny_pair()
    found = context.measure_by_context_length(pair, STORIES, ["tree", "lookup"], [40, 150, 2048], wish(10))
    assert found["prompts"] == 3
    assert [each["context"] for each in found["lengths"]] == [40, 150]
    for length in found["lengths"]:
        assert [each["setting"] for each in length["settings"]] == ["tree", "lookup"]
        assert all(each.keys() == PLACE and each["identical"] is True for each in length["settings"])
    assert found["refused"] == [
        {
            "context": 2048,
            "why": "2,048 tokens of context are left out: the window holds 160, and 10 new tokens must fit too.",
        }
    ]
    for length in found["lengths"]:
        length["settings"] = [each | {"disturbed": 0} for each in length["settings"]]  # on a busy machine some are
    said = command.format_contexts(found)
    assert said[-1] == found["refused"][0]["why"] and len(said) == 2 + 4 + 1
    assert command.format_contexts(found | {"lengths": []}) == [found["refused"][0]["why"]]


# ---- the command


def asked(tmp_path, *arguments: str) -> list[str]:
    file = tmp_path / "my.jsonl"
    file.write_text("\n".join(map(json.dumps, STORIES)), encoding="utf-8")
    return [*SMALL, "--prompts", str(file), "--tokens", "8", "--device", "cpu", *arguments]


def test_a_run_tells_batches_and_contexts_in_words_and_figures(capsys, tmp_path, embedded):
    more = "--systems", "eagle:2x2x4,auto", "--batch", "1,4", "--context", "96,4096"
    said, figures = told(capsys, "pays", *asked(tmp_path, *more))
    best = next(row["setting"] for row in figures["systems"] if row["name"] == figures["best"])
    names = list(dict.fromkeys((best, "auto")))
    assert [row["setting"] for row in figures["batch"]["settings"]] == names
    for row in figures["batch"]["settings"]:
        assert [point["batch"] for point in row["points"]] == [1, 4]
        assert all(point["identical"] is True for point in row["points"])
        assert command.describe_losing_batch_size(row) in said
    [length] = figures["context"]["lengths"]
    assert length["context"] == 96 and [each["setting"] for each in length["settings"]] == names
    assert any(line.startswith("4,096 tokens of context are left out") for line in said)
    assert "Batches beyond 3 decode the same prompts again with other seeds." in said


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--batch", "1,x", "--batch must be whole numbers separated by commas, got '1,x'."),
        ("--batch", "0,4", "--batch must be ascending numbers between 1 and 256, got '0,4'."),
        ("--batch", "4,4", "--batch must be ascending numbers between 1 and 256, got '4,4'."),
        ("--batch", "257", "--batch must be ascending numbers between 1 and 256, got '257'."),
        ("--context", "2048,512", "--context must be ascending numbers between 1 and 1,000,000, got '2048,512'."),
    ],
)
def test_senseless_sizes_are_refused_before_anything_is_loaded(capsys, tmp_path, monkeypatch, option, value, sentence):
    monkeypatch.setattr(command, "load_pair_of_options", lambda *_, **__: pytest.fail("a pair was loaded"))
    with pytest.raises(SystemExit) as ended:
        run("pays", *asked(tmp_path, option, value))
    assert ended.value.code == 2 and sentence in capsys.readouterr().err


def test_ctrl_c_within_a_batch_frees_its_caches(monkeypatch):
    made, born = weakref.WeakSet(), KVCache.__init__
    monkeypatch.setattr(KVCache, "__init__", lambda cache, *sizes: (born(cache, *sizes), made.add(cache))[0])
    pair = tiny_pair()
    texts = batch.build_batch_requests(pair, STORIES, wish(4), 3)
    begun, decode = [], batches.decode_together

    def stopped(*asked):
        for index, each in enumerate(decode(*asked)):
            if index == 4:
                begun.append(len(made))
                raise KeyboardInterrupt
            yield each

    made.clear()
    monkeypatch.setattr(batches, "decode_together", stopped)
    with suppress(KeyboardInterrupt):
        batch.run_batch(pair, "tree", texts, 9)
    gc.collect()
    assert begun == [6] and len(made) == 0


def test_ctrl_c_during_batches_ends_the_command_with_a_sentence(capsys, tmp_path, monkeypatch, embedded):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "run_batch", interrupt)
    with pytest.raises(SystemExit) as ended:
        commands.main(["pays", *asked(tmp_path, "--systems", "lookup", "--batch", "1,2")])
    said = capsys.readouterr()
    assert ended.value.code == 130 and said.out == ""
    assert said.err.endswith("The command pays was stopped before it was done.\n") and "Traceback" not in said.err


def test_the_noise_of_a_batch_is_that_of_the_wish():
    [text] = batch.build_batch_requests(
        tiny_pair(), STORIES[:1], Settings("a prompt", temperature=0.5, max_new_tokens=3, seed=9), 1
    )
    assert text.sampling == Sampling(0.5, seed=9) and len(text.alone) == 3
