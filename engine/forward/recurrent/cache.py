"""StateCache: the states of a model's layers, and the keys and values of those that attend. Knows rows of a batch; knows no tree.

Invariant: a forward leaves what is committed as it was. It works on copies, one for each row of its batch. `commit` keeps one of them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, DummyLayer, LinearAttentionCacheLayerMixin

from engine.forward.cache import KVCache
from engine.forward.recurrent.kinds import ATTENDING, WITH_STATE, attending, layers_of
from engine.forward.sizes import head_dim_of, kv_heads_of

if TYPE_CHECKING:
    from engine.forward.recurrent.nodes import NodesLayer


def modules_with_states(model: PreTrainedModel) -> list[nn.Module]:
    """The modules of a model that read and write states: each has a convolution, and the number of its layer."""
    return [
        module
        for module in model.modules()
        if hasattr(module, "layer_idx") and any(isinstance(child, nn.Conv1d) for child in module.children())
    ]


def take_down_inputs(model: PreTrainedModel) -> None:
    """From now on every `StateLayer` knows what its module read last, so that the module can read a part of it again."""
    for module in modules_with_states(model):
        if note not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(note, with_kwargs=True)


def note(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
    more = dict(kwargs)
    hidden = args[0] if args else more.pop("hidden_states")
    cache = next((each for each in more.values() if isinstance(each, Cache)), None)
    layer = cache.layers[module.layer_idx] if cache else None
    if isinstance(layer, StateLayer):
        layer.read = module, hidden, more


class StateLayer(LinearAttentionCacheLayerMixin):
    """A layer's states in the form that transformers' modules expect: inputs of a convolution, and a recurrent state.

    During a forward over B rows `conv_states` and `recurrent_states` belong to the rows. None stands before a text's first token, and
    `inputs` and `state` are zeros then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.record_past = True  # convolutions then hand in all their inputs, also for a single token
        self.zeros: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None)  # inputs and state of an empty text
        self.forget()

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: states are taken as modules hand them in."""

    def forget(self) -> None:
        self.inputs, self.state = self.zeros  # committed, [1, channels, kernel] and [1, ...]
        self.started = False
        self.begin(1)

    def begin(self, rows: int) -> None:
        """Stand every row of the next forward behind the committed text."""
        self.rows = rows
        self.has_previous_state[0] = self.started
        self.conv_states[0] = self.inputs
        # A copy, because modules write into the state of a single token
        known = self.started and self.state is not None
        self.recurrent_states[0] = self.state.repeat_interleave(rows, 0) if known else None  # type: ignore[union-attr]

    def update_conv_state(
        self, conv_states: torch.Tensor, state_idx: int = 0, conv_kernel_size: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """The convolution's inputs `[B, channels, n]` behind those that it has seen: what it reads, at most kernel + n columns."""
        self.kernel, self.entered = conv_kernel_size, conv_states.shape[-1]
        if self.inputs is not None:
            conv_states = torch.cat([self.inputs.expand(self.rows, -1, -1), conv_states], -1)
        self.conv_states[0] = conv_states
        return conv_states

    def update_recurrent_state(self, recurrent_states: torch.Tensor, state_idx: int = 0, **kwargs: Any) -> torch.Tensor:
        self.recurrent_states[0] = recurrent_states
        return recurrent_states

    def replay(self, row: int, count: int) -> None:
        """Read the first `count` new tokens of a row again, so that a recurrent state stands behind them. Other rows are given up."""
        if self.recurrent_states[0] is not None:
            module, hidden, more = self.read
            self.begin(1)
            module(hidden[row : row + 1, :count], **more)

    def commit(self, row: int, count: int) -> None:
        """Keep the states of a row behind its first `count` new tokens. A recurrent state stands behind all of them."""
        row, self.started = min(row, self.rows - 1), True  # a layer that was replayed has one row
        inputs, state = self.conv_states[0], self.recurrent_states[0]
        if inputs is not None:
            end = inputs.shape[-1] - self.entered + count
            self.inputs = inputs[row : row + 1, :, max(0, end - self.kernel) : end].clone()
        if state is not None:
            self.state = state if len(state) == 1 else state[row : row + 1].clone()

    @property
    def nbytes(self) -> int:
        """Bytes of what is committed."""
        return sum(each.nbytes for each in (self.inputs, self.state) if each is not None)


