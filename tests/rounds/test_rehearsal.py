"""The GPU path rehearsed without a GPU, on a device that pretends to be one (`helpers.pretend_device`).

It shows that texts are right and that nothing is refused or captured late. It does not show what a real device rounds, shares or lacks.
"""

import json
import subprocess
import sys

import pytest
import torch.utils.backend_registration as registration

from engine.systems import resolve_system_name
from helpers.families import WINDOWED
from helpers.paths import OF_TESTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch makes no device in Python",
    ),
]
# Systems whose rounds a device decides alone
THERE = {
    *("vanilla", "tree", "medusa", "parallel-tree", "dflash", "dspark", "specblock", "eagle", "mtp", "talon", "auto"),
    "specblock:12x4x24",  # of three blocks
}
# Waits of a round for more than its guesses: for the rank head by level and for what is learned, and for what the target ranks highest
MORE = {"specblock-adapt": 6, "recycling": 1, "lookahead": 1}
LEAST = {"cuda": 30, "mps": 3}  # systems and temperatures that must have been raced


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
        if resolve_system_name(name.split()[0]).guarantee == "tokens"
        or (resolve_system_name(name.split()[0]).guarantee == "law" and name.endswith(" 0"))
    ]
    assert (
        len(promised) > LEAST[found["kind"]] and [name for name in promised if not found["races"][name]["same"]] == []
    )


def test_trees_are_those_that_grow_on_a_cpu(found):
    """They are greedy on CUDA, whose noise is its own. What decides by measured seconds is left out."""
    trees = {name: race["trees"] for name, race in found["races"].items() if "trees" in race}
    assert len(trees) > LEAST[found["kind"]] * 2 / 3 and [name for name, same in trees.items() if not same] == []


def test_no_capture_fails_and_none_comes_after_readiness(on_cuda):
    assert on_cuda["eager"] == [""] * 2 * (1 + len(WINDOWED))
    assert on_cuda["captures"].pop("readiness") > 20
    assert [name for name, count in on_cuda["captures"].items() if count] == []


def test_a_device_decides_rounds_of_every_drafter_with_a_forward_alone(on_cuda):
    """It brings one copy to the host a round, which is not counted here. Greedy or not, trees are as deep as they were asked for."""
    there = {at: race for at, race in on_cuda["races"].items() if race["there"]}
    assert {at.split()[0] for at in there} == THERE and len(there) == 2 * (len(THERE) + 3 + 2 * len(WINDOWED))
    assert {at: race["for"] for at, race in there.items() if race["waits"]} == {}
    assert {at.split()[0] for at, race in there.items() if race["levels"] < 3} <= {"vanilla"}


def test_on_the_host_a_round_waits_once_for_every_level_and_once_to_decide(on_cuda):
    for at, race in on_cuda["races"].items():
        name = at.split()[0]
        asked = 0 if resolve_system_name(name).policy == "own_tree" else max(race["forwards"], race["levels"])
        assert race["there"] or race["waits"] <= asked + 1 + MORE.get(name, 0), (at, race)


def test_drafters_that_copy_have_guessed(on_cuda):
    """Or nothing of them would be rehearsed."""
    copied = [f"{name} at {heat}" for name in ("lookup", "suffix", "recycling", "lookahead") for heat in (0, 0.8)]
    assert [at for at in copied if not on_cuda["races"][at]["levels"]] == []


def test_graphs_survive_an_out_of_memory(on_cuda):
    memory = on_cuda["memory"]
    assert memory["same"] and memory["eager"] == "" and memory["captures"] > 0


def test_what_generate_needs_of_a_model_is_given_back_when_a_call_ends(on_cuda):
    """Grouped heads are folded within a call. A second call with another draft is as welcome as the first."""
    assert on_cuda["generated"] == {"texts": [True] * 3, "attention": [["sdpa", "sdpa"]] * 3}


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
