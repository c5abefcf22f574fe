"""Several processes share a command's prompts and print the totals of one."""

import json
import os
import subprocess
import sys

import pytest

from engine.measure import processes
from helpers.commands import SMALL, told
from helpers.paths import ROOT

COUNTED = ("name", "tau", "identical", "nodes", "draft_forwards")  # what no clock changes


def launched(count: int, *arguments: str) -> list[str]:
    """The lines that a command prints in so many processes."""
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(count)]
    done = subprocess.run(
        [*launch, "--main_process_port", "0", "-m", "engine", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_one_process_has_everything(embedded):
    assert processes.count() == 1 and processes.leads()
    assert processes.share(["a", "b"], embedded.target) == ["a", "b"] == processes.together(["a", "b"], embedded.target)
    assert processes.own_device(None) is None and processes.own_device("cpu") == "cpu"


PARTED = """
import atexit, os, torch
from engine.measure.processes import count, of_first
# One write a process, so that no line of one process falls into a line of the other
atexit.register(lambda: os.write(1, b"still together\\n" if torch.distributed.is_initialized() else b"parted\\n"))
assert count() == 2 and of_first("met") == "met"
"""


@pytest.mark.slow
def test_processes_part_before_the_interpreter_ends(tmp_path):
    """Else a thread of the group's may free a tensor while the interpreter ends, which aborts one command in thirty."""
    script = tmp_path / "parted.py"
    script.write_text(PARTED)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    done = subprocess.run(
        launch, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stdout.split() == ["parted", "parted"], done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("prompts", ["3", "1"])  # split unevenly; fewer prompts than processes
def test_two_processes_have_the_totals_of_one(prompts, capsys, embedded):
    arguments = (
        *SMALL,
        *[
            "--shape",
            "paper",
            "--systems",
            "tree,medusa",
            "--prompts",
            prompts,
            "--tokens",
            "16",
            "--temperature",
            "0.8",
        ],
    )
    _, alone = told(capsys, "bench", *arguments)
    both = json.loads("\n".join(launched(2, "bench", *arguments, "--json")))
    assert (alone["processes"], both["processes"], both["prompts"]) == (1, 2, int(prompts))
    assert [[row[name] for name in COUNTED] for row in both["systems"]] == [
        [row[name] for name in COUNTED] for row in alone["systems"]
    ]


@pytest.mark.slow
def test_one_of_two_processes_prints():
    """Also where there are fewer prompts than processes."""
    lines = launched(2, "bench", *SMALL, "--systems", "lookup", "--prompts", "1", "--tokens", "8")
    assert sum(line.startswith("baseline:") for line in lines) == 1 and "split over 2 processes" in lines[0]


@pytest.mark.slow
def test_two_processes_judge_all_prompts_of_pays(tmp_path, capsys, embedded):
    file = tmp_path / "my.txt"
    file.write_text("\n\n".join(f"Story: {name} had a red ball" for name in ("Tom", "Ann", "Ben", "Mia", "Sue")))
    arguments = (*SMALL, "--prompts", str(file), "--systems", "tree:2x2x4", "--tokens", "10", "--temperature", "0.8")
    _, alone = told(capsys, "pays", *arguments)
    lines = launched(2, "pays", *arguments)
    both = json.loads("\n".join(launched(2, "pays", *arguments, "--json")))
    assert sum(line.startswith(("yes", "no", "only")) for line in lines) == 1
    assert [each["prompt"] for each in both["prompts"]] == [each["prompt"] for each in alone["prompts"]]
    [mine], [theirs] = alone["systems"], both["systems"]
    for figure in ("setting", "tau", "acceptance", "acceptance_by_rank", "identical"):
        assert mine[figure] == theirs[figure]