class RowsLayer(CacheLayerMixin):
    """A layer's keys and values. Rows of a batch share those of the committed text, and each has its own new ones."""

    is_sliding = False

    def __init__(self, cache: KVCache, layer: int):
        super().__init__()
        self.cache, self.layer, self.is_initialized = cache, layer, True

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: the cache has its memory from the start."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values `[B, heads, rows + n, head_dim]` that the batch reads. Those of a batch of one are written in their place."""
        start, batch = self.cache.rows, len(key_states)
        self.fresh = key_states, value_states
        if batch == 1:
            self.write(start, 0, key_states.shape[2])
            keys, values = (each[:, :, : start + key_states.shape[2]] for each in self.cache.layers[self.layer])
            return keys, values
        before = [each[:, :, :start].expand(batch, -1, -1, -1) for each in self.cache.layers[self.layer]]
        keys, values = (torch.cat(both, 2) for both in zip(before, self.fresh, strict=True))
        return keys, values

    def write(self, start: int, row: int, count: int) -> None:
        for kept, new in zip(self.cache.layers[self.layer], self.fresh, strict=True):
            kept[0, :, start : start + count] = new[row, :, :count]

    def commit(self, row: int, count: int) -> None:
        """Keep the first `count` new keys and values of a row."""
        if len(self.fresh[0]) > 1:
            self.write(self.cache.rows, row, count)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.rows + query_length, 0

    def get_seq_length(self) -> int:
        return self.cache.rows

    def get_max_length(self) -> int:
        return self.cache.capacity


class HybridLayer(StateLayer, RowsLayer):
    """A layer with a state and attention side by side."""

    def __init__(self, cache: KVCache, layer: int):
        RowsLayer.__init__(self, cache, layer)
        StateLayer.__init__(self)

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do, as in both."""

    def commit(self, row: int, count: int) -> None:
        StateLayer.commit(self, row, count)
        RowsLayer.commit(self, row, count)

    def get_max_length(self) -> int:
        return self.cache.capacity


class StateCache(KVCache):
    """The committed text of one lane: states, and `kv [attending layers, 2, heads, capacity, head_dim]`."""

    def __init__(
        self,
        config: PreTrainedConfig,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        zeros: Sequence[tuple[torch.Tensor | None, torch.Tensor | None]] = (),
    ):
        """`zeros` are the states of an empty text by layer that keeps any, which nobody writes into (`sizes.zero_states`)."""
        heads = kv_heads_of(config) or 1  # a model without attention has neither heads nor layers here
        width = head_dim_of(config) if attending(config) else 1
        super().__init__(attending(config), heads, width, capacity, dtype, device)
        self.held: list[Any] = []
        place = 0
        for kind in layers_of(config):
            both = kind in ATTENDING, kind in WITH_STATE
            made = {(True, True): HybridLayer, (True, False): RowsLayer}.get(both)
            self.held.append(made(self, place) if made else StateLayer() if kind in WITH_STATE else DummyLayer())
            place += kind in ATTENDING
        self.states = [each for each in self.held if isinstance(each, StateLayer)]
        for layer, empty in zip(self.states, zeros, strict=bool(zeros)):
            layer.zeros = empty
            layer.forget()
        self.past = Cache(layers=self.held)

    def clear(self) -> None:
        super().clear()
        for layer in self.states:
            layer.forget()

    def begin(self, rows: int) -> None:
        """Make the next forward's copies of the states, one for each row of its batch."""
        for layer in self.states:
            layer.begin(rows)

    @torch.inference_mode()
    def replay(self, row: int, count: int) -> None:
        """Let every state stand behind the first `count` new tokens of a row of the last forward's batch."""
        for layer in self.states:
            layer.replay(row, count)

    @property
    def recurs(self) -> bool:
        """Whether the last forward left states that stand only behind all its tokens. Inputs of convolutions stand behind each."""
        return any(layer.recurrent_states[0] is not None for layer in self.states)

    @torch.inference_mode()
    def commit(self, row: int, count: int) -> None:
        """Keep a row of the last forward's batch up to its first `count` tokens."""
        for layer in self.held:
            if not isinstance(layer, DummyLayer):
                layer.commit(row, count)
        self.rows += count

    @torch.inference_mode()
    def commit_nodes(self, layers: list["NodesLayer"], text: int, written: list[int]) -> None:
        """Keep the nodes `written` of a text of the last forward, in path order. `layers` read them; their rows are in their places."""
        for layer in layers:
            layer.commit(text, written[-1])
        self.keep(written)

    @property
    def copied_bytes(self) -> int:
        """Bytes of the states that belong to the rows of the last forward."""
        found = [each for layer in self.states for each in (layer.conv_states[0], layer.recurrent_states[0])]
        return sum(each.nbytes for each in found if each is not None)

    @property
    def state_bytes(self) -> int:
        """Bytes of the committed states."""
        return sum(layer.nbytes for layer in self.states)
