"""`engine.drafters.model` on a device. Between rounds its cache holds the rows of the context without the last two tokens' at least."""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.on_device.parts import DrafterOnDevice, is_plain
from engine.forward.layer_ops import log_q_of_padded_logits
from engine.forward.runner_gpu import StaticForward, visible_slots
from engine.forward.session import prompt_session
from engine.models.pairs import LoadedPair


class ModelOnDevice(DrafterOnDevice):
    @classmethod
    def net_of(cls, pair: LoadedPair, drafter: str) -> Any:
        return pair.draft if pair.draft is not None and is_plain(pair.draft) else None

    def allocate_buffers(self, capacity: int, depth: int, asked_nodes: int) -> None:
        self.session = prompt_session(self.net, capacity + asked_nodes + depth)
        self.forward, self.steps = StaticForward(self.net, self.session.cache), torch.arange(depth, device=self.device)
        self.size, self.whole = self.session.size, self.session.whole
        self.previous = torch.zeros(1, dtype=torch.long, device=self.device)

    def begin(self, prompt: list[int], features: Any) -> None:
        self.session.cache.clear()
        self.session.prefill(prompt[:-1])
        self.previous.fill_(prompt[-2:][0])

    def log_q_of_root(self, root: Tensor, position: Tensor) -> Tensor:
        """The token before the root is computed again, because its row is missing when it was a leaf of the last tree.

        A text of one token has none before it, and the cache's last row takes what is written for it.
        """
        columns = self.forward.columns
        slots = torch.cat([torch.where(position > 0, position - 1, columns[-1:]), position])
        positions = torch.cat([(position - 1).clamp(min=0), position])
        logits, _ = self.forward(torch.cat([self.previous, root]), positions, slots, columns <= slots[:, None])
        return log_q_of_padded_logits(logits[1:], self.target.vocab)

    def log_q_of_level(self, frontier: Any, position: Tensor) -> Tensor:
        visible = visible_slots(self.forward.columns, position, frontier.lineage)
        logits, _ = self.forward(frontier.tokens, frontier.positions, position + frontier.places, visible)
        return log_q_of_padded_logits(logits, self.target.vocab)

    def commit(self, tree: Any, path: Tensor, accepted: Tensor, bonus: Tensor, position: Tensor, features: Any) -> None:
        rows, kv = tree.places.index_select(0, path[1:]), self.session.cache.kv
        places = position + 1 + self.steps
        kv.index_copy_(3, places, kv.index_select(3, torch.where(self.steps < accepted, position + rows, places)))
        self.previous.copy_(tree.tokens.index_select(0, path.index_select(0, accepted)))
