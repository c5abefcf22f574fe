"""RecurrentSession: forwards of a model with states, path by path. It answers as `engine.forward.session.Session` does.

The paths of a tree from the root to its leaves are rows of one batch, each on a copy of the committed states. A state stands only
behind a row's last token. A shorter path is replayed before it is kept: layers with a recurrent state read its tokens again. What they
read is known from the forward, so no other layer computes anything.
"""

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from engine.forward.cache import additive
from engine.forward.layer_ops import features_of
from engine.forward.recurrent.cache import StateCache, modules_with_states, take_down_inputs
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

    def __init__(self, runner: "Runner", capacity: int, features: bool | tuple[int, ...] = False):
        super().__init__(runner, capacity, features)
        self.past = self.cache.past
        # Models without attention name their cache so, and list no embedding among their hidden states.
        self.bare = "cache_params" in inspect.signature(runner.model.forward).parameters
        take_down_inputs(runner.model)
        modules = modules_with_states(runner.model)
        self.scans = [each for each in modules if hasattr(each, "chunk_size")]
        # The gated delta rule fills up chunks of 64 tokens. Their length is an argument, which kernels of a GPU need not take.
        self.ruled = runner.device.type == "cpu" and any(hasattr(each, "head_k_dim") for each in modules)
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
        with as_guesses([] if last_only else self.scans, width):
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
        if self.ruled and not last_only:
            more["chunk_size"] = width
        return self.runner.model(
            input_ids=tokens.to(device),
            use_cache=True,
            logits_to_keep=int(last_only),
            output_hidden_states=bool(self.taps),
            **more,
        )

    @torch.inference_mode()
    def replay(self, written: list[int]) -> int:
        """Let states stand behind tokens of the last forward, where no row of it ends behind them. Returns how many were replayed.

        `written` are their offsets in path order. Nothing is committed yet. Tokens that are no path are computed anew, as a text.
        """
        count, width = len(written), max(map(len, self.paths))
        found = next((row for row, path in enumerate(self.paths) if path[:count] == written), None)
        self.row = found or 0
        if found is not None and (count == width or not self.cache.recurs):
            return 0
        if found is None:
            ids, positions = ([each[offset] for offset in written] for each in (self.ids, self.positions))
            self.forward(ids, positions)
        else:
            with as_guesses(self.scans, count):
                self.cache.replay(found, count)
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
