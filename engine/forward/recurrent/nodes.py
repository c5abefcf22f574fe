"""Layers with a state read the trees of some texts, all nodes at once, and can then let their state stand behind any node.

A module of such a layer computes all nodes as rows of one token each. Its convolution reads a node's own ancestors. Its recurrence
is written out as a sum: what the text's state gives a node, faded, and what each of its ancestors gives it. A mask says who they are,
as in attention. So no state is kept behind a node. The one behind the last accepted node is added up when it is committed.

Such sums over a piece of text are Mamba 2's (Dao and Gu 2024, arXiv 2405.21060), and for the gated delta rule those of Yang et al.
(2024, arXiv 2412.06464). A tree's mask on them is STree's (Wu et al. 2025, arXiv 2505.14969).
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, LinearAttentionCacheLayerMixin

from engine.forward.recurrent.cache import RecurrentStateLayer, modules_with_recurrent_states
from engine.forward.recurrent.forest import BatchedTrees

Rule = Callable[..., Any]
EPSILON = 1e-6  # below the length of a query or key that transformers' gated delta rule normalises


# The layer whose module reads trees now, in this thread
reading: ContextVar["TreeStateLayer | None"] = ContextVar("reading", default=None)


class TreeStateLayer(LinearAttentionCacheLayerMixin):
    """What a layer knows of the trees' nodes, over the committed states of its texts. Those stay as they are until
    `commit_states_of_node`.

    `inputs [texts * kernel + places, channels]` are those of the convolution, the texts' own first. A recurrent state `[heads,
    rows, columns]` behind a node is a sum: the text's state times `exp(faded)` of the node, and what the nodes up to it wrote. Each
    wrote the outer product `left x right`, which faded from then on too. `faded [texts, heads, width]` is at most 0, `left` is
    `[texts, heads, width, rows]`, and `right [texts, heads, width, columns]`, all float32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.record_past = True  # convolutions then hand in their inputs, also for a single token
        self.has_previous_state[0] = True
        self.clear_node_states()

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: states are taken as modules hand them in."""

    def clear_node_states(self) -> None:
        self.inputs: Tensor | None = None
        self.recurred: tuple[Tensor, Tensor, Tensor] | None = None  # faded, left and right

    def begin_tree_forward(self, trees: BatchedTrees, committed_states: list[RecurrentStateLayer]) -> None:
        """The next forward reads these trees behind these texts."""
        self.forest, self.texts = trees, committed_states
        self.conv_states[0] = committed_states[0].inputs
        self.clear_node_states()
        states = [each.state for each in committed_states if each.state is not None]
        self.recurrent_states[0] = states[0] if len(states) == 1 else torch.cat(states) if states else None

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int = 0, **kwargs: Any
    ) -> Tensor:
        """What the convolution reads for each node, `[places, channels, kernel]`, given its own inputs `[places, channels, 1]`."""
        self.kernel = conv_kernel_size
        before = torch.cat([each.inputs[0].T for each in self.texts])  # type: ignore[index]  # a session begins with zeros
        self.inputs = torch.cat([before, conv_states[..., 0]])
        return self.inputs[self.forest.convolution_windows(self.kernel)].transpose(1, 2)

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **kwargs: Any) -> Tensor:
        """Nothing to do: the rule has left what a state is made of."""
        return recurrent_states

    def group_node_rows_by_text(self, rows: Tensor) -> Tensor:
        """Rows `[places, heads, ...]` as `[texts, heads, width, ...]`, float32."""
        return rows.reshape(self.forest.texts, self.forest.width, *rows.shape[1:]).transpose(1, 2).float()

    def flatten_texts_to_node_rows(self, rows: Tensor) -> Tensor:
        """Rows `[texts, heads, width, columns]` as `[places, heads, columns]`, in one piece of memory, as modules view them."""
        return rows.transpose(1, 2).flatten(0, 1).contiguous()

    def accumulate_decay(self, log_decay_steps: Tensor) -> Tensor:
        """What a state has faded up to a node, as a logarithm `[texts, heads, width]`: the sum of its path's steps, of that shape."""
        return (self.forest.ancestor_or_self_mask[:, None].float() @ log_decay_steps[..., None])[..., 0]

    def decay_between(self, log_decay: Tensor) -> Tensor:
        """What is left at a node of what each of its ancestors wrote, `[texts, heads, width, width]`: 0 for all others, itself at 1."""
        since = log_decay[..., :, None] - log_decay[..., None, :]
        return since.masked_fill(~self.forest.ancestor_or_self_mask[:, None], -torch.inf).exp()

    def commit_states_of_node(self, text_index: int, node: int) -> None:
        """Let the states stand behind a node of a text."""
        kept, place = self.texts[text_index], text_index * self.forest.width + node
        kept.started = True
        if self.inputs is not None:
            kept.inputs = self.inputs[self.forest.convolution_windows(self.kernel)[place]].T[None]
        if self.recurred is not None:
            faded, left, right = (each[text_index] for each in self.recurred)
            path = self.forest.ancestor_or_self_mask[text_index, node].nonzero().flatten()
            last = faded[:, node, None]
            wrote = (last - faded[:, path]).exp()[..., None] * left[:, path]
            assert kept.state is not None
            state = last.exp()[..., None] * kept.state[0].float() + wrote.mT @ right[:, path]
            kept.state = state[None].to(kept.state.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept until the next forward."""
        return sum(each.nbytes for each in (self.inputs, *(self.recurred or ())) if each is not None)


class HybridTreeStateLayer(TreeStateLayer, CacheLayerMixin):
    """A layer with states and attention side by side, whose keys and values another one keeps."""

    is_sliding = False

    def __init__(self, attention: CacheLayerMixin):
        CacheLayerMixin.__init__(self)
        TreeStateLayer.__init__(self)
        self.attention, self.is_initialized = attention, True

    def update(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self.attention.update(*args, **kwargs)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.attention.get_mask_sizes(query_length)

    def get_seq_length(self) -> int:
        return self.attention.get_seq_length()

    def get_max_length(self) -> int:
        return self.attention.get_max_length()


def run_mamba2_rule_on_trees(
    layer: TreeStateLayer, state, x, dt, a, b, c, d, z=None, dt_bias=None, dt_softplus=False, **how: Any
) -> Tensor:
    """The recurrence of Mamba 2 over one token a row. A head's time step, decay and bias are the same in all its numbers."""
    steps = dt[..., 0] if dt_bias is None else dt[..., 0] + dt_bias[:, 0].to(dt.dtype)
    steps = layer.group_node_rows_by_text(softplus(steps) if dt_softplus else steps)
    shared = x.shape[1] // b.shape[1]  # heads that read the same b and c
    written, read = (layer.group_node_rows_by_text(each).repeat_interleave(shared, 1) for each in (b, c))
    faded = layer.accumulate_decay(steps * a[:, 0, 0].float()[:, None])
    left = steps[..., None] * layer.group_node_rows_by_text(x)
    layer.recurred = faded, left, written
    answer = (
        faded.exp()[..., None] * (read @ state.float().mT) + (read @ written.mT * layer.decay_between(faded)) @ left
    )
    answer = layer.flatten_texts_to_node_rows(answer) + x * d
    return (answer if z is None else answer * nn.functional.silu(z)).to(x.dtype)


def run_gated_delta_rule_on_trees(
    layer: TreeStateLayer, q, k, v, g, beta, initial_state, use_qk_l2norm_in_kernel=False, **how: Any
) -> tuple[Tensor, Any]:
    """The gated delta rule over one token a row. A node writes what its key did not yet say, so nodes are solved for in turn."""
    queries, keys, values = (layer.group_node_rows_by_text(each[:, 0]) for each in (q, k, v))
    shared = values.shape[1] // keys.shape[1]  # heads of values that share a key
    queries, keys = queries.repeat_interleave(shared, 1), keys.repeat_interleave(shared, 1)
    if use_qk_l2norm_in_kernel:
        queries, keys = (each * (each.square().sum(-1, True) + EPSILON).rsqrt() for each in (queries, keys))
    queries = queries / queries.shape[-1] ** 0.5
    faded, state = layer.accumulate_decay(layer.group_node_rows_by_text(g[:, 0])), initial_state.float()
    share, kept, fading = (
        layer.group_node_rows_by_text(beta[:, 0])[..., None],
        faded.exp()[..., None],
        layer.decay_between(faded),
    )
    news = share * (values - kept * (keys @ state))
    said = share * fading * (keys @ keys.mT)  # what a node would be told of its ancestors' keys; its own does not count
    wrote = torch.linalg.solve_triangular(said, news, upper=False, unitriangular=True)
    layer.recurred = faded, keys, wrote
    answer = kept * (queries @ state) + (fading * (queries @ keys.mT)) @ wrote
    return layer.flatten_texts_to_node_rows(answer)[:, None].to(q.dtype), initial_state


RULES: dict[str, Rule] = {  # by transformers' names of what goes on from a state by one token
    "mamba2_selective_state_update": run_mamba2_rule_on_trees,
    "torch_recurrent_gated_delta_rule": run_gated_delta_rule_on_trees,
}


def patch_model_to_read_trees(model: PreTrainedModel) -> None:
    """From now on the model's modules with states read trees where their cache holds a `TreeStateLayer`, and texts as before."""
    for module in modules_with_recurrent_states(model):
        if reshape_nodes_to_single_token_rows_hook not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(reshape_nodes_to_single_token_rows_hook, with_kwargs=True)
            module.register_forward_hook(restore_nodes_hook)
        file = sys.modules[type(module).__module__]
        for name, rule in RULES.items():
            if hasattr(file, name) and not hasattr(getattr(file, name), "reads_trees"):
                setattr(file, name, patch_rule_to_read_trees(getattr(file, name), rule))


def patch_rule_to_read_trees(transformers_rule: Rule, rule: Rule) -> Rule:
    """A function that calls `rule` while a module reads trees, and else transformers' function `transformers_rule`."""

    @wraps(transformers_rule)
    def rightly(*args: Any, **how: Any) -> Any:
        layer = reading.get()
        return transformers_rule(*args, **how) if layer is None else rule(layer, *args, **how)

    rightly.reads_trees = True  # type: ignore[attr-defined]
    return rightly


def reshape_nodes_to_single_token_rows_hook(
    module: nn.Module, args: tuple, how: dict[str, Any]
) -> tuple[tuple, dict[str, Any]] | None:
    """Hand in nodes `[texts, width, H]` as rows `[places, 1, H]`."""
    cache = next((each for each in (*args, *how.values()) if isinstance(each, Cache)), None)
    layer = cache.layers[module.layer_idx] if cache else None
    if not isinstance(layer, TreeStateLayer):
        return None
    reading.set(layer)
    if args:
        return (args[0].reshape(layer.forest.padded_node_count, 1, -1), *args[1:]), how
    return args, {**how, "hidden_states": how["hidden_states"].reshape(layer.forest.padded_node_count, 1, -1)}


def restore_nodes_hook(module: nn.Module, args: tuple, output: Tensor) -> Tensor | None:
    """Hand out rows `[places, 1, H]` as nodes."""
    layer = reading.get()
    reading.set(None)
    return None if layer is None else output.reshape(layer.forest.texts, layer.forest.width, -1)


@contextmanager
def clear_active_tree_layer_on_exit() -> Iterator[None]:
    """However a forward ends, no module of this thread reads trees behind it."""
    try:
        yield
    finally:
        reading.set(None)
