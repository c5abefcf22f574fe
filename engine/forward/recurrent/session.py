"""RecurrentSession: forwards of a model with states. It answers as `engine.forward.session.Session` does.

A tree is read as a forest of one text. Layers with a state read its nodes beside the text's state (`engine.forward.recurrent.nodes`),
and layers with attention under a tree's mask, as ever. A prompt is read as one row of tokens, as transformers reads it.

`by_paths` is the other way, which `bench --by state` compares with. The paths of a tree from the root to its leaves are rows of one
batch, each on a copy of the committed states. A state stands only behind a row's last token. A shorter path is replayed before it is
kept: layers with a recurrent state read its tokens again. What they read is known from the forward, so other layers compute nothing.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from engine.forward.cache import additive
from engine.forward.layer_ops import features_of
from engine.forward.recurrent.cache import RowsLayer, StateCache, StateLayer, modules_with_states, take_down_inputs
from engine.forward.recurrent.forest import Forest, parents_of
from engine.forward.recurrent.nodes import HybridNodesLayer, NodesLayer, reading_ends, teach
from engine.forward.session import Session

if TYPE_CHECKING:
    from engine.forward.runner import Runner

ANY_STEP = (0.0, math.inf)


def paths_of(count: int, visible: torch.Tensor | None) -> list[list[int]]:
    """The offsets of each path from the root to a leaf, of `count` tokens of which each sees its ancestors: bool `[N, N]`.

    None is one path of all tokens.
    """
    if visible is None:
        return [list(range(count))]
    leaves = (visible.sum(0) == 1).nonzero().flatten().tolist()
    return [visible[leaf].nonzero().flatten().tolist() for leaf in leaves]


def is_bare(model: PreTrainedModel) -> bool:
    """Whether a model is of those without attention. They name their cache so, and list no embedding among their hidden states."""
    return "cache_params" in inspect.signature(model.forward).parameters


def nodes_of(held: list[Any], attending: Callable[[RowsLayer], CacheLayerMixin]) -> tuple[list[NodesLayer], Cache]:
    """A layer for the nodes of each of those `held` that keeps states, and all layers as a model's cache, by who attends for whom."""
    layers: list[Any] = []
    for each in held:
        keeps, rows = isinstance(each, StateLayer), attending(each) if isinstance(each, RowsLayer) else None
        layers.append((HybridNodesLayer(rows) if rows else NodesLayer()) if keeps else rows or each)
    return [each for each in layers if isinstance(each, NodesLayer)], Cache(layers=layers)


@contextmanager
def as_guesses(scans: list[Any], count: int) -> Iterator[None]:
    """Let layers of Mamba 2 read `count` guesses as plain decoding reads its tokens, in one chunk of that length.

    transformers bounds the time steps of several tokens in one forward, and never that of a single one. It also fills a forward up to
    whole chunks of 128 or 256 tokens, whose arithmetic would be most of a verification.
    """
    before = [(scan.time_step_limit, scan.chunk_size) for scan in scans]
    try:
        for scan in scans:
            scan.time_step_limit, scan.chunk_size = ANY_STEP, min(count, scan.chunk_size)
        yield
    finally:
        for scan, (bound, chunk) in zip(scans, before, strict=True):
            scan.time_step_limit, scan.chunk_size = bound, chunk


