"""Caches with states: the states of a model's layers, and the keys and values of those that attend. Knows one text; knows no tree.

Invariant: a forward leaves what is committed as it was. It works on copies, and `commit_all_forward_tokens` keeps them.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, cache_utils
from transformers.cache_utils import Cache, LinearAttentionCacheLayerMixin

from engine.forward.cache import KVCache, TransformersCacheLayer
from engine.forward.recurrent.kinds import ATTENDING, WITH_STATE, count_layers_with_own_kv, layer_types_of
from engine.forward.sizes import head_dim_of, kv_heads_of

TOKENS = 16  # more than any convolution here looks back
EmptyTextState = tuple[Tensor | None, Tensor | None]  # inputs and recurrent state of an empty text


def modules_with_recurrent_states(model: PreTrainedModel) -> list[nn.Module]:
    """The modules of a model that read and write states: each has a convolution, and the number of its layer."""
    return [
        module
        for module in model.modules()
        if hasattr(module, "layer_idx") and any(isinstance(child, nn.Conv1d) for child in module.children())
    ]


class RecurrentStateLayer(LinearAttentionCacheLayerMixin):
    """A layer's states in the form that transformers' modules expect: inputs of a convolution, and a recurrent state.

    During a forward `conv_states` and `recurrent_states` are those of its tokens. None stands before a text's first token, and `inputs`
    and `state` are zeros then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.record_past = True  # convolutions then hand in all their inputs, also for a single token
        self.zeros: EmptyTextState = (None, None)
        self.reset_to_empty_text()

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: states are taken as modules hand them in."""

    def reset_to_empty_text(self) -> None:
        self.inputs, self.state = self.zeros  # committed, [1, channels, kernel] and [1, ...]
        self.started = False
        self.copy_committed_states_for_forward()

    def copy_committed_states_for_forward(self) -> None:
        """Stand the next forward behind the committed text."""
        self.has_previous_state[0] = self.started
        self.conv_states[0] = self.inputs
        # A copy, because modules write into the state of a single token
        self.recurrent_states[0] = self.state.clone() if self.started and self.state is not None else None

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int = 0, **kwargs: Any
    ) -> Tensor:
        """The convolution's inputs `[1, channels, n]` behind those that it has seen: what it reads, at most kernel + n columns."""
        self.kernel = conv_kernel_size
        if self.inputs is not None:
            conv_states = torch.cat([self.inputs, conv_states], -1)
        self.conv_states[0] = conv_states
        return conv_states

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **kwargs: Any) -> Tensor:
        self.recurrent_states[0] = recurrent_states
        return recurrent_states

    def commit_forward_states(self) -> None:
        """Keep the states behind the last forward's tokens."""
        self.started = True
        inputs, state = self.conv_states[0], self.recurrent_states[0]
        if inputs is not None:
            self.inputs = inputs[..., -self.kernel :].clone()
        if state is not None:
            self.state = state


class HybridAttentionStateLayer(RecurrentStateLayer, TransformersCacheLayer):
    """A layer with a state and attention side by side."""

    def __init__(self, cache: KVCache, layer: int):
        TransformersCacheLayer.__init__(self, cache, layer)
        RecurrentStateLayer.__init__(self)


class RecurrentStateCache(KVCache):
    """The committed text of one lane: states, and `kv [attending layers, 2, heads, capacity, head_dim]`."""

    def __init__(self, model: Any, capacity: int, empty_states: Sequence[EmptyTextState] = ()):
        """For a model, or its runner. `empty_states` are an empty text's states by layer that keeps any, which nobody writes into."""
        config = model.config
        heads = kv_heads_of(config) or 1  # a model without attention has neither heads nor layers here
        width = head_dim_of(config) if count_layers_with_own_kv(config) else 1
        super().__init__(count_layers_with_own_kv(config), heads, width, capacity, model.dtype, model.device)
        self.held: list[Any] = []
        place = 0
        for kind in layer_types_of(config):
            both = kind in ATTENDING, kind in WITH_STATE
            made = {(True, True): HybridAttentionStateLayer, (True, False): TransformersCacheLayer}.get(both)
            self.held.append(
                made(self, place) if made else RecurrentStateLayer() if kind in WITH_STATE else cache_utils.DummyLayer()
            )
            place += kind in ATTENDING
        self.states = [each for each in self.held if isinstance(each, RecurrentStateLayer)]
        for layer, empty in zip(self.states, empty_states, strict=bool(empty_states)):
            layer.zeros = empty
            layer.reset_to_empty_text()
        self.past = Cache(layers=self.held)

    def clear(self) -> None:
        super().clear()
        for layer in self.states:
            layer.reset_to_empty_text()

    def copy_committed_states_for_forward(self) -> None:
        """Make the next forward's copies of the states."""
        for layer in self.states:
            layer.copy_committed_states_for_forward()

    @torch.inference_mode()
    def commit_all_forward_tokens(self, count: int) -> None:
        """Keep all `count` tokens of the last forward."""
        for layer in self.states:
            layer.commit_forward_states()
        self.rows += count


@torch.inference_mode()
def empty_text_states(model: PreTrainedModel) -> list[EmptyTextState]:
    """Inputs and recurrent state of an empty text, in the shapes of those behind some tokens. A model on "meta" will do."""
    cache = RecurrentStateCache(model, 1)
    hidden = torch.zeros(1, TOKENS, model.config.hidden_size, dtype=model.dtype, device=model.device)
    for module in modules_with_recurrent_states(model):
        taken = "cache_params" if "cache_params" in inspect.signature(module.forward).parameters else "past_key_values"
        module(hidden, **{taken: cache.past})
    cache.commit_all_forward_tokens(TOKENS)

    def zeros(each: Tensor | None) -> Tensor | None:
        return None if each is None else torch.zeros_like(each)

    return [(zeros(layer.inputs), zeros(layer.state)) for layer in cache.states]


def text_state_bytes(states: list[EmptyTextState]) -> int:
    """Bytes of the states of one text, however long."""
    return sum(each.nbytes for layer in states for each in layer if each is not None)


def node_state_bytes(states: list[EmptyTextState]) -> int:
    """Bytes that a round keeps for each node of a tree: its convolutions' inputs, and what it writes into each head's state."""
    found = 0
    for inputs, state in states:
        if inputs is not None:
            found += inputs.nbytes // inputs.shape[-1]
        if state is not None:
            _, heads, rows, columns = state.shape
            found += heads * (1 + rows + columns) * torch.float32.itemsize
    return found
