"""Pays by batch: curves and crossings on made-up seconds, short runs, and what is refused."""

import gc
import json
import weakref
from contextlib import suppress
from types import SimpleNamespace

import pytest

from engine import __main__ as commands
from engine.forward.cache import KVCache
from engine.lab.pays import batch, command
from engine.measure import racing
from engine.measure.curves import batches
from engine.measure.ways import decode_plainly, iterate_rounds
from engine.models import cache_memory
from engine.race import Settings, encode_prompt
from engine.record.disturbance import OTHERS
from engine.record.quiet import WorkSignal
from engine.sampling import Sampling
from engine.systems import resolve_system_name
from helpers.commands import SMALL, run, told
from helpers.pairs import tiny_pair

STORIES = ["Story: Once upon a time", "Story: A cat saw a dog", "Story: Tom and Lily went to the park"]
POINT = {
    *("batch", "plain_tokens_per_s", "tokens_per_s", "speedup", "tau", "identical", "unlike", "near_ties", "disturbed"),
}


def wish(tokens: int, temperature: float = 0.0) -> Settings:
    return Settings("a prompt", temperature=temperature, max_new_tokens=tokens, seed=3)


# ---- batches


def run_batch(pair, setting: str, texts: list[batch.BatchSequence], tokens: int) -> batches.BatchRun:
    return racing.run_to_result(
        batches.decode_batch_in_steps(pair, setting, [(text.prompt_ids, text.sampling) for text in texts], tokens)
    )


def test_a_curve_takes_medians_and_its_crossing_is_the_first_size_that_loses(monkeypatch):
    """The clock is a stub: plain rounds take a second at every size, and guessing 0.4 seconds a sequence.

    Of three plain runs one is slow and one is quick.
    """
    odd = {4: 0.5, 5: 99.0}
    asked: list[tuple[str, int]] = []

    def stub(pair, setting, sequences, tokens):
        asked.append((setting, len(sequences)))
        seconds = 1.0 if setting == "vanilla" else 0.4 * len(sequences)
        yield WorkSignal.STEP
        written = [decode_plainly(pair, prompt, 8, sampling) for prompt, sampling in sequences]
        return batches.BatchRun(written, [odd.get(len(asked) % 6, seconds)], 4 * len(sequences))

    monkeypatch.setattr(batches, "decode_batch_in_steps", stub)
    sizes = [1, 2, 3, 5]
    found = batch.measure_throughput_by_batch_size(tiny_pair(), STORIES, ["tree"], sizes, wish(8))
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
    [text] = batch.build_sequences_with_plain_tokens(tiny_pair(), STORIES[:1], wish(4), 1)

    def made(*runs: list[float], waited: float = 0.0) -> list[batches.BatchRun]:
        return [batches.BatchRun([text.plain_tokens], seconds, 4, waited) for seconds in runs]

    steady = [0.01] * 4
    some = {
        "vanilla": made(steady, steady, steady),
        "tree": made(steady, [0.01, 0.01, 0.01, 2.0], [0.01, 0.01, 1.0, 0.01]),
    }
    found = batch.compute_batch_speed_and_text_differences(tiny_pair(), batches.BatchRuns(1, some), "tree", [text])
    words = "Disturbed: one of 4 steps of tree stalled, the longest for 1,000 ms where 10.0 ms are usual."
    assert found["disturbed"] == words and found["tokens_per_s"] == pytest.approx(4 / 1.03)
    row = {"setting": "tree", "points": [found], "crossing": None}
    told = command.format_batches({"settings": [row], "cycled": False, "prompts": 1, "refused": []})
    assert told[-1] == f"A batch of 1 with tree: {words}"
    some["tree"] = made(steady, steady, steady)
    assert (
        batch.compute_batch_speed_and_text_differences(tiny_pair(), batches.BatchRuns(1, some), "tree", [text])[
            "disturbed"
        ]
        == ""
    )
    some["vanilla"] = made(steady, steady, steady, waited=0.01)
    assert (
        batch.compute_batch_speed_and_text_differences(tiny_pair(), batches.BatchRuns(1, some), "tree", [text])[
            "disturbed"
        ]
        == OTHERS
    )


def test_a_batchs_rounds_are_of_all_sequences_and_waits_are_outside_the_clock(monkeypatch):
    """Two sequences with three rounds and one, of a second each. Their thread waits for half a second before every one of them."""
    pair = tiny_pair()
    texts = batch.build_sequences_with_plain_tokens(pair, STORIES[:2], wish(3), 2)
    waits = iter([at / 2 for at in (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)])
    monkeypatch.setattr(pair.target, "seconds_without_processor", lambda: next(waits))
    done = SimpleNamespace(burst=[7], seconds={"verify": 0.75, "draft": 0.25})
    monkeypatch.setattr(batches, "decode_batch_round_by_round", lambda *_: ((number, done) for number in (0, 1, 0, 0)))
    found = run_batch(pair, "tree", texts, 3)
    assert (
        found.round_seconds == [2.0, 1.0, 1.0]
        and found.seconds == 4.0
        and found.sequence_rounds == 4
        and found.seconds_without_processor == 2.0
    )


