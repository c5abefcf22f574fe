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


# Commands of two processes, one after another: what each process printed, as JSON in a file of its own
IN_TURN = """
import contextlib, io, json, os, sys
from pathlib import Path
from engine.__main__ import main

folder, printed = Path(sys.argv[1]), {}
for name, words in json.loads((folder / "asked.json").read_text()).items():
    with contextlib.redirect_stdout(io.StringIO()) as said:
        main(words)
    printed[name] = said.getvalue().splitlines()
(folder / f"printed-{os.environ['RANK']}.json").write_text(json.dumps(printed))
"""
BENCH = (*SMALL, "--shape", "paper", "--systems", "tree,medusa", "--tokens", "16", "--temperature", "0.8", "--prompts")
PAYS = (*SMALL, "--systems", "tree:2x2x4", "--tokens", "10", "--temperature", "0.8", "--prompts")
NAMES = ("Tom", "Ann", "Ben", "Mia", "Sue")


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A file of five prompts."""
    file = tmp_path_factory.mktemp("prompts") / "my.txt"
    file.write_text("\n\n".join(f"Story: {name} had a red ball" for name in NAMES))
    return str(file)


@pytest.fixture(scope="module")
def launched(mine, tmp_path_factory):
    """By command, the lines that two processes print, those of the first before those of the second."""
    folder = tmp_path_factory.mktemp("launched")
    asked = {
        "bench 3": ("bench", *BENCH, "3", "--json"),
        "bench 1": ("bench", *BENCH, "1", "--json"),
        "bench": ("bench", *SMALL, "--systems", "lookup", "--prompts", "1", "--tokens", "8"),
        "pays": ("pays", *PAYS, mine),
        "pays json": ("pays", *PAYS, mine, "--json"),
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    (folder / "in_turn.py").write_text(IN_TURN)
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    done = subprocess.run(
        [*launch, "--main_process_port", "0", str(folder / "in_turn.py"), str(folder)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (json.loads((folder / f"printed-{rank}.json").read_text()) for rank in (0, 1))
    return {name: first[name] + second[name] for name in asked}


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
def test_two_processes_have_the_totals_of_one(prompts, launched, capsys, embedded):
    _, alone = told(capsys, "bench", *BENCH, prompts)
    both = json.loads("\n".join(launched[f"bench {prompts}"]))
    assert (alone["processes"], both["processes"], both["prompts"]) == (1, 2, int(prompts))
    assert [[row[name] for name in COUNTED] for row in both["systems"]] == [
        [row[name] for name in COUNTED] for row in alone["systems"]
    ]


@pytest.mark.slow
def test_one_of_two_processes_prints(launched):
    """Also where there are fewer prompts than processes."""
    lines = launched["bench"]
    assert sum(line.startswith("baseline:") for line in lines) == 1 and "split over 2 processes" in lines[0]


@pytest.mark.slow
def test_two_processes_judge_all_prompts_of_pays(launched, mine, capsys, embedded):
    _, alone = told(capsys, "pays", *PAYS, mine)
    both = json.loads("\n".join(launched["pays json"]))
    assert sum(line.startswith(("yes", "no", "only")) for line in launched["pays"]) == 1
    assert [each["prompt"] for each in both["prompts"]] == [each["prompt"] for each in alone["prompts"]]
    [one], [two] = alone["systems"], both["systems"]
    for figure in ("setting", "tau", "acceptance", "acceptance_by_rank", "identical"):
        assert one[figure] == two[figure]
