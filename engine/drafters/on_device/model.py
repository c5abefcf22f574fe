"""`engine.drafters.model` on a device. Between rounds its cache holds the rows of the context without the last two tokens' at least."""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.on_device.parts import DrafterOnDevice, can_run_static_forwards
from engine.forward.layer_ops import log_q_of_padded_logits
from engine.forward.runner_gpu import StaticForward, visible_slots
from engine.forward.session import open_prompt_session
from engine.models.pairs import LoadedPair


class ModelOnDevice(DrafterOnDevice):
    @classmethod
    def find_device_net(cls, pair: LoadedPair, drafter_name: str) -> Any:
        return pair.draft if pair.draft is not None and can_run_static_forwards(pair.draft) else None

    def allocate_buffers(self, capacity: int, depth: int, expanded_nodes: int) -> None:
        self.session = open_prompt_session(self.net, capacity + expanded_nodes + depth)
        self.forward, self.steps = StaticForward(self.net, self.session.cache), torch.arange(depth, device=self.device)
        self.size, self.whole = self.session.cache_and_graph_bytes, self.session.has_memory_for_graphs
        self.previous = torch.zeros(1, dtype=torch.long, device=self.device)

    def begin(self, prompt: list[int], features: Any) -> None:
        self.session.cache.clear()
        self.session.prefill(prompt[:-1])
        self.previous.fill_(prompt[-2:][0])

    def start_round_and_get_root_log_q(self, root: Tensor, root_position: Tensor) -> Tensor:
        """The token before the root is computed again, because its row is missing when it was a leaf of the last tree.

        A text of one token has none before it, and the cache's last row takes what is written for it.
        """
        columns = self.forward.columns
        slots = torch.cat([torch.where(root_position > 0, root_position - 1, columns[-1:]), root_position])
        positions = torch.cat([(root_position - 1).clamp(min=0), root_position])
        logits, _ = self.forward(torch.cat([self.previous, root]), positions, slots, columns <= slots[:, None])
        return log_q_of_padded_logits(logits[1:], self.target.vocab)

    def log_q_of_level(self, frontier: Any, root_position: Tensor) -> Tensor:
        visible = visible_slots(self.forward.columns, root_position, frontier.visible_expansion_mask)
        logits, _ = self.forward(frontier.tokens, frontier.positions, root_position + frontier.expansion_index, visible)
        return log_q_of_padded_logits(logits, self.target.vocab)

    def commit(
        self, tree: Any, path: Tensor, accepted_count: Tensor, bonus: Tensor, root_position: Tensor, features: Any
    ) -> None:
        rows, kv = tree.expansion_index.index_select(0, path[1:]), self.session.cache.kv
        places = root_position + 1 + self.steps
        kv.index_copy_(
            3,
            places,
            kv.index_select(3, torch.where(self.steps < accepted_count, root_position + rows, places)),
        )
        self.previous.copy_(tree.tokens.index_select(0, path.index_select(0, accepted_count)))
