"""RecurrentSession: forwards of a model with states, path by path. It answers as `engine.forward.session.Session` does.

The paths of a tree from the root to its leaves are rows of one batch, each on a copy of the committed states. A state stands only
behind a row's last token, so a shorter path is computed again before it is kept: it is replayed.
"""

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from engine.forward.cache import additive
from engine.forward.layer_ops import features_of
from engine.forward.recurrent.cache import StateCache
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


@contextmanager
def free_steps(layers: list[Any]) -> Iterator[None]:
    """Let these layers take time steps of any length.

    transformers bounds the steps of several tokens in one forward, and never that of a single token. Guesses come several at once, and
    plain decoding would read each alone.
    """
    bounds = [layer.time_step_limit for layer in layers]
    try:
        for layer in layers:
            layer.time_step_limit = ANY_STEP
        yield
    finally:
        for layer, bound in zip(layers, bounds, strict=True):
            layer.time_step_limit = bound


class RecurrentSession(Session):
    """One cache of states over a runner's model. A forward changes nothing that is committed."""

    cache: StateCache

    def __init__(self, runner: "Runner", capacity: int, features: bool | tuple[int, ...] = False):
        super().__init__(runner, capacity, features)
        self.past = self.cache.past
        # Models without attention name their cache so, and list no embedding among their hidden states.
        self.bare = "cache_params" in inspect.signature(runner.model.forward).parameters
        layers = runner.model.modules()
        self.bounded = [each for each in layers if getattr(each, "time_step_limit", ANY_STEP) != ANY_STEP]
        self.paths: list[list[int]] = []
        self.row = 0

    @torch.inference_mode()
    def forward(
        self, ids: list[int], positions: list[int], visible: torch.Tensor | None = None, last_only: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As `Session.forward`, of a tree whose nodes see their ancestors and nothing else.

        Shorter paths are filled up behind their ends with what nobody reads, so the batch is `[leaves, longest path]`. With `last_only`
        the tokens are a prompt's.
        """
        count = len(ids)
        self.cache.room_for(count)
        self.ids, self.positions, self.paths = ids, positions, paths_of(count, visible)
        width = max(map(len, self.paths))
        rows = torch.tensor([path + path[-1:] * (width - len(path)) for path in self.paths])
        with free_steps([] if last_only else self.bounded):
            output = self.compute(torch.tensor(ids)[rows], torch.tensor(positions)[rows], last_only)
        places = [0] * count
        for row, path in enumerate(self.paths):
            for column, offset in enumerate(path):
                places[offset] = row * width + column
        logits = output.logits[0] if last_only else output.logits.flatten(0, 1)[places]
        if not self.taps:
            return logits, None
        hidden = [each.flatten(0, 1)[places] for each in output.hidden_states]
        return logits, features_of([hidden[abs(tap) - self.bare] for tap in self.taps], hidden[-1], self.taps)

    def compute(self, tokens: torch.Tensor, positions: torch.Tensor, last_only: bool) -> Any:
        """The model's output for a batch of rows `[B, n]` behind the committed text."""
        self.cache.begin(len(tokens))
        device, width = self.runner.device, tokens.shape[1]
        more: dict[str, Any] = {"cache_params": self.past}
        if not self.bare:
            causal = torch.ones(width, width, dtype=torch.bool).tril_()
            mask = additive(causal, self.rows + width, self.runner.dtype)[None, None].to(device)
            more = {"past_key_values": self.past, "position_ids": positions.to(device), "attention_mask": mask}
        return self.runner.model(
            input_ids=tokens.to(device),
            use_cache=True,
            logits_to_keep=int(last_only),
            output_hidden_states=bool(self.taps),
            **more,
        )

    def replay(self, written: list[int]) -> int:
        """Compute tokens of the last forward again, where no row of it ends behind them. Returns how many were.

        `written` are their offsets in path order. Nothing is committed yet.
        """
        count, width = len(written), max(map(len, self.paths))
        row = next((row for row, path in enumerate(self.paths) if path[:count] == written), None)
        if row is not None and (count == width or not self.cache.recurs):
            self.row = row
            return 0
        ids, positions = ([each[offset] for offset in written] for each in (self.ids, self.positions))
        self.forward(ids, positions)
        self.row = 0
        return count

    def keep(self, written: list[int]) -> None:
        """Commit the tokens `written` of the last forward, as offsets in path order. The others leave no trace."""
        self.replayed = self.replay(written)
        self.cache.commit(self.row, len(written))

    def rewind(self, rows: int) -> None:
        """Forget the whole text. Raises `ValueError` for any other number of `rows`: a state keeps no earlier one."""
        if rows:
            raise ValueError(f"A state of {self.rows} tokens cannot be taken back to {rows}. Only 0 would work.")
        self.cache.clear()