def test_a_batchs_seconds_hold_the_reading_of_its_prompts(monkeypatch):
    pair = tiny_pair()
    texts = batch.build_sequences_with_plain_tokens(pair, STORIES[:1], wish(3), 1)
    rounds = [SimpleNamespace(burst=[7], seconds=each) for each in ({"prefill": 8.0, "verify": 1.0}, {"verify": 1.0})]
    monkeypatch.setattr(batches, "decode_batch_round_by_round", lambda *_: ((0, done) for done in rounds))
    found = run_batch(pair, "tree", texts, 3)
    assert found.round_seconds == [9.0, 1.0] and found.tokens_per_second == pytest.approx(2 / 10.0)


def test_without_a_size_that_loses_there_is_no_crossing():
    points = [{"batch": size, "speedup": speedup} for size, speedup in ((1, 1.5), (4, 1.0), (16, 1.2))]
    assert batch.points_and_first_losing_batch_size(points)["crossing"] is None
    row = {"setting": "tree", "crossing": None, "points": points}
    assert (
        command.describe_losing_batch_size(row) == "tree falls behind plain decoding at none of the batches up to 16."
    )
    assert (
        command.describe_losing_batch_size(row | {"crossing": 4}) == "tree falls behind plain decoding at a batch of 4."
    )
    assert (
        batch.points_and_first_losing_batch_size([{"batch": 1, "speedup": 0.99}, {"batch": 4, "speedup": 1.1}])[
            "crossing"
        ]
        == 1
    )


@pytest.mark.parametrize("own", [True, False])
def test_every_sequence_of_every_size_writes_its_own_text(own, monkeypatch):
    """Sequences beyond the prompts have seeds of their own, so sampled texts differ. No time counts, so one run of each is enough."""
    monkeypatch.setattr(batches, "RUNS", 1)
    pair = tiny_pair(own=own)
    texts = batch.build_sequences_with_plain_tokens(pair, STORIES, wish(10, 1.2), 7)
    assert texts[0].prompt_ids == texts[3].prompt_ids and texts[0].plain_tokens != texts[3].plain_tokens
    assert [text.sampling.seed for text in texts] == [3, 3, 3, 4, 4, 4, 5]
    found = batch.measure_throughput_by_batch_size(pair, STORIES, ["tree", "lookup"], [1, 7], wish(10, 1.2))
    for row in found["settings"]:
        assert [point["identical"] for point in row["points"]] == [True, True] and row["points"][0]["unlike"] == 0
        assert all(1 <= point["tau"] < 4 and point["tokens_per_s"] > 0 for point in row["points"])


def test_another_text_is_counted_and_rounding_explains_only_near_tokens(monkeypatch):
    pair = tiny_pair()
    [text] = batch.build_sequences_with_plain_tokens(pair, STORIES[:1], wish(6), 1)
    *_, third = iterate_rounds(pair, resolve_system_name("vanilla"), text.prompt_ids, 3, text.sampling)
    logits = third.logits[0]
    order = logits.argsort(descending=True).tolist()
    assert order[0] == text.plain_tokens[2]
    close, far = ([*text.plain_tokens[:2], token, 1, 1, 1] for token in (order[1], order[-1]))
    margin = float(logits[order[0]] - logits[order[1]])
    for limit, expected in ((margin * 1.01, (True, False)), (margin * 0.99, (False, False))):
        monkeypatch.setattr(batch, "rounding_threshold_of", lambda *_, limit=limit: limit)
        assert (
            batch.is_rounding_difference(pair, text, close),
            batch.is_rounding_difference(pair, text, far),
        ) == expected
    assert not batch.is_rounding_difference(pair, text, text.plain_tokens)
    some = {name: [batches.BatchRun([written], [1.0], 3)] for name, written in (("vanilla", close), ("tree", far))}
    found = batch.compute_batch_speed_and_text_differences(pair, batches.BatchRuns(1, some), "tree", [text])
    assert (found["identical"], found["unlike"], found["near_ties"]) == (False, 1, 0)
    assert command.describe_equality_with_plain_texts(found) == "1 NOT"
    monkeypatch.setattr(batch, "rounding_threshold_of", lambda *_: 1e9)
    found = batch.compute_batch_speed_and_text_differences(pair, batches.BatchRuns(1, some), "tree", [text])
    assert (found["unlike"], found["near_ties"]) == (1, 1) and command.describe_equality_with_plain_texts(
        found
    ) == "1 tied"


