"""Runner: one causal language model, ready for forwards under explicit masks and positions. All lanes share it."""

import inspect
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.forward.cache import KVCache, MultiDeviceKVCache
from engine.forward.cuda_graphs import explain_no_cuda_graphs, max_idle_cache_bytes
from engine.forward.devices import noise_device_or_none_for_cpu, one_torch_thread
from engine.forward.layer_ops import FeatureLayers, LogitsAndFeatures, TappedLayers, stack_features_of_taps
from engine.forward.lender import IdleCacheLender
from engine.forward.llama import TensorLlama, can_use_custom_cpu_forward, is_full_attention_llama
from engine.forward.llama_compiled import CompiledLlama, can_compile_forward
from engine.forward.llama_eight_bit import EightBitLlama, can_run_in_eight_bits
from engine.forward.packed_linear import optimise_cpu_linear_and_attention
from engine.forward.recurrent.cache import (
    EmptyTextState,
    RecurrentStateCache,
    empty_text_states,
    node_state_bytes,
    text_state_bytes,
)
from engine.forward.recurrent.kinds import count_layers_with_own_kv, keeps_state
from engine.forward.recurrent.session import RecurrentSession
from engine.forward.rounded_linear import has_int8_matrices_on_cpu
from engine.forward.session import Session
from engine.forward.sizes import head_dim_of, kv_heads_of, max_context_of
from engine.forward.spread import is_spread, layer_devices_of, tensor_parallel_processes_of
from engine.forward.windows import Masks, sliding_window_of
from engine.kernels.sharing import ThreadTeam


