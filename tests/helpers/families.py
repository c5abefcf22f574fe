"""Small random models of every family that the forwards serve, and what they answer."""

from functools import cache

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.forward.llama import TensorLlama
from engine.forward.runner import Runner
from engine.target import Target
from engine.tree import DraftTree

PROMPT = [5, 80, 33, 12, 200, 41, 7]
SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 160,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 20}
YARN = {"factor": 4.0, "original_max_position_embeddings": 40}
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "llama, all heads": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 4}),
    "llama, biases, tied": (
        LlamaForCausalLM,
        LlamaConfig,
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama 3": (
        LlamaForCausalLM,
        LlamaConfig,
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4} | LLAMA3},
    ),
    "llama, yarn": (
        LlamaForCausalLM,
        LlamaConfig,
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4} | YARN},
    ),
    "mistral": (MistralForCausalLM, MistralConfig, {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": True}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 32}),
}


def random_model(name: str, dtype: torch.dtype = torch.float32):
    """A random model, the same for the same name. Norms and biases are random too, so that a forgotten one shows."""
    kind, config, sizes = MODELS[name]
    torch.manual_seed(0)
    model = kind(config(**{**SIZES, **sizes}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    return model.to(dtype).eval()


def answers(runner: Runner) -> torch.Tensor:
    """Logits `[12, V]`: of a prompt, then of a tree behind it, then of a single row behind that."""
    target = Target(runner, 64)
    session = target.session
    prompt, _ = session.forward(PROMPT, list(range(len(PROMPT))))
    session.keep(list(range(len(PROMPT))))
    tree = DraftTree.rooted(9)
    tree.add(0, 17, 1.0, 1.0)
    tree.add(tree.add(0, 30, 1.0, 1.0), 31, 1.0, 1.0)
    verified, _ = target.verify(tree)
    target.commit([2])
    single, _ = target.verify(DraftTree.rooted(50))
    return torch.cat([prompt, verified, single]).float()


def unlightened(model) -> Runner:
    """A runner over transformers' own unchanged modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.forward.runner.pack_linear_layers", lambda model: None)
        return Runner(model, own=False)


def over(weights: TensorLlama, model) -> Runner:
    """A runner whose own forward is this one."""
    runner = unlightened(model)
    runner.own = weights
    return runner


@cache
def expected_of(name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return answers(unlightened(random_model(name, dtype)))


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    return (found - expected).square().mean().sqrt().item()