def test_batches_take_the_best_setting_that_keeps_the_tokens_and_auto():
    rows = [
        {"name": "chain", "setting": "chain", "guarantee": "law", "speedup": 3.0},
        {"name": "tree", "setting": "tree:2x2x4", "guarantee": "tokens", "speedup": 1.5},
        {"name": "auto", "setting": "auto", "guarantee": "tokens", "speedup": 1.2},
        {"name": "lookup", "setting": "lookup", "guarantee": "tokens", "speedup": 1.1},
    ]
    assert batch.select_best_token_exact_setting_and_auto(rows) == ["tree:2x2x4", "auto"]
    assert batch.select_best_token_exact_setting_and_auto(rows[2:]) == [
        "auto"
    ] and batch.select_best_token_exact_setting_and_auto(rows[:2]) == ["tree:2x2x4"]
    assert batch.select_best_token_exact_setting_and_auto(rows[:1]) == []
    assert command.format_batches({"settings": []}) == [
        "No batch was decoded: none of the raced systems writes plain decoding's own tokens."
    ]


def test_what_the_memory_does_not_hold_is_left_out_with_a_sentence(monkeypatch):
    pair = tiny_pair()
    rows = max(len(encode_prompt(pair, text)) for text in STORIES) + 4 + 400
    one = cache_memory.max_lane_cache_bytes(pair, rows)
    monkeypatch.setattr(cache_memory, "max_bytes_of_all_caches", lambda pair: 2.5 * one)
    found = batch.measure_throughput_by_batch_size(pair, STORIES, ["lookup"], [2, 3], wish(4))
    assert [point["batch"] for point in found["settings"][0]["points"]] == [2]
    assert found["refused"] == [{"batch": 3, "why": found["refused"][0]["why"]}]
    assert found["refused"][0]["why"].startswith(f"3 caches of {rows} rows take ")
    assert found["refused"][0]["why"].endswith(" MB are there. 2 would fit.")
    assert command.format_batches(found)[-1] == f"A batch of 3 was left out: {found['refused'][0]['why']}"
    none = batch.measure_throughput_by_batch_size(pair, STORIES, ["lookup"], [3], wish(4))
    assert none["settings"] == [{"setting": "lookup", "points": [], "crossing": None}]
    assert command.format_batches(none)[-1].startswith("A batch of 3 was left out")


# ---- the command


def asked(tmp_path, *arguments: str) -> list[str]:
    file = tmp_path / "my.jsonl"
    file.write_text("\n".join(map(json.dumps, STORIES)), encoding="utf-8")
    return [*SMALL, "--prompts", str(file), "--tokens", "8", "--device", "cpu", *arguments]


def test_a_run_tells_batches_in_words_and_figures(capsys, tmp_path, embedded):
    more = "--systems", "eagle:2x2x4,auto", "--batch", "1,4"
    said, figures = told(capsys, "pays", *asked(tmp_path, *more))
    best = next(row["setting"] for row in figures["systems"] if row["name"] == figures["best"])
    names = list(dict.fromkeys((best, "auto")))
    assert [row["setting"] for row in figures["batch"]["settings"]] == names
    for row in figures["batch"]["settings"]:
        assert [point["batch"] for point in row["points"]] == [1, 4]
        assert all(point["identical"] is True for point in row["points"])
        assert command.describe_losing_batch_size(row) in said
    assert "Batches beyond 3 decode the same prompts again with other seeds." in said


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--batch", "1,x", "--batch must be whole numbers separated by commas, got '1,x'."),
        ("--batch", "0,4", "--batch must be ascending numbers between 1 and 256, got '0,4'."),
        ("--batch", "4,4", "--batch must be ascending numbers between 1 and 256, got '4,4'."),
        ("--batch", "257", "--batch must be ascending numbers between 1 and 256, got '257'."),
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
    texts = batch.build_sequences_with_plain_tokens(pair, STORIES, wish(4), 3)
    begun, decode = [], batches.decode_batch_round_by_round

    def stopped(*asked):
        for index, each in enumerate(decode(*asked)):
            if index == 4:
                begun.append(len(made))
                raise KeyboardInterrupt
            yield each

    made.clear()
    monkeypatch.setattr(batches, "decode_batch_round_by_round", stopped)
    with suppress(KeyboardInterrupt):
        run_batch(pair, "tree", texts, 9)
    gc.collect()
    assert begun == [6] and len(made) == 0


def test_ctrl_c_during_batches_ends_the_command_with_a_sentence(capsys, tmp_path, monkeypatch, embedded):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(batches, "decode_batch_in_steps", interrupt)
    with pytest.raises(SystemExit) as ended:
        commands.main(["pays", *asked(tmp_path, "--systems", "lookup", "--batch", "1,2")])
    said = capsys.readouterr()
    assert ended.value.code == 130 and said.out == ""
    assert said.err.endswith("The command pays was stopped before it was done.\n") and "Traceback" not in said.err


def test_the_noise_of_a_batch_is_that_of_the_wish():
    [text] = batch.build_sequences_with_plain_tokens(
        tiny_pair(), STORIES[:1], Settings("a prompt", temperature=0.5, max_new_tokens=3, seed=9), 1
    )
    assert text.sampling == Sampling(0.5, seed=9) and len(text.plain_tokens) == 3