class Runner:
    """A causal language model ready for forwards with explicit masks and positions."""

    def __init__(
        self,
        model: PreTrainedModel,
        use_custom_forward: bool | None = None,
        eight_bit: bool = False,
        thread_count: int | None = None,
    ):
        """`use_custom_forward` forces the choice of forward; None takes our own where it serves the model.

        `eight_bit` rounds a small model's matrices, for drafts only: a target must stay exact.
        `thread_count` are those of a compiled forward; None takes all cores that the process may use.
        """
        self.model = model.eval().requires_grad_(False)
        self.config = model.config
        self.vocab: int = model.config.vocab_size
        self.context: int = max_context_of(model.config)
        self.device, self.dtype = model.device, model.dtype
        self.noise_place = noise_device_or_none_for_cpu(self.device)
        self.window, self.spread, self.processes = (
            sliding_window_of(model.config),
            is_spread(model),
            tensor_parallel_processes_of(model),
        )
        self.recurrent = keeps_state(model.config)
        # Models without attention name their cache so, and list no embedding among their hidden states
        self.bare = "cache_params" in inspect.signature(model.forward).parameters
        self.own: TensorLlama | CompiledLlama | EightBitLlama | None = None
        rounded = is_full_attention_llama(model) and has_int8_matrices_on_cpu(model) and can_compile_forward(model)
        if can_use_custom_cpu_forward(model) or rounded if use_custom_forward is None else use_custom_forward:
            if eight_bit and can_run_in_eight_bits(model):
                self.own = EightBitLlama(model)
            else:
                self.own = CompiledLlama(model, thread_count) if can_compile_forward(model) else TensorLlama(model)
            if not isinstance(self.own, TensorLlama):
                # This call compiles, or loads compiled code, so that loading takes the time and no race does.
                ids = torch.zeros(1).long()
                self.own(self.new_cache(1), ids, ids, None, last_only=True)
        else:
            optimise_cpu_linear_and_attention(model)
        self.why_eager = explain_no_cuda_graphs(self.device, self.spread, self.recurrent)
        self.lender = IdleCacheLender(max_idle_cache_bytes(self.device))

    @property
    def captures_graphs(self) -> bool:
        """Whether forwards are captured as CUDA graphs. Where not, `why_eager` is a sentence on why, else ""."""
        return not self.why_eager

    @property
    def forward_kind(self) -> str:
        """Which forward serves the model: "compiled", "tensors" (neither compiled nor transformers' modules), "transformers" or
        "states" (transformers' modules, whose layers with a state read a tree's nodes beside it).
        """
        if isinstance(self.own, CompiledLlama | EightBitLlama):
            return "compiled"
        return "tensors" if self.own else "states" if self.recurrent else "transformers"

    def without_torch_threads(self) -> AbstractContextManager[None]:
        """Where to work between this runner's forwards: torch's threads stay out of the way of the compiled forward's own."""
        return one_torch_thread() if isinstance(self.own, CompiledLlama) else nullcontext()

    def seconds_without_processor(self) -> float:
        """Seconds in which this thread, or its forwards' other threads on average, had no processor. Only differences mean anything."""
        return time.perf_counter() - time.thread_time() + ThreadTeam.without

    def open_session(self, capacity: int, feature_layers: FeatureLayers = False, cache: Any = None) -> Session:
        """A lane's session. It makes a cache of that `capacity`, unless it is to use one of a batch."""
        if self.recurrent:
            return RecurrentSession(self, capacity, feature_layers, cache=cache)
        graphed = self.device.type == "cuda" and not self.spread and cache is None
        return Session(self, capacity, feature_layers, graphed, cache)

    @property
    def kv_heads(self) -> int:
        """Keys and values by layer and token, in this process. Raises `ValueError` for a model whose cache holds no plain heads."""
        heads = kv_heads_of(self.config)
        if heads is None:
            raise ValueError(f"The cache of a {self.config.model_type} model holds no plain keys and values by head.")
        return heads // self.processes

    @property
    def cache_row_bytes(self) -> int:
        """Bytes that one row takes in a cache of `new_cache`."""
        layers = count_layers_with_own_kv(self.config)
        return 2 * layers * self.kv_heads * head_dim_of(self.config) * self.dtype.itemsize if layers else 0

    @cached_property
    def empty_text_states(self) -> list[EmptyTextState]:
        """Inputs of a convolution and recurrent state of an empty text, by layer that keeps any."""
        return empty_text_states(self.model) if self.recurrent else []

    @property
    def state_bytes_per_text(self) -> int:
        """Bytes of the states that a text keeps, however long it is; 0 for a model without states."""
        return text_state_bytes(self.empty_text_states)

    @property
    def state_bytes_per_node(self) -> int:
        """Bytes that a round of a model with states keeps for each node of a tree."""
        return node_state_bytes(self.empty_text_states)

    def new_cache(self, capacity: int) -> KVCache:
        if self.recurrent:
            return RecurrentStateCache(self, capacity, self.empty_text_states)
        width = head_dim_of(self.config)
        if self.spread:
            return MultiDeviceKVCache(self.kv_heads, width, capacity, self.dtype, layer_devices_of(self.model))
        return KVCache(count_layers_with_own_kv(self.config), self.kv_heads, width, capacity, self.dtype, self.device)

    def run_transformers(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Masks,
        cache: Cache,
        logit_rows: int | Tensor = 0,
        taps: TappedLayers = (),
    ) -> LogitsAndFeatures:
        """The transformers forward: logits `[N, V]` and features of `ids [N]`, or `[B, N]` and so on.

        `logit_rows` is the number of last rows whose logits are given, 0 for all, or a tensor that names rows.
        It reads and writes the cache `cache`, under an additive mask `[B, 1, rows, M]`, or one for each type of layer.
        """
        places: dict[str, Any] = {"position_ids": torch.atleast_2d(positions), "attention_mask": mask}
        with collect_last_layer_output(self.model, -self.config.num_hidden_layers in taps) as last:
            output = self.model(
                input_ids=torch.atleast_2d(ids),
                use_cache=True,
                logits_to_keep=logit_rows,
                output_hidden_states=bool(taps),
                **({"cache_params": cache} if self.bare else places | {"past_key_values": cache}),
            )
        which: Any = 0 if ids.dim() == 1 else slice(None)
        if not taps:
            return output.logits[which], None
        states = [*output.hidden_states[:-1], *last] if last else output.hidden_states
        tapped = [states[abs(tap) - self.bare][which] for tap in taps]
        return output.logits[which], stack_features_of_taps(tapped, output.hidden_states[-1][which], taps)


@contextmanager
def collect_last_layer_output(model: PreTrainedModel, collects: bool) -> Iterator[list[Tensor]]:
    """Where `collects`, collects the last layer's output `[B, N, H]` of a forward. transformers lists it only behind the final norm."""
    found: list[Tensor] = []
    if not collects:
        yield found
        return
    layer = model.get_decoder().layers[-1]
    hook = layer.register_forward_hook(lambda _, __, out: found.append(out[0] if isinstance(out, tuple) else out))
    try:
        yield found
    finally:
        hook.remove()
