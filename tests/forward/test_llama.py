"""The CPU's own forward, as tensors, is transformers' for every family."""

import pytest
import torch

from engine.forward.llama import TensorLlama, can_use_custom_cpu_forward
from helpers.families import MODELS, PROMPT, answers, distance, expected_of, over, random_model
from helpers.pairs import tiny_llama


@pytest.mark.parametrize("name", MODELS)
def test_the_lean_forward_is_the_transformers_one(name):
    model = random_model(name)
    assert can_use_custom_cpu_forward(model)
    found = answers(over(TensorLlama(model), model))
    assert torch.allclose(found, expected_of(name), atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_in_bfloat16_the_lean_forward_is_as_near_the_truth_as_the_transformers_one(name):
    truth, model = expected_of(name), random_model(name, torch.bfloat16)
    assert can_use_custom_cpu_forward(model)
    error = distance(expected_of(name, torch.bfloat16), truth)
    assert error > 1e-4
    assert distance(answers(over(TensorLlama(model), model)), truth) < 1.3 * error


def test_a_model_keeps_its_own_weights_under_the_lean_forward():
    """Others read them: `generate`, the learned drafters' embedding and head."""
    model, untouched = random_model("qwen2"), random_model("qwen2")
    TensorLlama(model)
    for (name, found), (_, expected) in zip(model.named_parameters(), untouched.named_parameters(), strict=True):
        assert torch.equal(found, expected), name
    assert model.lm_head.weight is model.model.embed_tokens.weight
    ids = torch.tensor([PROMPT])
    assert torch.equal(model(ids).logits, untouched(ids).logits)


def test_the_lean_forward_is_offered_only_what_it_computes():
    assert not can_use_custom_cpu_forward(tiny_llama(0).double())
    assert not can_use_custom_cpu_forward(tiny_llama(0).half())
    gelu = tiny_llama(0)
    gelu.config.hidden_act = "gelu"
    assert not can_use_custom_cpu_forward(gelu)
    dynamic = tiny_llama(0)
    dynamic.model.rotary_emb.rope_type = "dynamic"
    assert not can_use_custom_cpu_forward(dynamic)
    windowed = random_model("mistral")
    assert can_use_custom_cpu_forward(windowed)
    windowed.config.sliding_window = 100
    assert not can_use_custom_cpu_forward(windowed)
    mixed = tiny_llama(0)
    mixed.lm_head.bfloat16()
    assert not can_use_custom_cpu_forward(mixed)
