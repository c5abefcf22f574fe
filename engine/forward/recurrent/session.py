"""RecurrentSession: forwards of a model with states. It answers as `engine.forward.session.Session` does.

A tree is read as `BatchedTrees` of one text. Layers with a state read its nodes beside the text's state
(`engine.forward.recurrent.nodes`), and layers with attention under a tree's mask, as ever. A prompt is read as one row of tokens,
as transformers reads it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from engine.forward.cache import TransformersCacheLayer
from engine.forward.layer_ops import LogitsAndFeatures
from engine.forward.recurrent.cache import RecurrentStateCache, RecurrentStateLayer
from engine.forward.recurrent.forest import BatchedTrees, parents_from_mask
from engine.forward.recurrent.nodes import (
    HybridTreeStateLayer,
    TreeStateLayer,
    clear_active_tree_layer_on_exit,
    patch_model_to_read_trees,
)
from engine.forward.session import Session

if TYPE_CHECKING:
    from engine.forward.runner import Runner


def tree_state_layers_and_cache_of(
    layers_of_cache: list[Any], cache_layer_of: Callable[[TransformersCacheLayer], CacheLayerMixin]
) -> tuple[list[TreeStateLayer], Cache]:
    """A layer for the nodes of each of those `layers_of_cache` that keeps states, and all layers as a model's cache, by who attends
    for whom.
    """
    layers: list[Any] = []
    for each in layers_of_cache:
        keeps, rows = (
            isinstance(each, RecurrentStateLayer),
            cache_layer_of(each) if isinstance(each, TransformersCacheLayer) else None,
        )
        layers.append((HybridTreeStateLayer(rows) if rows else TreeStateLayer()) if keeps else rows or each)
    return [each for each in layers if isinstance(each, TreeStateLayer)], Cache(layers=layers)


class RecurrentSession(Session):
    """One cache of states over a runner's model. A forward changes nothing that is committed."""

    cache: RecurrentStateCache

    def __init__(self, runner: "Runner", *asked: Any, **how: Any):
        super().__init__(runner, *asked, **how)
        patch_model_to_read_trees(runner.model)
        self.nodes, self.grown = tree_state_layers_and_cache_of(self.cache.held, lambda layer: layer)
        # The layers that read the last forward's nodes, the text's number among theirs, and the nodes' parents
        self.read: tuple[list[TreeStateLayer], int, list[int]] | None = None

    @torch.inference_mode()
    def forward(
        self, ids: list[int], positions: list[int], visible: Tensor | None = None, last_only: bool = False
    ) -> LogitsAndFeatures:
        """As `Session.forward`, of a tree whose nodes see their ancestors and nothing else. With `last_only` they are a prompt's."""
        self.cache.refuse_overflow(len(ids))
        self.ids, self.positions = ids, positions
        if last_only:
            self.read, self.past = None, self.cache.past
            self.cache.copy_committed_states_for_forward()
        else:
            parents = parents_from_mask(len(ids), visible)
            trees = BatchedTrees([parents], self.runner.device)
            for layer, text in zip(self.nodes, self.cache.states, strict=True):
                layer.begin_tree_forward(trees, [text])
            self.read, self.past = (self.nodes, 0, parents), self.grown
        with clear_active_tree_layer_on_exit():
            return super().forward(ids, positions, visible, last_only)

    @torch.inference_mode()
    def recompute_states_if_needed(self, kept_offsets: list[int]) -> int:
        """Let states stand behind the tokens `kept_offsets`, offsets in path order. Returns how many were computed anew, as a text."""
        if self.read is None:
            return 0
        parents = self.read[2]
        if all(parents[node] == before for before, node in zip([-1, *kept_offsets], kept_offsets, strict=False)):
            return 0
        ids, positions = ([each[offset] for offset in kept_offsets] for each in (self.ids, self.positions))
        self.forward(ids, positions)
        return len(kept_offsets)

    @torch.inference_mode()
    def keep(self, kept_offsets: list[int]) -> None:
        """Commit the tokens `kept_offsets` of the last forward, offsets in path order: all of a prompt. The others leave no trace."""
        self.replayed = self.recompute_states_if_needed(kept_offsets)
        if self.read is None:
            self.cache.commit_all_forward_tokens(len(kept_offsets))
            return
        layers, text, _ = self.read
        kept = list(range(len(kept_offsets))) if self.replayed else kept_offsets
        for layer in layers:
            layer.commit_states_of_node(text, kept[-1])
        self.cache.keep(kept)

    @property
    def uncommitted_bytes(self) -> int:
        """Bytes that the last forward left beside the committed states."""
        return sum(layer.nbytes for layer in self.read[0]) if self.read else 0

    def rewind(self, rows: int) -> None:
        """Forget the whole text. Raises `ValueError` for any other number of `rows`: a state keeps no earlier one."""
        if rows:
            raise ValueError(f"A state of {self.rows} tokens cannot be taken back to {rows}. Only 0 would work.")
        self.cache.clear()
