"""Batch: sessions of several sequences over one model, and the forwards they share.

- Compiled forward: matrices meet all rows at once, and attention goes sequence by sequence. A row has the bits that it has alone.
- Our own forward of tensors: the same, but library products may round differently with more rows.
- transformers: one padded forward `[B, N]` under one additive mask `[B, 1, N, M]` over one tensor of caches.
- transformers, of a model with states: the same, and its layers read all trees at once (`engine.forward.recurrent.nodes`).

Prompts are read sequence by sequence, by a session's own `prefill`. Nothing here is a CUDA graph, on a GPU either.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import Cache

from engine.forward.cache import KVCache, TransformersCacheLayer, additive_mask, cut_heads_and_width_like
from engine.forward.layer_ops import FeatureLayers, LogitsAndFeatures
from engine.forward.llama import TensorLlama
from engine.forward.llama_compiled import CompiledLlama
from engine.forward.recurrent.cache import RecurrentStateCache
from engine.forward.recurrent.forest import BatchedTrees, parents_from_mask
from engine.forward.recurrent.nodes import clear_active_tree_layer_on_exit
from engine.forward.recurrent.session import RecurrentSession, tree_state_layers_and_cache_of
from engine.forward.runner import Runner
from engine.forward.session import Session, resolve_taps
from engine.forward.windows import additive_masks_by_layer_type

ITSELF = torch.ones(1, 1, dtype=torch.bool)  # what a single row sees of the new rows


class RowRequest(NamedTuple):
    """Rows that a session asks for: n tokens at their positions, and `visible` as `Session.forward` takes it for trees."""

    session: Session
    ids: list[int]
    positions: list[int]
    visible: Tensor | None

    @property
    def validated_visible_mask(self) -> Tensor:
        """bool `[n, M]`. Raises `ValueError` for several rows without a mask, or with one over too few columns."""
        visible = ITSELF if self.visible is None and len(self.ids) == 1 else self.visible
        if visible is None or len(visible) != len(self.ids) or visible.shape[1] < len(self.ids):
            shape = None if visible is None else list(visible.shape)
            raise ValueError(f"{len(self.ids)} rows of a batch need a mask [{len(self.ids)}, M], got {shape}.")
        return visible


class SharedForwardBatch:
    """Up to `size` sequences. `open_session` gives each its session, `remove_session` takes one out, and `forward` answers
    any of them at once.
    """

    def __init__(self, runner: Runner, max_sequences: int, capacity: int, feature_layers: FeatureLayers = False):
        """`capacity` is the rows of each sequence's cache. Raises `ValueError` for a batch of no sequence."""
        if max_sequences < 1:
            raise ValueError(f"A batch has at least one sequence, got {max_sequences}.")
        self.runner, self.size, self.capacity, self.features = runner, max_sequences, capacity, feature_layers
        self.taps = resolve_taps(feature_layers, runner.config.num_hidden_layers)
        self.sessions: list[Session] = []
        own = isinstance(runner.own, CompiledLlama | TensorLlama)
        kind = BatchedStateSlots if runner.recurrent else BatchedCacheSlots
        self.slots = None if own else kind(runner, max_sequences, capacity)

    def open_session(self, capacity: int, feature_layers: FeatureLayers = False) -> Session:
        """A session with an empty cache. Raises `ValueError` for a full batch, and for another capacity or features than its own."""
        if len(self.sessions) == self.size:
            raise ValueError(f"The batch has its {self.size} sequences. One must leave before another is opened.")
        if (capacity, feature_layers) != (self.capacity, self.features):
            raise ValueError(
                f"All sequences of a batch have {self.capacity} rows and features {self.features}, got {capacity} and {feature_layers}."
            )
        session = self.runner.open_session(capacity, feature_layers, self.slots and self.slots.take_slot())
        self.sessions.append(session)
        return session

    def remove_session(self, session: Session) -> None:
        """Take a session out; it must not be used afterwards. Raises `ValueError` for one that is not in the batch."""
        if session not in self.sessions:
            raise ValueError("This session is not in the batch: it has left, or belongs to another one.")
        if self.slots is not None:
            self.slots.free_slot(session.cache)
        self.sessions.remove(session)

    @torch.inference_mode()
    def forward(self, requests: list[RowRequest]) -> list[LogitsAndFeatures]:
        """One forward for all that is asked, at most once a session. Rows are written behind each session's committed ones.

        Raises `ValueError` when a cache is full, for a wrong mask and for a session that is not in the batch.
        """
        for each in requests:
            if each.session not in self.sessions:
                raise ValueError("A session asks this batch and is not in it.")
            each.session.cache.refuse_overflow(len(each.ids))
        if self.slots is not None:
            return self.forward_padded_by_transformers(requests)
        ids = torch.tensor([token for each in requests for token in each.ids])
        positions = torch.tensor([place for each in requests for place in each.positions])
        seen, caches = [each.validated_visible_mask for each in requests], [each.session.cache for each in requests]
        logits, features = self.runner.own.forward_batch(caches, ids, positions, seen, self.taps)  # type: ignore[union-attr]
        counts = [len(each.ids) for each in requests]
        by_session = [None] * len(requests) if features is None else features.split(counts)
        return list(zip(logits.split(counts), by_session, strict=True))

    def forward_padded_by_transformers(self, requests: list[RowRequest]) -> list[LogitsAndFeatures]:
        """`forward` by the transformers model. A sequence that asks for fewer rows than others is padded with its first token.

        Padding writes rows behind the new ones, and no row but itself attends to it. Sessions that ask for nothing are padded too.
        """
        slots, device = self.slots, self.runner.device
        assert slots is not None
        by_cache = {id(each.session.cache): each for each in requests}
        count = max(len(each.ids) for each in requests)
        if any(cache.rows + count > cache.capacity for cache in slots.caches):
            raise ValueError(
                f"A forward of {count} rows a sequence does not fit a cache of {self.capacity} rows. Ask for smaller trees."
            )
        starts = torch.tensor([cache.rows for cache in slots.caches])
        slots.set_slots_of_next_rows(starts, count)
        ids = torch.zeros(len(starts), count, dtype=torch.long)
        positions = torch.zeros_like(ids)
        shown = torch.zeros(len(starts), 1, count, slots.rows + count, dtype=torch.bool)
        shown[..., 0] = True  # padding sees something, so that it stays a number
        for place, cache in enumerate(slots.caches):
            if each := by_cache.get(id(cache)):
                rows, seen, end = len(each.ids), each.validated_visible_mask, cache.rows + len(each.ids)
                ids[place], positions[place] = each.ids[0], each.positions[0]
                ids[place, :rows], positions[place, :rows] = torch.tensor(each.ids), torch.tensor(each.positions)
                shown[place, 0, :rows, :end] = F.pad(seen, (end - seen.shape[1], 0), value=True)
        masks = additive_masks_by_layer_type(
            self.runner.window, shown, lambda each: additive_mask(each, each.shape[-1], self.runner.dtype).to(device)
        )
        if isinstance(slots, BatchedStateSlots):
            slots.begin_tree_forward_of_requests([by_cache.get(id(cache)) for cache in slots.caches])
        with clear_active_tree_layer_on_exit():
            logits, features = self.runner.run_transformers(
                ids.to(device), positions.to(device), masks, slots.past, taps=self.taps
            )
        answers: list[LogitsAndFeatures] = []
        for each in requests:
            place, rows = slots.caches.index(each.session.cache), len(each.ids)
            answers.append((logits[place, :rows], None if features is None else features[place, :rows]))
        return answers


