"""A large pair that writes: the default pair, grown to sizes that people serve without changing what its models compute.

Its forwards cost what forwards of those sizes cost, and it guesses as well as the default pair. So races of it are measured in full,
where a large pair with trained weights would have to be fetched. Its weights are those of `engine.lab.train.pretrain.grow`.
"""

from dataclasses import replace

import torch
from transformers import LlamaConfig

from engine.forward.runner import Runner
from engine.lab.gpu.costs import build_config, count_parameters, random_model
from engine.lab.train.pretrain import grow
from engine.models.loading import load_model, load_pair
from engine.models.pairs import PAIRS, Checkpoint, LoadedPair

# Both grow from 4,096 tokens and heads of 64 numbers, and every head has keys and values of its own
TARGET = build_config(hidden=5120, layers=26, heads=80, kv_heads=80, mlp=13_312, vocab=4096, tied=True)
DRAFTS = {  # one costs about what a layer or two of the target's would, as an EAGLE head does; one is a small model of its own
    "0.4B": build_config(hidden=4096, layers=2, heads=64, kv_heads=64, mlp=11_264, vocab=4096, tied=True),
    "1B": build_config(hidden=2048, layers=16, heads=32, kv_heads=32, mlp=8448, vocab=4096, tied=True),
}


def grow_runner(checkpoint: Checkpoint, config: LlamaConfig, device: torch.device) -> Runner:
    """The checkpoint's model in this shape, in bfloat16. Raises what `random_model` and `grow` raise."""
    large = random_model(config, device)
    grow(load_model(checkpoint, torch.device("cpu"), torch.float32, "none"), large)
    return Runner(large)


def build_grown_pair(draft: str, device: torch.device) -> LoadedPair:
    """The default pair with `TARGET` and one of `DRAFTS`, without learned drafters. Counted shapes stay, as tokens a round do."""
    small = load_pair(PAIRS["embedded"], str(device), "bf16")
    target = grow_runner(small.pair.target_checkpoint, TARGET, device)
    guessing = grow_runner(Checkpoint(str(small.pair.draft)), DRAFTS[draft], device)
    title = f"default pair grown to {count_parameters(TARGET) / 1e9:.1f}B, draft {draft}"
    return replace(small, pair=replace(small.pair, title=title), target=target, draft=guessing, learned={})
