"""The GPU path rehearsed without a GPU, on a device that pretends to be one (`helpers.pretend_device`).

It shows that texts are right and that nothing is refused or captured late. It does not show what a real device rounds, shares or lacks.
"""

import json
import subprocess
import sys

import pytest
import torch.utils.backend_registration as registration

from engine.policies.shared.asking import TOGETHER
from engine.systems import SYSTEMS
from helpers.paths import OF_TESTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch makes no device in Python",
    ),
]
# Waits to draft where no level has its own: one for all levels, one for the rank head, and one for what is learned
AT_ONCE = {"parallel-tree": 1, "dflash": 1, "specblock": 2, "specblock-adapt": 3}
LEAST = {"cuda": 30, "mps": 3}  # systems and temperatures that must have been raced
AHEAD = ("eagle", "talon", "auto", "dspark", "sequoia")  # several levels are drafted before one is read


@pytest.fixture(scope="module")
def on_both() -> dict[str, dict]:
    """What was found, by kind."""
    command = [sys.executable, "-m", "helpers.pretend_device.rehearsal"]
    ran = subprocess.run(command, env=OF_TESTS, capture_output=True, text=True, timeout=1800, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {each["kind"]: each for each in found}


@pytest.fixture(scope="module")
def on_cuda(on_both) -> dict:
    return on_both["cuda"]


@pytest.fixture(scope="module")
def on_mps(on_both) -> dict:
    return on_both["mps"]


@pytest.fixture(params=["on_cuda", "on_mps"])
def found(request) -> dict:
    """What holds on both kinds of devices."""
    return request.getfixturevalue(request.param)


def test_every_system_that_keeps_tokens_writes_the_baselines(found):
    promised = [
        name
        for name in found["races"]
        if SYSTEMS[name.split()[0]].guarantee == "tokens"
        or (SYSTEMS[name.split()[0]].guarantee == "law" and name.endswith(" 0"))
    ]
    assert (
        len(promised) > LEAST[found["kind"]] and [name for name in promised if not found["races"][name]["same"]] == []
    )


def test_trees_are_those_that_grow_on_a_cpu(found):
    """They are greedy on CUDA, whose noise is its own. What decides by measured seconds is left out."""
    trees = {name: race["trees"] for name, race in found["races"].items() if "trees" in race}
    assert len(trees) > LEAST[found["kind"]] * 2 / 3 and [name for name, same in trees.items() if not same] == []


def test_levels_that_are_read_together_are_those_that_are_read_one_by_one(on_cuda, on_mps):
    assert on_cuda["apart"] == dict.fromkeys(("parallel-tree", "dflash", "specblock", *AHEAD), True)
    assert on_mps["apart"] == dict.fromkeys(("eagle", "sequoia"), True)


def test_no_capture_fails_and_none_comes_after_readiness(on_cuda):
    assert on_cuda["eager"] == ["", ""]
    assert on_cuda["captures"].pop("readiness") > 20
    assert [name for name, count in on_cuda["captures"].items() if count] == []


def test_the_host_waits_once_for_what_is_read_together_and_once_to_decide(on_cuda):
    """Rounds that a device decides alone wait for their one copy only, which is not counted here."""
    for at, race in on_cuda["races"].items():
        name = at.split()[0]
        levels = max(race["forwards"], race["levels"])
        ahead = 1 + -(-(levels - 1) // TOGETHER)  # where the last tree was shallow, the first read is a short one
        reads = AT_ONCE.get(name, ahead if name in AHEAD else levels)
        most = 0 if name in ("vanilla", "tree") else reads + 1
        assert race["waits"] <= most, (at, race)
    assert max(race["levels"] for race in on_cuda["races"].values()) > TOGETHER


def test_no_round_of_a_learned_drafter_or_a_law_rule_waits_six_times(on_cuda):
    assert {at: race["waits"] for at, race in on_cuda["races"].items() if race["waits"] > 5} == {}


def test_graphs_survive_an_out_of_memory(on_cuda):
    memory = on_cuda["memory"]
    assert memory["same"] and memory["eager"] == "" and memory["captures"] > 0


def test_a_model_that_reads_on_the_host_runs_eagerly_and_says_why(on_cuda):
    assert "LlamaForCausalLM could not be captured" in on_cuda["reading"]
    assert (
        "operation not permitted when stream is capturing (item)" in on_cuda["reading"]
    )  # the first error, not the last


def test_learned_drafters_share_the_targets_matrices(found):
    assert found["shared"] == dict.fromkeys(("medusa", "eagle", "parallel", "specblock"), True)


def test_apples_gpu_has_no_graphs_and_says_so(on_mps):
    assert on_mps["eager"] == ["Forwards run eagerly: CUDA graphs need a CUDA GPU, and this is mps:0."] * 2


def test_a_pair_is_loaded_on_apples_gpu_and_writes_a_cpus_texts_there(on_mps):
    """Its noise is a CPU's at every temperature, and its clocks wait for it, several times a round."""
    loaded = on_mps["loaded"]
    assert (loaded["hardware"], loaded["device"]) == ("pretend Apple GPU", "mps:0")
    assert loaded["same"] == {"0": [True] * 3, "0.8": [True] * 3}
    assert loaded["synchronised"] > 50
