"""Sizes: what the states of a text take in memory, and those of an empty one. Runs layers on zeros or on shapes; knows no text."""

import inspect

import torch
from transformers import PreTrainedModel

from engine.forward.recurrent.cache import StateCache, modules_with_states

TOKENS = 16  # more than any convolution here looks back
Zeros = tuple[torch.Tensor | None, torch.Tensor | None]


def behind_zeros(model: PreTrainedModel) -> StateCache:
    """A cache whose states stand behind some zeros. A model on "meta" will do."""
    cache = StateCache(model.config, 1, model.dtype, model.device)
    hidden = torch.zeros(1, TOKENS, model.config.hidden_size, dtype=model.dtype, device=model.device)
    for module in modules_with_states(model):
        taken = "cache_params" if "cache_params" in inspect.signature(module.forward).parameters else "past_key_values"
        module(hidden, **{taken: cache.past})
    cache.commit(TOKENS)
    return cache


@torch.inference_mode()
def zero_states(model: PreTrainedModel) -> list[Zeros]:
    """Inputs and recurrent state of an empty text, by layer that keeps any. A model on "meta" will do."""

    def zeros(each: torch.Tensor | None) -> torch.Tensor | None:
        return None if each is None else torch.zeros_like(each)

    return [(zeros(layer.inputs), zeros(layer.state)) for layer in behind_zeros(model).states]


def text_bytes(states: list[Zeros]) -> int:
    """Bytes of the states of one text, however long."""
    return sum(each.nbytes for layer in states for each in layer if each is not None)


def node_bytes(states: list[Zeros]) -> int:
    """Bytes that a round keeps for each node of a tree: its convolutions' inputs, and what it writes into each head's state."""
    found = 0
    for inputs, state in states:
        if inputs is not None:
            found += inputs.nbytes // inputs.shape[-1]
        if state is not None:
            _, heads, rows, columns = state.shape
            found += heads * (1 + rows + columns) * torch.float32.itemsize
    return found
