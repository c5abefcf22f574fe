"""The GPU path rehearsed without a GPU, on a device that pretends to be one (`helpers.pretend_cuda`).

It shows that texts are right and that nothing is refused or captured late. It does not show what a real device rounds, shares or lacks.
"""

import json
import os
import subprocess
import sys

import pytest
import torch.utils.backend_registration as registration

from engine.policies.shared.ahead import TOGETHER
from engine.systems import SYSTEMS
from helpers.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch makes no device in Python",
    ),
]
# Waits to draft where no level has its own: one for all levels, one for the rank head, and one for what is learned
AT_ONCE = {"parallel-tree": 1, "dflash": 1, "specblock": 2, "specblock-adapt": 3}
AHEAD = ("eagle", "talon", "auto", "dspark", "sequoia")  # several levels are drafted before one is read


@pytest.fixture(scope="module")
def found() -> dict:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "helpers.pretend_cuda.rehearsal"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def test_every_system_that_keeps_tokens_writes_the_baselines(found):
    promised = [
        name
        for name in found["races"]
        if SYSTEMS[name.split()[0]].guarantee == "tokens"
        or (SYSTEMS[name.split()[0]].guarantee == "law" and name.endswith(" 0"))
    ]
    assert len(promised) > 30 and [name for name in promised if not found["races"][name]["same"]] == []


def test_trees_are_those_that_grow_on_a_cpu(found):
    """Noise differs by device, so these are greedy. What decides by measured seconds is left out."""
    trees = {name: race["trees"] for name, race in found["races"].items() if "trees" in race}
    assert len(trees) > 20 and [name for name, same in trees.items() if not same] == []


def test_levels_that_are_read_together_are_those_that_are_read_one_by_one(found):
    assert found["apart"] == dict.fromkeys(("parallel-tree", "dflash", "specblock", *AHEAD), True)


def test_no_capture_fails_and_none_comes_after_readiness(found):
    assert found["eager"] == ["", ""]
    assert found["captures"].pop("readiness") > 20
    assert [name for name, count in found["captures"].items() if count] == []


def test_the_host_waits_once_for_what_is_read_together_and_once_to_decide(found):
    """Rounds that a device decides alone wait for their one copy only, which is not counted here."""
    for at, race in found["races"].items():
        name = at.split()[0]
        levels = max(race["forwards"], race["levels"])
        ahead = 1 + -(-(levels - 1) // TOGETHER)  # where the last tree was shallow, the first read is a short one
        reads = AT_ONCE.get(name, ahead if name in AHEAD else levels)
        most = 0 if name in ("vanilla", "tree") else reads + 1
        assert race["waits"] <= most, (at, race)
    assert max(race["levels"] for race in found["races"].values()) > TOGETHER


def test_no_round_of_a_learned_drafter_or_a_law_rule_waits_six_times(found):
    assert {at: race["waits"] for at, race in found["races"].items() if race["waits"] > 5} == {}


def test_graphs_survive_an_out_of_memory(found):
    memory = found["memory"]
    assert memory["same"] and memory["eager"] == "" and memory["captures"] > 0


def test_a_model_that_reads_on_the_host_runs_eagerly_and_says_why(found):
    assert "LlamaForCausalLM could not be captured" in found["reading"]
    assert (
        "operation not permitted when stream is capturing (item)" in found["reading"]
    )  # the first error, not the last


def test_learned_drafters_share_the_targets_matrices(found):
    assert found["shared"] == dict.fromkeys(("medusa", "eagle", "parallel", "specblock"), True)
