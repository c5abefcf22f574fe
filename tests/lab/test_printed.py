"""What real commands print: with --json one object and nothing else, bars with an estimate beside it, and not a word of libraries."""

import json
import os
import re
import subprocess
import sys

import pytest

from engine.record.race_file import Record
from helpers.commands import SMALL
from helpers.paths import ROOT

SHORT = ("--systems", "lookup", "--tokens", "8")
BARS = "Loading target|Loading draft|prompts|races|race|timing"
BAR = re.compile(rf"({BARS}): .*\[\d+:\d\d.*\]")  # with the time that has passed, and what is left
CURSOR = re.compile(r"\x1b\[A")  # one line up, where there are two bars


def printed(*arguments: str) -> tuple[str, set[str]]:
    """Stdout, and the names of the bars on stderr, which holds nothing but bars."""
    done = subprocess.run(
        [sys.executable, "-m", "engine", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = [line.strip() for line in re.split(r"[\r\n]", CURSOR.sub("", done.stderr)) if line.strip()]
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line for line in lines if not BAR.fullmatch(line)] == []
    return done.stdout, {line.partition(":")[0] for line in lines}


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "my.txt"
    file.write_text("Story: a fox\n\nStory: a hen\n\nStory: a dog\n", encoding="utf-8")
    return str(file)


@pytest.mark.slow
def test_bench_prints_one_object():
    said, bars = printed("bench", *SMALL, *SHORT, "--prompts", "1", "--json")
    assert [row["name"] for row in json.loads(said)["systems"]] == ["lookup"] and said.count("\n") == 1
    assert {"Loading target", "prompts"} <= bars


@pytest.mark.slow
def test_pays_prints_one_object(prompts):
    said, bars = printed("pays", *SMALL, *SHORT, "--prompts", prompts, "--json")
    assert json.loads(said)["answer"] in ("yes", "no", "only") and said.count("\n") == 1
    assert "races" in bars


@pytest.mark.slow
def test_what_is_measured_by_prints_one_object():
    said, bars = printed("bench", "--by", "tree", *SMALL, "--repeats", "1", "--json")
    assert json.loads(said)["rows"][0]["nodes"] == 1 and said.count("\n") == 1
    assert "timing" in bars


@pytest.mark.slow
def test_record_shows_a_bar_and_says_what_it_wrote(tmp_path):
    file = tmp_path / "race.json"
    said, bars = printed(
        "record", *SMALL, "--prompt", "Story: a fox", "--system", "lookup", "--tokens", "8", "-o", str(file)
    )
    assert said.startswith("race.json: ") and said.count("\n") == 1 and "race" in bars
    assert len(Record.from_json(file.read_text("utf-8")).lanes) == 2


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