class BatchedCacheSlots:
    """Caches of a batch in one tensor `kv [layers, 2, size, heads, capacity, head_dim]`. Those in use stand at its beginning."""

    def __init__(self, runner: Runner, size: int, capacity: int):
        self.runner, self.capacity, one = runner, capacity, runner.new_cache(1).kv
        layers, _, heads, _, width = one.shape
        self.kv = torch.zeros(layers, 2, size, heads, capacity, width, dtype=one.dtype, device=one.device)
        self.caches: list[Any] = []
        self.past = Cache(layers=[BatchedCacheLayer(self, layer) for layer in range(layers)])

    def take_slot(self) -> KVCache:
        """A cache in the next free place, with the states of an empty text where the model keeps any."""
        cache = self.runner.new_cache(1)
        cache.bind_tensor(self.kv[:, :, len(self.caches)])
        cache.numbers = None
        self.caches.append(cache)
        return cache

    def free_slot(self, cache: KVCache) -> None:
        """Free the cache's place. The last cache moves into it."""
        place, last = self.caches.index(cache), self.caches.pop()
        if last is not cache:
            self.kv[:, :, place, :, : last.rows] = last.kv[..., : last.rows, :]
            last.bind_tensor(self.kv[:, :, place])
            self.caches[place] = last

    def set_slots_of_next_rows(self, starts: Tensor, count: int) -> None:
        """The next forward writes `count` rows a sequence from `starts [B]` on and reads all up to the last of them."""
        self.rows = int(starts.max())  # before the new ones of the longest sequence
        self.slots = (starts[:, None] + torch.arange(count)).to(self.kv.device)


class BatchedStateSlots(BatchedCacheSlots):
    """Slots whose caches keep states besides. `nodes` are the layers that read the trees of all slots at once."""

    def __init__(self, runner: Runner, size: int, capacity: int):
        super().__init__(runner, size, capacity)
        cache = runner.new_cache(1)
        assert isinstance(cache, RecurrentStateCache)
        self.nodes, self.past = tree_state_layers_and_cache_of(
            cache.held, lambda rows: BatchedCacheLayer(self, rows.layer)
        )

    def begin_tree_forward_of_requests(self, requests: list[RowRequest | None]) -> None:
        """The next forward reads what is asked in every slot."""
        trees = [[] if each is None else parents_from_mask(len(each.ids), each.visible) for each in requests]
        batched_trees = BatchedTrees(trees, self.kv.device)
        for number, layer in enumerate(self.nodes):
            layer.begin_tree_forward(batched_trees, [cache.states[number] for cache in self.caches])
        for text, each in enumerate(requests):
            if each is not None:
                assert isinstance(each.session, RecurrentSession)
                each.session.read = self.nodes, text, trees[text]
                each.session.ids, each.session.positions = each.ids, each.positions


class BatchedCacheLayer(TransformersCacheLayer):
    """One layer of all the caches of `BatchedCacheSlots`, in the form that transformers' attention expects."""

    def update(self, key_states, value_states, *args: Any, **kwargs: Any):
        slots = self.cache
        batch = len(slots.caches)
        which = torch.arange(batch, device=key_states.device)[:, None]
        found = []
        for kind, states in enumerate((key_states, value_states)):
            rows = cut_heads_and_width_like(slots.kv[self.layer, kind, :batch], states)
            rows.transpose(1, 2)[which, slots.slots] = states.transpose(1, 2)
            found.append(rows[:, :, : slots.rows + states.shape[2]])
        return found
