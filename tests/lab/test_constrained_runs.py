"""`bench` and `pays` under a constraint, from command line to last figure: every text obeys it, and all lanes write the same."""

import json
import re

import pytest

from engine.lab.pays import batch
from engine.measure import options
from engine.models.constraint import GUESSES
from engine.race import Race
from engine.record.trace import Trace
from helpers.commands import SMALL, told
from helpers.published import mtp

PATTERN = "(yes|no), [a-z]{1,5}"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Tom", "Lily"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
STORIES = ["Story: Once upon a time", "Story: A cat saw a dog", "Story: Tom and Lily went to the park"]
OPTIONS = (*SMALL, "--device", "cpu", "--shape", "paper")


@pytest.fixture
def races(monkeypatch) -> list[list[Trace]]:
    """The lanes of every race that the command runs."""
    found: list[list[Trace]] = []
    right = Race.result

    def result(race):
        found.append([lane.trace for lane in race.lanes])
        return right(race)

    monkeypatch.setattr(Race, "result", result)
    return found


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "person.json"
    path.write_text(json.dumps(SCHEMA), encoding="utf-8")
    return path


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "my.jsonl"
    path.write_text("\n".join(map(json.dumps, STORIES)), encoding="utf-8")
    return path


def same_text(pair, lanes: list[Trace]) -> str:
    """The text that all lanes wrote to its end, without the stop token."""
    [tokens] = {tuple(lane.tokens) for lane in lanes}
    assert all(lane.steps[-1].end == "stop" for lane in lanes) and tokens[-1] in pair.stop_ids
    return pair.tokenizer.decode(tokens[:-1])


def is_person(text: str) -> bool:
    found = json.loads(text)
    return found.keys() == {"name", "age"} and found["name"] in ("Tom", "Lily") and 1 <= found["age"] <= 99


@pytest.mark.parametrize("guesses", GUESSES)
def test_bench_races_under_a_pattern_however_drafts_are_guided(capsys, embedded, races, guesses):
    lines, figures = told(
        capsys, "bench", *OPTIONS, "--systems", "tree,auto,forced", "--prompts", "2", "--tokens", "24",
        "--temperature", "0.8", "--regex", PATTERN, "--guesses", guesses,
    )  # fmt: skip
    assert (figures["constraint"], figures["guesses"]) == (f"regex:{PATTERN}", guesses)
    assert any(f"under a constraint, guesses {guesses}" in line for line in lines)
    assert [row["identical"] for row in figures["systems"]] == [True] * 3
    assert len(races) >= 2 and all(re.fullmatch(PATTERN, same_text(embedded, lanes)) for lanes in races)
    drafted = [p for lanes in races for step in lanes[1].steps for p in step.p[1:]]
    assert drafted and (0.0 in drafted) == (guesses != "masked")  # a story's next word is neither "yes" nor "no"
    forced = next(row for row in figures["systems"] if row["name"] == "forced")
    assert (forced["tau"] > 1) == (guesses != "free")  # ", " is all that may follow


def test_bench_races_under_a_schema(capsys, embedded, races, schema):
    _, figures = told(
        capsys,
        "bench",
        *OPTIONS,
        "--systems",
        "tree,auto,forced",
        "--prompts",
        "1",
        "--tokens",
        "64",
        "--json-schema",
        str(schema),
    )
    assert figures["constraint"] == f"json:{json.dumps(SCHEMA)}"
    assert [row["identical"] for row in figures["systems"]] == [True] * 3
    assert all(is_person(same_text(embedded, lanes)) for lanes in races) and len(races[0]) == 4


def test_pays_judges_under_a_schema(capsys, embedded, races, schema, prompts):
    _, figures = told(
        capsys, "pays", *OPTIONS, "--prompts", str(prompts), "--systems", "forced,chain", "--tokens", "64",
        "--json-schema", str(schema),
    )  # fmt: skip
    assert figures["constraint"] == f"json:{json.dumps(SCHEMA)}" and not figures["refused"]
    assert [row["identical"] for row in figures["systems"]] == [True, True]
    texts = {tuple(lanes[0].prompt_tokens): same_text(embedded, lanes) for lanes in races if len(lanes) == 3}
    assert len(texts) == 3 and all(map(is_person, texts.values()))


def test_pays_decodes_batches_under_a_pattern(capsys, embedded, races, prompts, monkeypatch):
    alone: list[batch.BatchSequence] = []
    right = batch.build_sequences_with_plain_tokens
    monkeypatch.setattr(
        batch, "build_sequences_with_plain_tokens", lambda *how: alone.extend(found := right(*how)) or found
    )
    _, figures = told(
        capsys, "pays", *OPTIONS, "--prompts", str(prompts), "--systems", "tree,auto", "--tokens", "24", "--temperature", "0.8",
        "--regex", PATTERN, "--batch", "1,4",
    )  # fmt: skip
    assert all(re.fullmatch(PATTERN, same_text(embedded, lanes)) for lanes in races if lanes[0].max_new_tokens == 24)
    assert len(alone) == 4
    for text in alone:
        assert text.plain_tokens[-1] in embedded.stop_ids
        assert re.fullmatch(PATTERN, embedded.tokenizer.decode(text.plain_tokens[:-1]))
    for row in figures["batch"]["settings"]:
        assert [point["batch"] for point in row["points"]] == [1, 4]
        assert all(point["identical"] and point["tau"] >= 1 for point in row["points"])


@pytest.mark.parametrize(("temperature", "bound"), [("0", ()), ("0.8", ("--regex", "(yes|no), [a-z]{1,3}"))])
def test_a_target_with_states_and_mtp_layers_runs_in_bench_and_pays(temperature, bound, capsys, tmp_path, monkeypatch):
    """Free, and with noise under a pattern, every system writes plain decoding's text."""
    mtp.write(tmp_path / "own", "Qwen3.5", 1)
    monkeypatch.setattr(options, "first_held_out_prompts", lambda domain, count: ["Once", "Tom"])
    (tmp_path / "my.txt").write_text("Once upon\n\nTom\n\nA cat", encoding="utf-8")
    asked = ("--target", tmp_path / "own", "--device", "cpu", "--systems", "mtp:3x2x6,forced,auto", "--tokens", "12")
    asked += ("--temperature", temperature, *bound)
    for command in (("bench",), ("pays", "--prompts", tmp_path / "my.txt")):
        _, figures = told(capsys, *command, *asked)
        assert [row["name"] for row in figures["systems"]][-3:] == ["mtp:3x2x6", "forced", "auto"]
        assert all(row["identical"] is True for row in figures["systems"])
        assert bool(figures["constraint"]) == bool(bound)
