"""What real commands print: with --json one object and nothing else, bars with an estimate beside it, and not a word of libraries."""

import json
import os
import re
import subprocess
import sys

import pytest

from engine.record.race_file import Record
from helpers.commands import SMALL
from helpers.paths import OF_TESTS, ROOT

SHORT = ("--systems", "lookup", "--tokens", "8")
BARS = "Loading target|Loading draft|races|race"
BAR = re.compile(rf"({BARS}): .*\[\d+:\d\d.*\]")  # with the time that has passed, and what is left
CURSOR = re.compile(r"\x1b\[A")  # one line up, where there are two bars


# Commands of one process, one after another, each with files of its own in place of stdout and stderr. Their races hurry
IN_TURN = """
import json, os, sys
from pathlib import Path
from runpy import run_module
from helpers.decoding import hurry

hurry()
folder = Path(sys.argv[1])
for name, words in json.loads((folder / "asked.json").read_text()).items():
    for handle, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{name}.{kind}", os.O_CREAT | os.O_WRONLY), handle)
    sys.argv[1:] = words
    run_module("engine", run_name="__main__")
    sys.stdout.flush()
    sys.stderr.flush()
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """By command its stdout, and the names of the bars on stderr, which holds nothing but bars; and the race that one recorded."""
    folder = tmp_path_factory.mktemp("printed")
    prompts, race = folder / "my.txt", folder / "race.json"
    prompts.write_text("Story: a fox\n\nStory: a hen\n\nStory: a dog\n", encoding="utf-8")
    asked = {
        "bench": ("bench", *SMALL, *SHORT, "--prompts", "1", "--json"),
        "pays": ("pays", *SMALL, *SHORT, "--prompts", str(prompts), "--json"),
        "by": ("bench", "--by", "length", *SMALL, "--systems", "lookup", "--prompts", "1", "--json"),
        "record": (
            "record",
            *SMALL,
            "--prompt",
            "Story: a fox",
            "--system",
            "lookup",
            "--tokens",
            "8",
            "-o",
            str(race),
        ),
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    command = [sys.executable, "-c", IN_TURN, str(folder)]
    ended = subprocess.run(command, cwd=ROOT, env=OF_TESTS, check=False, timeout=600).returncode
    found = {}
    for name in asked:
        said, errors = ((folder / f"{name}.{kind}").read_text("utf-8") for kind in ("out", "err"))
        lines = [line.strip() for line in re.split(r"[\r\n]", CURSOR.sub("", errors)) if line.strip()]
        assert [line for line in lines if not BAR.fullmatch(line)] == []
        found[name] = said, {line.partition(":")[0] for line in lines}
    assert ended == 0
    return found, race


@pytest.mark.slow
def test_bench_prints_one_object(printed):
    said, bars = printed[0]["bench"]
    assert [row["name"] for row in json.loads(said)["systems"]] == ["lookup"] and said.count("\n") == 1
    assert {"Loading target", "races"} <= bars


@pytest.mark.slow
def test_pays_prints_one_object(printed):
    said, bars = printed[0]["pays"]
    assert json.loads(said)["answer"] in ("yes", "no", "only") and said.count("\n") == 1
    assert "races" in bars


@pytest.mark.slow
def test_what_is_measured_by_prints_one_object(printed):
    said, bars = printed[0]["by"]
    assert json.loads(said)["rows"][0]["tokens"] == 128 and said.count("\n") == 1
    assert "races" in bars


@pytest.mark.slow
def test_record_shows_a_bar_and_says_what_it_wrote(printed):
    found, race = printed
    said, bars = found["record"]
    assert said.startswith("race.json: ") and said.count("\n") == 1 and "race" in bars
    assert len(Record.from_json(race.read_text("utf-8")).lanes) == 2


def test_warnings_of_libraries_are_printed_only_where_they_are_asked_for():
    code = """
import warnings
from runpy import run_module
run_module("engine", run_name="__main__")
from transformers.utils import logging
logging.get_logger("transformers").warning("a word of a library")
warnings.warn("a word of Python's")
"""
    for more, said in ({}, False), ({"TRANSFORMERS_VERBOSITY": "warning", "PYTHONWARNINGS": "default"}, True):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert ("a word of a library" in done.stderr, "a word of Python's" in done.stderr) == (said, said), done.stderr
