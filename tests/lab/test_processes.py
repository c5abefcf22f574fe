"""Several processes share a command's prompts and print the totals of one."""

import json
import subprocess
import sys

import pytest

from engine.measure import processes
from helpers.commands import SMALL, told
from helpers.paths import OF_TESTS, ROOT

COUNTED = ("name", "tau", "identical", "nodes", "draft_forwards")  # what no clock changes


# Commands of two processes, one after another: what each process printed, as JSON in a file of its own. Its last act is to write
# whether it is still one of two then
IN_TURN = """
import atexit, contextlib, io, json, os, sys
from pathlib import Path
import torch
import engine.measure.processes
from engine.__main__ import main
from helpers.decoding import hurry

def tell_whether_they_parted():
    (folder / f"parted-{os.environ['RANK']}").write_text(str(not torch.distributed.is_initialized()))

folder, printed = Path(sys.argv[1]), {}
atexit.register(tell_whether_they_parted)
hurry()
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
    """By command, the lines that two processes print, those of the first before those of the second; and whether each had parted."""
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
        cwd=ROOT, env=OF_TESTS, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (json.loads((folder / f"printed-{rank}.json").read_text()) for rank in (0, 1))
    parted = [(folder / f"parted-{rank}").read_text() for rank in (0, 1)]
    return {name: first[name] + second[name] for name in asked}, parted


def test_one_process_has_everything(embedded):
    assert processes.count_processes() == 1 and processes.is_first_process()
    assert (
        processes.select_items_of_this_process(["a", "b"], embedded.target)
        == ["a", "b"]
        == processes.gather_items_of_all_processes(["a", "b"], embedded.target)
    )
    assert (
        processes.choose_device_of_this_process(None) is None
        and processes.choose_device_of_this_process("cpu") == "cpu"
    )


@pytest.mark.slow
def test_processes_part_before_the_interpreter_ends(launched):
    """Else a thread of the group's may free a tensor while the interpreter ends, which aborts one command in thirty."""
    _, parted = launched
    assert parted == ["True", "True"]


@pytest.mark.slow
@pytest.mark.parametrize("prompts", ["3", "1"])  # split unevenly; fewer prompts than processes
def test_two_processes_have_the_totals_of_one(prompts, launched, capsys, embedded):
    _, alone = told(capsys, "bench", *BENCH, prompts)
    both = json.loads("\n".join(launched[0][f"bench {prompts}"]))
    assert (alone["processes"], both["processes"], both["prompts"]) == (1, 2, int(prompts))
    assert [[row[name] for name in COUNTED] for row in both["systems"]] == [
        [row[name] for name in COUNTED] for row in alone["systems"]
    ]


@pytest.mark.slow
def test_one_of_two_processes_prints(launched):
    """Also where there are fewer prompts than processes."""
    lines = launched[0]["bench"]
    assert sum(line.startswith("baseline:") for line in lines) == 1 and "split over 2 processes" in lines[0]


@pytest.mark.slow
def test_two_processes_judge_all_prompts_of_pays(launched, mine, capsys, embedded):
    _, alone = told(capsys, "pays", *PAYS, mine)
    both = json.loads("\n".join(launched[0]["pays json"]))
    assert sum(line.startswith(("yes", "no", "only")) for line in launched[0]["pays"]) == 1
    assert [each["prompt"] for each in both["prompts"]] == [each["prompt"] for each in alone["prompts"]]
    [one], [two] = alone["systems"], both["systems"]
    for figure in ("setting", "tau", "acceptance", "acceptance_by_rank", "identical"):
        assert one[figure] == two[figure]
