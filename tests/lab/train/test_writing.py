"""The target's own writing: what it serves, many texts at once, and the same again for the same key."""

import copy

import pytest
import torch

from engine.forward.runner import Runner
from engine.lab.train import writing
from engine.lab.train.writing import RowWriter
from engine.models.quantising import replace_with_rounded_linear
from helpers.pairs import tiny_llama

PROMPTS = torch.tensor([[3, 80, 33], [9, 9, 120], [200, 41, 7]])


@pytest.fixture(autouse=True)
def short_rows(monkeypatch):
    monkeypatch.setattr(writing, "ROW", 24)


def alone(model, prompt: list[int]) -> list[int]:
    """Greedy text of one prompt, by forwards of one token."""
    session, text = Runner(model).open_session(24), list(prompt)
    session.prefill(text[:-1])
    while len(text) < 24:
        logits, _ = session.forward(text[-1:], [len(text) - 1])
        session.keep([0])
        text.append(int(logits[0].argmax()))
    return text


@pytest.mark.parametrize("eight_bits", [False, True])
def test_greedy_rows_are_what_the_target_serves(eight_bits):
    model = tiny_llama(0)
    model = replace_with_rounded_linear(model) if eight_bits else model
    write = RowWriter(model)
    assert write.runner
    assert write(PROMPTS, 0.0, 0).tolist() == [alone(model, prompt) for prompt in PROMPTS.tolist()]


def test_sampled_rows_repeat_by_key_and_follow_the_temperature():
    write = RowWriter(tiny_llama(0))
    one, again, other = (write(PROMPTS, 1.0, key) for key in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert torch.equal(one[:, :3], PROMPTS) and one.shape == (3, 24)
    assert torch.equal(write(PROMPTS, 1e-6, 1), write(PROMPTS, 0.0, 1))


def test_a_model_that_is_not_compiled_writes_by_generate():
    """The same greedy text, because transformers computes the same model."""
    model = tiny_llama(0)
    write = RowWriter(model)
    compiled, write.runner = write(PROMPTS, 0.0, 0), None
    kept = copy.deepcopy(model.generation_config)
    assert torch.equal(write(PROMPTS, 0.0, 0), compiled) and model.generation_config == kept
    assert write(PROMPTS, 1.0, 3).shape == (3, 24)
