"""`engine.drafters.model` on a device. Between rounds its cache holds the rows of the context without the last two tokens' at least."""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.on_device.parts import OnDevice, is_plain
from engine.forward.layer_ops import fit_logits
from engine.forward.runner_gpu import StaticForward, rows_behind
from engine.forward.session import prompt_session
from engine.models.pairs import LoadedPair


class ModelOnDevice(OnDevice):
    @classmethod
    def net_of(cls, pair: LoadedPair, drafter: str) -> Any:
        return pair.draft if pair.draft is not None and is_plain(pair.draft) else None

    def open(self, capacity: int, depth: int, rows: int) -> None:
        self.session = prompt_session(self.net, capacity + rows + depth)
        self.forward, self.steps = StaticForward(self.net, self.session.cache), torch.arange(depth, device=self.device)
        self.size, self.whole = self.session.size, self.session.whole
        self.previous = torch.zeros(1, dtype=torch.long, device=self.device)

    def begin(self, prompt: list[int], features: Any) -> None:
        self.session.cache.clear()
        self.session.prefill(prompt[:-1])
        self.previous.fill_(prompt[-2:][0])

    def first(self, root: Tensor, base: Tensor) -> Tensor:
        """The token before the root is computed again, because its row is missing when it was a leaf of the last tree.

        A text of one token has none before it, and the cache's last row takes what is written for it.
        """
        columns = self.forward.columns
        slots = torch.cat([torch.where(base > 0, base - 1, columns[-1:]), base])
        positions = torch.cat([(base - 1).clamp(min=0), base])
        logits, _ = self.forward(torch.cat([self.previous, root]), positions, slots, columns <= slots[:, None])
        return fit_logits(logits[1:], self.target.vocab)

    def level(self, frontier: Any, base: Tensor) -> Tensor:
        visible = rows_behind(self.forward.columns, base, frontier.lineage)
        logits, _ = self.forward(frontier.tokens, frontier.positions, base + frontier.places, visible)
        return fit_logits(logits, self.target.vocab)

    def commit(self, tree: Any, path: Tensor, count: Tensor, bonus: Tensor, base: Tensor, features: Any) -> None:
        rows, kv = tree.places.index_select(0, path[1:]), self.session.cache.kv
        places = base + 1 + self.steps
        kv.index_copy_(3, places, kv.index_select(3, torch.where(self.steps < count, base + rows, places)))
        self.previous.copy_(tree.tokens.index_select(0, path.index_select(0, count)))
