"""A state a node: layers with a state read the trees of some texts, and keep what stands behind every node of them.

A module of such a layer computes all nodes at once, as rows of one token each. Its convolution reads a node's own ancestors. Its
recurrence alone goes level by level, each node on a copy of its parent's state. So a shared prefix is computed once, and nothing is
replayed.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, LinearAttentionCacheLayerMixin

from engine.forward.recurrent.cache import StateLayer, modules_with_states
from engine.forward.recurrent.forest import Forest

Rule = Callable[..., Any]


class Reading(threading.local):
    """The layer whose module reads a forest now, in this thread."""

    layer: "NodesLayer | None" = None


reading = Reading()


class NodesLayer(LinearAttentionCacheLayerMixin):
    """A layer's states behind every node of a forest, over the committed states of its texts. Those stay as they are until `commit`.

    `states [texts + places, ...]` are the recurrent ones, the texts' own first; None for a layer of convolutions. `inputs
    [texts * kernel + places, channels]` are those of the convolution, in the same order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.record_past = True  # convolutions then hand in their inputs, also for a single token
        self.has_previous_state[0] = True
        self.forget()

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: states are taken as modules hand them in."""

    def forget(self) -> None:
        self.states: torch.Tensor | None = None
        self.inputs: torch.Tensor | None = None

    def begin(self, forest: Forest, texts: list[StateLayer]) -> None:
        """The next forward reads this forest behind these texts."""
        self.forest, self.texts = forest, texts
        self.conv_states[0] = texts[0].inputs
        self.forget()
        if texts[0].state is not None:
            size = (len(texts) + forest.places, *texts[0].state.shape[1:])
            self.states = texts[0].state.new_empty(size)
            torch.cat([each.state for each in texts if each.state is not None], out=self.states[: len(texts)])
        self.recurrent_states[0] = self.states

    def update_conv_state(
        self, conv_states: torch.Tensor, state_idx: int = 0, conv_kernel_size: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """What the convolution reads for each node, `[places, channels, kernel]`, given its own inputs `[places, channels, 1]`."""
        self.kernel = conv_kernel_size
        before = torch.cat([each.inputs[0].T for each in self.texts])  # type: ignore[index]  # a session begins with zeros
        self.inputs = torch.cat([before, conv_states[..., 0]])
        return self.inputs[self.forest.windows(self.kernel)].transpose(1, 2)

    def update_recurrent_state(self, recurrent_states: torch.Tensor, state_idx: int = 0, **kwargs: Any) -> torch.Tensor:
        """Nothing to do: `by_level` has written them."""
        return recurrent_states

    def by_level(self, step: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        """What `step` answers for all nodes `[places, ...]`, given the nodes of a level and copies of the states that they follow.

        It returns what it answers for them and the states behind them. Empty places are zeros.
        """
        assert self.states is not None
        answers: torch.Tensor | None = None
        for nodes, followed in self.forest.levels:
            answer, behind = step(nodes, self.states[followed])
            self.states[self.forest.texts + nodes] = behind.to(self.states.dtype)
            if answers is None:
                answers = answer.new_zeros((self.forest.places, *answer.shape[1:]))
            answers[nodes] = answer
        assert answers is not None
        return answers

    def commit(self, text: int, node: int) -> None:
        """Keep the states behind a node of a text."""
        kept, place = self.texts[text], text * self.forest.width + node
        kept.started = True
        if self.inputs is not None:
            kept.inputs = self.inputs[self.forest.windows(self.kernel)[place]].T[None]
        if self.states is not None:
            kept.state = self.states[self.forest.texts + place][None].clone()

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept until the next forward."""
        return sum(each.nbytes for each in (self.inputs, self.states) if each is not None)


class HybridNodesLayer(NodesLayer, CacheLayerMixin):
    """A layer with states and attention side by side, whose keys and values another one keeps."""

    is_sliding = False

    def __init__(self, attention: CacheLayerMixin):
        CacheLayerMixin.__init__(self)
        NodesLayer.__init__(self)
        self.attention, self.is_initialized = attention, True

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do, as in both."""

    def update(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return self.attention.update(*args, **kwargs)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.attention.get_mask_sizes(query_length)

    def get_seq_length(self) -> int:
        return self.attention.get_seq_length()

    def get_max_length(self) -> int:
        return self.attention.get_max_length()


def selective(
    layer: NodesLayer,
    right: Rule,
    state: Any,
    x: Any,
    dt: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    z: Any = None,
    **how: Any,
) -> Any:
    """The recurrence of Mamba 2 over one token a row. It writes into the state that it is given."""

    def step(nodes: torch.Tensor, behind: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate = None if z is None else z[nodes]
        return right(behind, x[nodes], dt[nodes], a, b[nodes], c[nodes], d, z=gate, **how), behind

    return layer.by_level(step)


def gated(
    layer: NodesLayer, right: Rule, q: Any, k: Any, v: Any, g: Any, beta: Any, initial_state: Any, **how: Any
) -> Any:
    """The gated delta rule over one token a row."""

    def step(nodes: torch.Tensor, before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        read = q[nodes], k[nodes], v[nodes]
        return right(*read, g=g[nodes], beta=beta[nodes], initial_state=before, **how)

    return layer.by_level(step), layer.states


RULES: dict[str, Rule] = {  # by transformers' names of what goes on from a state by one token
    "mamba2_selective_state_update": selective,
    "torch_recurrent_gated_delta_rule": gated,
}


def teach(model: PreTrainedModel) -> None:
    """From now on the model's modules with states read forests where their cache holds a `NodesLayer`, and texts as before."""
    for module in modules_with_states(model):
        if enter not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(enter, with_kwargs=True)
            module.register_forward_hook(leave)
        file = sys.modules[type(module).__module__]
        for name, rule in RULES.items():
            if hasattr(file, name) and not hasattr(getattr(file, name), "by_level"):
                setattr(file, name, levelled(getattr(file, name), rule))


def levelled(right: Rule, rule: Rule) -> Rule:
    """The function `right` of transformers, which goes level by level while a module reads a forest."""

    @wraps(right)
    def rightly(*args: Any, **how: Any) -> Any:
        return right(*args, **how) if reading.layer is None else rule(reading.layer, right, *args, **how)

    rightly.by_level = True  # type: ignore[attr-defined]
    return rightly


def layer_of(module: nn.Module, args: tuple, how: dict[str, Any]) -> Any:
    """The layer of the cache that a call of a module reads, None without a cache."""
    cache = next((each for each in (*args, *how.values()) if isinstance(each, Cache)), None)
    return cache.layers[module.layer_idx] if cache else None


def enter(module: nn.Module, args: tuple, how: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
    """Hand in nodes `[texts, width, H]` as rows `[places, 1, H]`."""
    layer = layer_of(module, args, how)
    if not isinstance(layer, NodesLayer):
        return None
    reading.layer = layer
    if args:
        return (args[0].reshape(layer.forest.places, 1, -1), *args[1:]), how
    return args, {**how, "hidden_states": how["hidden_states"].reshape(layer.forest.places, 1, -1)}


def leave(module: nn.Module, args: tuple, output: torch.Tensor) -> torch.Tensor | None:
    """Hand out rows `[places, 1, H]` as nodes."""
    layer, reading.layer = reading.layer, None
    return None if layer is None else output.reshape(layer.forest.texts, layer.forest.width, -1)


@contextmanager
def reading_ends() -> Iterator[None]:
    """However a forward ends, no module of this thread reads a forest behind it."""
    try:
        yield
    finally:
        reading.layer = None
