"""The default pair: a target in eight bits with files of its own, and drafters half as wide that share its tables."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from engine.models.export import export_drafter_as_speculators
from engine.models.loading import check_files_memory_and_choose_quantisation, load, load_pair_anew
from engine.models.pairs import PAIRS
from engine.nets import open_lazy_nets
from engine.race import Race, Settings

PROMPT = "Story: Once upon a time there was a little girl who"
SYSTEMS = ("tree", "eagle", "dspark", "medusa", "parallel-tree", "specblock", "specblock-adapt", "dflash")
LARGEST = 50e6  # bytes of a file


@pytest.fixture(scope="module")
def large():
    return load("embedded", device="cpu")


def test_it_has_67_million_weights_in_eight_bits_and_files_of_its_own(large):
    pair = PAIRS["embedded"]
    assert large.dtype == "8-bit" and round(large.target.model.num_parameters() / 1e6) == 67
    files = (pair.target, pair.draft, pair.drafters_folder, pair.bigram_path, pair.calibration_path)
    assert {Path(each).parent.name for each in files if each} == {"embedded"}
    assert all(each.stat().st_size < LARGEST for each in Path(pair.target).iterdir())


def test_every_drafter_drafts_for_it_and_stores_none_of_its_tables(large):
    """All lanes write one text, and a drafter that read its features or tables wrongly would be right almost never."""
    race = Race(large.with_shapes({}), Settings(PROMPT, ("vanilla", *SYSTEMS), max_new_tokens=24))
    for _ in race.run():
        pass
    assert race.result()["identical"] is True
    for lane in race.lanes[1:]:
        assert lane.trace.tau > 1.8, lane.trace.system
    for folder in Path(PAIRS["embedded"].drafters_folder or "").iterdir():
        with safe_open(folder / "model.safetensors", "pt") as stored:
            assert not set(stored.keys()) & {"embedding", "head", "embed_tokens.weight", "lm_head.weight"}


def test_it_cannot_be_kept_in_4_bits_and_a_sentence_says_what_would_work():
    with pytest.raises(
        ValueError, match="holds weights in 8-bit: load it with the quantisation 8-bit or none, got nf4"
    ):
        check_files_memory_and_choose_quantisation(PAIRS["embedded"], quantisation="nf4")


def test_without_eight_bits_it_is_widened_and_trees_write_its_text():
    pair = load_pair_anew(PAIRS["embedded"], "cpu", quantisation="none")
    assert pair.dtype == "fp32" and pair.target.forward_kind == "compiled"
    race = Race(pair, Settings(PROMPT, ("vanilla", "tree"), max_new_tokens=16))
    for _ in race.run():
        pass
    assert race.result()["identical"] is True


@pytest.mark.parametrize("kind", ["eagle", "parallel"])
def test_an_exported_drafter_brings_the_tables_that_it_shares(kind, large, tmp_path):
    export_drafter_as_speculators(large.pair, kind, tmp_path / kind)
    kept, exported = (
        open_lazy_nets(folder, large.target.model)[kind] for folder in (Path(large.pair.drafters_folder), tmp_path)
    )
    for name in kept.used_table_names:
        assert torch.allclose(getattr(exported, name), getattr(kept, name), atol=1e-3)
