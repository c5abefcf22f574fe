"""Session: forwards over one KV cache, a lane's own.

Llama and its kin take our own forward on a CPU; every other model takes the transformers one. Both give the same logits. Models with
states have sessions of their own (`engine.forward.recurrent.session`).
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.forward.cache import KVCache, additive_mask, wrap_as_transformers_cache
from engine.forward.layer_ops import FeatureLayers, LogitsAndFeatures, TappedLayers
from engine.forward.runner_gpu import round_up_static_capacity
from engine.forward.session_gpu import PROMPTS, SIZES, GraphBuckets
from engine.forward.windows import additive_masks_by_layer_type

if TYPE_CHECKING:
    from engine.forward.runner import Runner

PREFILL_CHUNK = 512


def default_feature_layers(layer_count: int) -> tuple[int, int, int]:
    """An early, a middle and a late layer of a model with so many, counted from 1. Learned drafters read their outputs."""
    return max(1, layer_count // 4), max(1, layer_count // 2), max(1, layer_count - 1)


def resolve_taps(feature_layers: FeatureLayers, layer_count: int) -> TappedLayers:
    """The layers, counted from 1, whose outputs a forward of a model with so many returns. A negative one is returned as it is."""
    if isinstance(feature_layers, tuple):
        return tuple(-layer for layer in feature_layers)
    return default_feature_layers(layer_count) if feature_layers else ()


class Session:
    """One KV cache over a runner's model. A forward writes its rows behind `rows`; `keep` then says which of them stay.

    With `features`, forwards also return features `[N, 4, H]` float32. Three are the hidden states after `default_feature_layers`, each
    divided by its root mean square, because a few massive activations would drown the rest. The fourth is the final norm's output,
    which the LM head reads. Where `features` names layers, ascending, their outputs as they are stand in place of the three, as
    published drafters read them. `replayed` is how many tokens the last `keep` had to compute again: none in a cache of rows.
    """

    replayed = 0

    def __init__(
        self,
        runner: "Runner",
        capacity: int,
        feature_layers: FeatureLayers = False,
        use_cuda_graphs: bool = False,
        cache: Any = None,
        graph_buckets: GraphBuckets | None = None,
    ):
        """`use_cuda_graphs` runs forwards of few tokens as CUDA graphs; `graph_buckets` are such graphs of the caller's own, with
        their cache.

        `cache` is the one to use; None makes one of that `capacity`.
        """
        self.runner = runner
        self.taps = taps = resolve_taps(feature_layers, runner.config.num_hidden_layers)
        if use_cuda_graphs:
            key = ("buckets", round_up_static_capacity(capacity), taps)
            graph_buckets = runner.lender.lend_idle_or_new(
                key, lambda: GraphBuckets(runner, capacity, taps, SIZES), borrower=self
            )
        self.buckets = graph_buckets
        made = graph_buckets.cache if graph_buckets is not None else cache
        self.cache: KVCache = runner.new_cache(capacity) if made is None else made
        self.cache.clear()
        self.past = None if runner.own else wrap_as_transformers_cache(self.cache)

    @property
    def rows(self) -> int:
        return self.cache.rows

    @torch.inference_mode()
    def forward(
        self, ids: list[int], positions: list[int], visible: Tensor | None = None, last_only: bool = False
    ) -> LogitsAndFeatures:
        """Logits `[N, V]` (`[1, V]` with `last_only`) of N new tokens, and their features. Raises `ValueError` when the cache is full.

        `visible` bool `[N, M]` says which of the last M rows each may see; None means causal.
        """
        count = len(ids)
        self.cache.refuse_overflow(count)
        if visible is None and count > 1:
            visible = torch.ones(count, count, dtype=torch.bool).tril_()
        if self.buckets and (bucket := self.buckets.find_bucket(count, last_only)):
            return bucket(ids, positions, visible, last_only)
        tokens, places = torch.from_numpy(np.array([ids, positions])).unbind()
        if self.runner.own:
            return self.runner.own(self.cache, tokens, places, visible, last_only, self.taps)
        if visible is None:
            visible = torch.ones(1, 1, dtype=torch.bool)
        device, dtype, end = self.runner.device, self.runner.dtype, self.rows + count
        shown = F.pad(visible, (end - visible.shape[1], 0), value=True)
        masks = additive_masks_by_layer_type(
            self.runner.window, shown, lambda each: additive_mask(each, end, dtype)[None, None].to(device)
        )
        return self.runner.run_transformers(
            tokens.to(device), places.to(device), masks, self.past, int(last_only), self.taps
        )

    def prefill(self, ids: list[int]) -> tuple[Tensor | None, Tensor | None]:
        """Write the rows of `ids`, in chunks. Returns the last logits `[1, V]`, None without ids, and the features of all."""
        logits = None
        features: list[Any] = []
        size = PROMPTS[-1] if self.buckets and self.runner.captures_graphs else PREFILL_CHUNK
        for start in range(0, len(ids), size):
            chunk = ids[start : start + size]
            logits, seen = self.forward(chunk, list(range(self.rows, self.rows + len(chunk))), last_only=True)
            self.keep(list(range(len(chunk))))
            features.append(seen)
        if not self.taps:
            return logits, None
        empty = torch.zeros(0, len(self.taps) + 1, self.runner.config.hidden_size, device=self.runner.device)
        return logits, torch.cat([empty, *features])

    def keep(self, kept_offsets: list[int]) -> None:
        """Commit the rows `kept_offsets` of those just written, as offsets in path order. The others are dropped."""
        self.cache.keep(kept_offsets)

    @property
    def has_memory_for_graphs(self) -> bool:
        """Whether memory sufficed for its graphs, where there are any."""
        return self.buckets is None or self.buckets.whole

    @property
    def cache_and_graph_bytes(self) -> int:
        """Bytes of its cache, and of what its graphs hold."""
        return self.buckets.size if self.buckets else self.cache.kv.nbytes

    def rewind(self, rows: int) -> None:
        """Forget every row behind the first `rows`."""
        self.cache.rows = rows


def open_prompt_session(runner: "Runner", capacity: int, feature_layers: FeatureLayers = False) -> Session:
    """A session for prompts alone, over a cache whose trees others verify. Graphs read them where there are any."""
    capacity, taps = round_up_static_capacity(capacity), resolve_taps(feature_layers, runner.config.num_hidden_layers)
    buckets = GraphBuckets(runner, capacity, taps, ()) if runner.captures_graphs else None
    return Session(runner, capacity, feature_layers, graph_buckets=buckets)
