"""A draft in eight bits: exact where it must be, and it costs no token."""

from dataclasses import replace

import pytest
import torch

from engine.forward import llama_eight_bit
from engine.forward.llama_compiled import CompiledLlama
from engine.forward.llama_eight_bit import EightBitLlama, can_run_in_eight_bits, should_draft_in_eight_bits
from engine.forward.runner import Runner
from engine.race import Race, Settings
from helpers.families import answers, distance, random_model
from helpers.pairs import tiny_llama, tiny_pair


def raced(pair, system: str, **settings) -> dict:
    race = Race(pair, Settings("Story: Once upon a time", ("vanilla", system), max_new_tokens=32, seed=3, **settings))
    for _ in race.run():
        pass
    return race.result()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_in_eight_bits_costs_no_token(embedded, temperature):
    for pair in (tiny_pair(), embedded):
        pair = replace(pair, draft=Runner(pair.draft.model, eight_bit=True))
        assert [isinstance(each.own, EightBitLlama) for each in (pair.draft, pair.target)] == [True, False]
        assert raced(pair, "tree", temperature=temperature)["identical"] is True


def test_eight_bits_say_the_same_on_every_load_and_nearly_what_the_draft_says(embedded):
    first, second = (answers(Runner(embedded.draft.model, eight_bit=True)) for _ in range(2))
    exact = answers(Runner(embedded.draft.model))
    assert torch.equal(first, second)
    assert 0 < distance(first, exact) < 0.2 * exact.std().item()


@pytest.fixture
def no_draft_is_small(monkeypatch):
    monkeypatch.setattr(llama_eight_bit, "LARGEST", 0)


def test_a_larger_draft_and_one_with_biases_stay_exact(no_draft_is_small):
    for name in ("llama", "llama, biases, tied"):
        runner = Runner(random_model(name), eight_bit=True)
        assert isinstance(runner.own, CompiledLlama)
        assert torch.equal(answers(runner), answers(Runner(random_model(name))))


def test_small_drafts_are_few_float32_weights_without_biases(no_draft_is_small):
    assert not can_run_in_eight_bits(random_model("llama"))
    llama_eight_bit.LARGEST = 10**6
    assert can_run_in_eight_bits(random_model("llama")) and can_run_in_eight_bits(random_model("qwen2"))
    assert not can_run_in_eight_bits(random_model("llama", torch.bfloat16)) and not can_run_in_eight_bits(
        random_model("llama, biases, tied")
    )


def test_eight_bits_are_chosen_by_size_where_the_machine_has_them(embedded, monkeypatch):
    assert should_draft_in_eight_bits(embedded.draft.model) and isinstance(embedded.draft.own, EightBitLlama)
    assert not isinstance(embedded.target.own, EightBitLlama)
    assert not should_draft_in_eight_bits(tiny_llama(0))
    assert not should_draft_in_eight_bits(embedded.draft.model.__class__(embedded.draft.model.config).double())

    monkeypatch.setattr(llama_eight_bit, "can_compile_here", lambda: False)
    assert not should_draft_in_eight_bits(embedded.draft.model)
