"""A target over several devices writes what it writes on one: layers in memory and on a disk, matrices in two processes."""

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoConfig, BloomConfig, BloomForCausalLM

from engine.models import pairs, spreading
from engine.models.loading import load_pair_anew
from engine.race import Race, Settings
from helpers.checkpoints import pair_of, write
from helpers.paths import OF_TESTS, ROOT

SIZES = {"num_hidden_layers": 4, "num_attention_heads": 4}
PROMPT = "Once upon a time"
RACE = """
import json, sys
from engine.__main__ import main
from engine.measure import processes
from engine.models.loading import load_pair_anew
from engine.models.pairs import Pair
from engine.race import Race, Settings
from helpers.decoding import hurry
hurry()
target, draft, temperature, *words = sys.argv[1:]
pair = load_pair_anew(Pair("test", "test pair", target, draft), spread="matrices")
race = Race(pair, Settings("Once upon a time", ("vanilla", "tree", "auto"), temperature=float(temperature), max_new_tokens=12, seed=5))
for _ in race.run():
    pass
if processes.is_first_process():
    print(json.dumps([pair.hardware, [lane.trace.tokens for lane in race.lanes], pair.target.new_cache(8).layers[0][0].shape[1]]))
main(words)
"""


def tokens_of(pair, temperature: float, systems: tuple[str, ...] = ("vanilla", "tree")) -> list[list[int]]:
    """What lanes write."""
    settings = Settings(PROMPT, systems, temperature=temperature, max_new_tokens=12, seed=5)
    race = Race(pair, settings)
    for _ in race.run():
        pass
    return [lane.trace.tokens for lane in race.lanes]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target of four layers and four heads, and a draft model."""
    target, draft = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("draft")
    write(target, **SIZES)
    write(draft, seed=1)
    return target, draft


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_layers_in_memory_and_on_a_disk_write_the_whole_models_text(folders, monkeypatch, temperature):
    whole = load_pair_anew(pair_of(*folders))
    monkeypatch.setattr(spreading, "available_weight_bytes_by_device", lambda: {"cpu": 320_000})
    spread = load_pair_anew(pair_of(*folders), spread="layers")
    places = spread.target.model.hf_device_map
    assert {*places.values()} == {"cpu", "disk"} and spread.target.forward_kind == "transformers"
    assert spread.hardware.endswith(", layers on cpu and disk")
    assert spread.target.why_eager == "Forwards run eagerly: CUDA graphs need a CUDA GPU, and this is cpu."
    ours, its = tokens_of(whole, temperature), tokens_of(spread, temperature)
    assert ours == its and ours[0] == ours[1]


def test_a_model_that_fits_one_device_is_loaded_as_ever(folders):
    spread = load_pair_anew(pair_of(*folders), spread="layers")
    assert not spread.target.spread and spread.target.forward_kind == "compiled"


def test_what_lies_on_a_disk_is_deleted_with_the_model(folders, monkeypatch):
    made = []
    monkeypatch.setattr(spreading, "available_weight_bytes_by_device", lambda: {"cpu": 320_000})
    monkeypatch.setattr(
        spreading.tempfile,
        "mkdtemp",
        lambda prefix, own=spreading.tempfile.mkdtemp: made.append(own(prefix=prefix)) or made[0],
    )
    spread = load_pair_anew(pair_of(*folders), spread="layers")
    [folder] = made
    assert Path(folder).is_dir() and spread.target.spread
    del spread
    gc.collect()
    assert not Path(folder).exists()


@pytest.fixture(scope="module")
def lines(folders, tmp_path_factory):
    """What two processes print that split the matrices: of a race, and then of `bench`."""
    script = tmp_path_factory.mktemp("script") / "race.py"
    script.write_text(RACE)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    named = ["--target", str(folders[0]), "--draft", str(folders[1]), "--spread", "matrices"]
    command = ["bench", *named, "--prompts", "2", "--tokens", "8", "--json"]
    done = subprocess.run(
        [*launch, str(script), *map(str, folders), "0.8", *command],
        cwd=ROOT, env=OF_TESTS, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.slow
def test_two_processes_that_split_the_matrices_write_what_one_writes(folders, lines):
    hardware, written, heads = json.loads(lines[0])
    assert hardware.endswith(", 2 processes") and heads == 1
    assert written == tokens_of(load_pair_anew(pair_of(*folders)), 0.8, ("vanilla", "tree", "auto"))


@pytest.mark.slow
def test_bench_splits_matrices_over_the_processes_of_torchrun(lines):
    figures = json.loads("\n".join(lines[1:]))  # one object: one process alone prints
    assert figures["prompts"] == 2 and figures["systems"][0]["identical"] is True


@pytest.mark.parametrize(
    ("world", "kind", "sentence"),
    [
        ("1", "llama", "this is a single one. Start them, as in `torchrun --nproc-per-node 2"),
        ("3", "llama", "has 4 attention heads, which 3 processes cannot share evenly. Start a number that divides 4."),
        ("4", "llama", "has 2 key-value heads, which 4 processes cannot share evenly"),
        ("2", "bloom", "transformers has no plan to split a bloom model. Use --spread layers."),
    ],
)
def test_what_cannot_be_split_is_refused(folders, monkeypatch, world, kind, sentence):
    monkeypatch.setenv("WORLD_SIZE", world)
    config = AutoConfig.from_pretrained(folders[0])
    empty = load_pair_anew(pair_of(*folders)).target.model
    if kind == "bloom":
        config = BloomConfig(vocab_size=8, hidden_size=8, n_layer=1, n_head=2)
        empty = BloomForCausalLM(config)
    with pytest.raises(ValueError) as refusal:
        spreading.spread_loading_arguments("matrices", pairs.Checkpoint("a model"), config, empty)
    assert sentence in str(refusal.value)


def test_an_unknown_way_is_refused(folders):
    with pytest.raises(ValueError, match="Unknown spread 'thin'"):
        load_pair_anew(pair_of(*folders), spread="thin")
