"""The default pair's target: it grows when it is loaded, computes what the one in its files does, and takes the drafters of that."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.models.growing import grown, grown_config
from engine.models.loading import checked_files, load, load_pair
from engine.models.pairs import PAIRS, Growth
from engine.race import Race, Settings
from engine.sampling import seeded

IDS = torch.tensor([[0, 90, 33, 7, 120, 5]])
PROMPT = "Story: Once upon a time there was a little girl who"
SYSTEMS = ("tree", "eagle", "dspark", "medusa", "parallel-tree", "specblock", "specblock-adapt", "dflash")


@pytest.fixture(scope="module")
def large():
    return load("embedded", device="cpu")


def tied_llama() -> LlamaForCausalLM:
    """A random Llama over 256 tokens whose head is its embedding."""
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        tie_word_embeddings=True,
    )  # fmt: skip
    model, draws = LlamaForCausalLM(config).eval(), seeded("a tied llama")
    for weight in model.parameters():
        weight.data.normal_(generator=draws).mul_(0.3)
    return model


@pytest.mark.parametrize("growth", [Growth(2, 200), Growth(3, 512)])
def test_a_grown_target_gives_the_small_ones_logits(growth):
    small = tied_llama()
    large = grown(small, growth)
    assert large.config.hidden_size == growth.copies * small.config.hidden_size
    assert large.num_parameters() > 2 * small.num_parameters()
    with torch.inference_mode():
        said, wanted = large(IDS).logits, small(IDS).logits
    assert float((said - wanted).abs().max()) < 1e-2 * float(wanted.abs().max())  # weights are rounded to float16


def test_only_a_tied_llama_with_room_for_its_numbers_grows():
    with pytest.raises(ValueError, match="can not grow to"):
        grown(tied_llama(), Growth(2, 8))


def test_the_default_pair_has_71_million_weights_in_eight_bits_and_files_of_its_own(large):
    pair = PAIRS["embedded"]
    assert large.dtype == "8-bit" and round(large.target.model.num_parameters() / 1e6) == 71
    files = (pair.target, pair.draft, pair.drafters, pair.bigram, pair.calibration)
    assert {Path(each).parent.name for each in files if each} == {"embedded"}


def text_of(pair, *systems: str) -> tuple[int, ...]:
    """What all the systems write."""
    race = Race(pair, Settings(PROMPT, systems, max_new_tokens=16))
    for _ in race.run():
        pass
    texts = {tuple(lane.trace.tokens) for lane in race.lanes}
    assert len(texts) == 1
    return texts.pop()


def test_every_drafter_that_learned_from_the_target_in_its_files_drafts_for_it(large):
    """All lanes write one text, and a drafter that read its features wrongly would be right almost never."""
    race = Race(large.in_shapes({}), Settings(PROMPT, ("vanilla", *SYSTEMS), max_new_tokens=24))
    for _ in race.run():
        pass
    assert race.result()["identical"] is True
    for lane in race.lanes[1:]:
        assert lane.trace.tau > 1.8, lane.trace.system


@pytest.mark.parametrize(("how", "what"), [({"quantisation": "nf4"}, "in 4 bits"), ({"spread": "layers"}, "devices")])
def test_what_it_cannot_be_kept_in_is_a_sentence(how, what):
    with pytest.raises(ValueError, match=what) as refused:
        checked_files(PAIRS["embedded"], **how)
    assert "--pair small" in str(refused.value)


def test_without_eight_bits_it_writes_the_text_of_the_target_in_its_files():
    """In eight bits a near-tie may fall otherwise, because a rounded sum goes on from there."""
    pair = load_pair(PAIRS["embedded"], "cpu", quantisation="none")
    assert pair.dtype == "fp32" and pair.target.way == "compiled"
    as_trained = load_pair(replace(PAIRS["embedded"], growth=None), "cpu")
    assert text_of(pair, "vanilla", "tree") == text_of(as_trained, "vanilla")


def test_memory_is_counted_for_the_grown_sizes():
    small, growth = tied_llama().config, Growth(4, 999)
    config = grown_config(small, growth)
    sizes = config.hidden_size, config.num_attention_heads, config.intermediate_size
    assert sizes == (4 * small.hidden_size, 4 * small.num_attention_heads, 999)
    assert config.head_dim == small.head_dim
