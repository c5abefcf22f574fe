"""Small random models of every family that the forwards serve, what they answer, and which of many cases the daily loop tries."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers as tr
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
from engine.models.loading import load_pair_anew
from engine.models.pairs import LoadedPair
from engine.target import Target
from engine.tree import DraftTree
from helpers.checkpoints import VOCAB, byte_tokenizer, pair_of

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
WINDOW = {"sliding_window": 5}
MIXED = WINDOW | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "head_dim": 32}
WINDOWED = {  # with one mask for all layers; with one by type of layer; and that through transformers' modules, which rotate by type
    "mistral, window": (MistralForCausalLM, MistralConfig, WINDOW),
    "qwen3, window": (Qwen3ForCausalLM, Qwen3Config, MIXED | {"use_sliding_window": True}),
    "gemma3, window": (
        tr.Gemma3ForCausalLM,
        tr.Gemma3TextConfig,
        MIXED | {"pad_token_id": None, "tie_word_embeddings": False},
    ),
}

ATTENTION = {
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 160,
}
DELTA = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 2, "mamba_chunk_size": 8}
CONV = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SHARED_EXPERT = EXPERTS | {"shared_expert_intermediate_size": 32}
BLOCKS = ["linear_attention", "mlp", "full_attention", "moe", "linear_attention"]
NEMOTRON = {
    "time_step_min": 1e-9,  # or a whole text would be read otherwise than token by token
    "layers_block_type": BLOCKS,
    "ssm_state_size": 8,
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "chunk_size": 8,
    "n_routed_experts": 4,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
}
GRANITE = {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 32}
STATES = {  # variant -> the loader's word for the family, model class, configuration; all keep states
    "mamba2": (
        "Mamba 2",
        tr.Mamba2ForCausalLM,
        {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 2, "num_hidden_layers": 3, "chunk_size": 8},
    ),
    "lfm2": ("LFM2", tr.Lfm2ForCausalLM, ATTENTION | CONV | {"block_auto_adjust_ff_dim": False}),
    "lfm2_moe": ("LFM2-MoE", tr.Lfm2MoeForCausalLM, ATTENTION | CONV | EXPERTS | {"num_dense_layers": 1}),
    "qwen3_next": ("Qwen3-Next", tr.Qwen3NextForCausalLM, ATTENTION | DELTA | SHARED_EXPERT),
    "qwen3_5": ("Qwen3.5", tr.Qwen3_5ForCausalLM, ATTENTION | DELTA),
    "qwen3_5_moe": ("Qwen3.5-MoE", tr.Qwen3_5MoeForCausalLM, ATTENTION | DELTA | SHARED_EXPERT),
    "nemotron_h": ("Nemotron-H", tr.NemotronHForCausalLM, ATTENTION | NEMOTRON),
    "falcon_h1": ("Falcon-H1", tr.FalconH1ForCausalLM, ATTENTION | MAMBA | {"num_hidden_layers": 2, "mamba_d_ssm": 64}),
    "granite": (
        "Granite hybrid",
        tr.GraniteMoeHybridForCausalLM,
        ATTENTION | MAMBA | GRANITE | {"num_hidden_layers": 3, "layer_types": DELTA["layer_types"]},
    ),
    "bamba": ("Bamba", tr.BambaForCausalLM, ATTENTION | MAMBA | {"num_hidden_layers": 3, "attn_layer_indices": [1]}),
    "olmo_hybrid": ("OLMo hybrid", tr.OlmoHybridForCausalLM, ATTENTION | DELTA),
}


def state_model(name: str) -> tr.PreTrainedModel:
    """A random model with states, the same for the same name. Its states decay as they were initialised, so none explodes."""
    _, kind, sizes = STATES[name]
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    torch.manual_seed(0)
    model = kind(kind.config_class(**{"vocab_size": VOCAB, "hidden_size": 32, **ends, **sizes})).eval()
    for where, parameter in model.named_parameters():
        if not where.endswith(("A_log", "dt_bias")):
            torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    return model


def state_folder(name: str, place: Path) -> Path:
    """The folder of that model's checkpoint, written where it is not there yet."""
    path = place / name
    if not path.exists():
        state_model(name).save_pretrained(path)
        byte_tokenizer().save_pretrained(path)
    return path


def state_pair(name: str, place: Path, draft: Path | None = None, **how) -> LoadedPair:
    """The checkpoint of `state_folder` loaded anew, beside the draft in a folder; `how` is as in `load_pair_anew`."""
    return load_pair_anew(pair_of(state_folder(name, place), draft), device="cpu", **how)


def initial_model(name: str) -> tr.PreTrainedModel:
    """A model as transformers initialises it."""
    kind, config, sizes = (MODELS | WINDOWED)[name]
    return kind(config(**{**SIZES, **sizes})).eval()


def random_model(name: str, dtype: torch.dtype = torch.float32):
    """A random model, the same for the same name. Norms and biases are random too, so that a forgotten one shows."""
    torch.manual_seed(0)
    model = initial_model(name)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    return model.to(dtype)


def sharp_model(name: str) -> tr.PreTrainedModel:
    """The same with logits that differ clearly, so that a draft is sure of its guesses."""
    model = random_model(name)
    model.lm_head.weight.data.mul_(5)
    return model


def answers(runner: Runner) -> torch.Tensor:
    """Logits `[12, V]`: of a prompt, then of a tree behind it, then of a single row behind that."""
    target = Target(runner, 64)
    session = target.session
    prompt, _ = session.forward(PROMPT, list(range(len(PROMPT))))
    session.keep(list(range(len(PROMPT))))
    tree = DraftTree.from_root_token(9)
    tree.add(0, 17, 1.0, 1.0)
    tree.add(tree.add(0, 30, 1.0, 1.0), 31, 1.0, 1.0)
    verified, _ = target.verify(tree)
    target.commit([2])
    single, _ = target.verify(DraftTree.from_root_token(50))
    return torch.cat([prompt, verified, single]).float()


def unlightened(model) -> Runner:
    """A runner over transformers' own unchanged modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.forward.runner.optimise_cpu_linear_and_attention", lambda model: None)
        return Runner(model, use_custom_forward=False)


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


def daily(names: Iterable, *often) -> list:
    """All names, as parameters of a test. Those that are not tried `often` go through the same code as one that is: exhaustive.

    So a run tries one of each kind, and `-m exhaustive` all others.
    """
    given = [*names]
    assert {*often} < {*given}
    return [
        pytest.param(
            *(name if isinstance(name, tuple) else (name,)), marks=() if name in often else pytest.mark.exhaustive
        )
        for name in given
    ]