class RecurrentSession(Session):
    """One cache of states over a runner's model. A forward changes nothing that is committed."""

    cache: StateCache

    def __init__(
        self,
        runner: "Runner",
        capacity: int,
        features: bool | tuple[int, ...] = False,
        by_paths: bool = False,
        cache: StateCache | None = None,
    ):
        super().__init__(runner, capacity, features, cache=cache)
        self.past = self.cache.past
        self.bare = is_bare(runner.model)
        self.by_paths = by_paths
        teach(runner.model)
        if by_paths:
            take_down_inputs(runner.model)
        modules = modules_with_states(runner.model)
        self.scans = [each for each in modules if hasattr(each, "chunk_size")]
        # The gated delta rule fills up chunks of 64 tokens. Their length is an argument, which kernels of a GPU need not take.
        self.ruled = runner.device.type == "cpu" and any(hasattr(each, "head_k_dim") for each in modules)
        self.paths: list[list[int]] = []
        self.row = 0
        self.nodes, self.grown = nodes_of(self.cache.held, lambda layer: layer)
        # The layers that read the last forward's nodes, the text's number among theirs, and the nodes' parents
        self.read: tuple[list[NodesLayer], int, list[int]] | None = None

    @torch.inference_mode()
    def forward(
        self, ids: list[int], positions: list[int], visible: torch.Tensor | None = None, last_only: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As `Session.forward`, of a tree whose nodes see their ancestors and nothing else. With `last_only` they are a prompt's."""
        self.cache.room_for(len(ids))
        self.ids, self.positions = ids, positions
        if last_only or self.by_paths:
            return self.forward_by_paths(ids, positions, visible, last_only)
        parents = parents_of(len(ids), visible)
        forest = Forest([parents], self.runner.device)
        for layer, text in zip(self.nodes, self.cache.states, strict=True):
            layer.begin(forest, [text])
        self.read = self.nodes, 0, parents
        if visible is None:
            visible = torch.ones(len(ids), len(ids), dtype=torch.bool).tril_()
        tokens, places = torch.tensor([ids]), torch.tensor([positions])
        with reading_ends():
            output = self.compute(tokens, places, visible, self.grown)
        return output.logits[0], self.features_in([each[0] for each in output.hidden_states or ()])

    def forward_by_paths(
        self, ids: list[int], positions: list[int], visible: torch.Tensor | None, last_only: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`forward` over rows that are paths. Shorter ones are filled up behind their ends with what nobody reads, so the batch is
        `[leaves, longest path]`.
        """
        count, self.read, self.paths = len(ids), None, paths_of(len(ids), visible)
        width = max(map(len, self.paths))
        rows = torch.tensor([path + path[-1:] * (width - len(path)) for path in self.paths])
        self.cache.begin(len(rows))
        more = {"chunk_size": width} if self.ruled and not last_only else {}
        causal = torch.ones(width, width, dtype=torch.bool).tril_()
        with as_guesses([] if last_only else self.scans, width):
            output = self.compute(
                torch.tensor(ids)[rows],
                torch.tensor(positions)[rows],
                causal,
                self.past,
                logits_to_keep=int(last_only),
                **more,
            )
        places = [0] * count
        for row, path in enumerate(self.paths):
            for column, offset in enumerate(path):
                places[offset] = row * width + column
        logits = output.logits[0] if last_only else output.logits.flatten(0, 1)[places]
        return logits, self.features_in([each.flatten(0, 1)[places] for each in output.hidden_states or ()])

    def features_in(self, hidden: list[torch.Tensor]) -> torch.Tensor | None:
        """The features of tokens by the hidden states that the model lists for them, if asked for."""
        return (
            features_of([hidden[abs(tap) - self.bare] for tap in self.taps], hidden[-1], self.taps)
            if self.taps
            else None
        )

    def compute(
        self, tokens: torch.Tensor, positions: torch.Tensor, visible: torch.Tensor, past: Cache, **more: Any
    ) -> Any:
        """The model's output for rows `[B, n]` behind the committed text, whose tokens see those of `visible [n, n]`."""
        device = self.runner.device
        if self.bare:
            more["cache_params"] = past
        else:
            mask = additive(visible, self.rows + tokens.shape[1], self.runner.dtype)[None, None].to(device)
            more |= {"past_key_values": past, "position_ids": positions.to(device), "attention_mask": mask}
        return self.runner.model(
            input_ids=tokens.to(device), use_cache=True, output_hidden_states=bool(self.taps), **more
        )

    @torch.inference_mode()
    def replay(self, written: list[int]) -> int:
        """Let states stand behind tokens of the last forward, where none was kept there. Returns how many were replayed.

        `written` are their offsets in path order. Nothing is committed yet. Tokens that are no path are computed anew, as a text.
        """
        count = len(written)
        if self.read is not None:
            parents = self.read[2]
            if all(parents[node] == before for before, node in zip([-1, *written], written, strict=False)):
                return 0
        else:
            width = max(map(len, self.paths))
            found = next((row for row, path in enumerate(self.paths) if path[:count] == written), None)
            self.row = found or 0
            if found is not None and (count == width or not self.cache.recurs):
                return 0
            if found is not None:
                with as_guesses(self.scans, count):
                    self.cache.replay(found, count)
                return count
        ids, positions = ([each[offset] for offset in written] for each in (self.ids, self.positions))
        self.forward(ids, positions)
        return count

    def keep(self, written: list[int]) -> None:
        """Commit the tokens `written` of the last forward, as offsets in path order. The others leave no trace."""
        read = self.read
        self.replayed = self.replay(written)
        if self.read is None:
            self.cache.commit(self.row, len(written))
            return
        if self.read is not read:  # computed anew, as a text
            written = list(range(len(written)))
        layers, text, _ = self.read
        self.cache.commit_nodes(layers, text, written)

    @property
    def held_bytes(self) -> int:
        """Bytes of the states that the last forward left beside the committed ones."""
        if self.read is None:
            return self.cache.copied_bytes
        return sum(layer.nbytes for layer in self.read[0])

    @property
    def computed(self) -> int:
        """Tokens that the last forward computed, padding included."""
        return len(self.ids) if self.read else len(self.paths) * max(map(len, self.paths))

    def rewind(self, rows: int) -> None:
        """Forget the whole text. Raises `ValueError` for any other number of `rows`: a state keeps no earlier one."""
        if rows:
            raise ValueError(f"A state of {self.rows} tokens cannot be taken back to {rows}. Only 0 would work.")
        self.cache.clear()
