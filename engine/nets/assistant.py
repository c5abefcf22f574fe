"""Gemma 4's assistant: a small model of its own that reads keys and values of the target's cache, and writes none.

Each of its layers attends to the rows that the target's last layer of the same type wrote. All guesses of a round are made at one
position, the root's, so no node sees another. What a node goes on from is its token's embedding in the target and its parent's state.
"""

import sys

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from engine.forward.cache import KVCache
from engine.forward.recurrent.kinds import count_layers_with_own_kv
from engine.nets.eagle import EagleSession
from engine.nets.layer import Net

SLIDING = "sliding_attention"


class GemmaAssistant(Net):
    window = sys.maxsize  # it has no rows of its own that could be left out

    def __init__(self, model: PreTrainedModel, target: PreTrainedModel):
        """`model` is the assistant; of the target its embedding and its configuration are read."""
        nn.Module.__init__(self)  # nothing of the target is copied, as `Net` would
        self.model, self.target_embedding = model.eval().requires_grad_(False), target.get_input_embeddings()
        self.places = shared_layer_heads_and_width(model.config.get_text_config(), target.config)
        self.reads_features = (target.config.num_hidden_layers,)
        self.sliding = model.config.get_text_config().sliding_window

    @property
    def weight_with_net_dtype_and_device(self) -> Tensor:
        """One of its own weights, which has their type and device."""
        return self.model.pre_projection.weight

    def open_session(self, capacity: int) -> "AssistantSession":
        """A session for a text of so many tokens."""
        return AssistantSession(self, capacity)

    def forward_tokens(
        self, tokens: Tensor, state: Tensor, root_position: int, target_rows: dict[str, tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities `[N, V]` and states `[N, H]` behind N tokens, which go on from `state [N, H]` and see all `target_rows`.

        `target_rows` holds the target's keys and values by type of layer, each `[1, heads, rows, width]`.
        """
        model, text, count = self.model, self.model.model, len(tokens)
        x = model.pre_projection(torch.cat([self.target_embedding(tokens), state], -1))[None]
        places = torch.full((1, count), root_position, device=tokens.device)
        turned = {kind: text.rotary_emb(x, places, kind) for kind in target_rows}
        masks = {kind: x.new_zeros(1, 1, count, keys.shape[2]) for kind, (keys, _) in target_rows.items()}
        for layer, kind in zip(text.layers, text.config.layer_types, strict=True):
            x = layer(
                x,
                shared_kv_states=target_rows,
                position_embeddings=turned[kind],
                attention_mask=masks[kind],
                position_ids=places,
            )
        out = text.norm(x)
        return self.logits(out)[0].float().log_softmax(-1), model.post_projection(out)[0]

    def logits(self, out: Tensor) -> Tensor:
        """Logits `[1, N, V]` by the head. With ordered embeddings, tokens outside the best groups share one low logit a node."""
        head, masked = self.model.lm_head, self.model.masked_embedding
        if masked is None:
            return head(out)
        return torch.cat([masked(each, head.weight) for each in out.split(1, dim=1)], 1)  # the low logit is a call's


class AssistantSession(EagleSession):
    """One lane's round: the states behind the root and the nodes asked about. The rows are the target's."""

    net: GemmaAssistant

    def __init__(self, net: GemmaAssistant, capacity: int):
        weight = net.weight_with_net_dtype_and_device
        self.net, self.device = net, weight.device
        # It counts a stream's entries, and holds nothing
        self.cache = KVCache(0, 1, 1, capacity, weight.dtype, weight.device)
        self.target: KVCache | None = None

    def forward_text_entries(self, features: Tensor, *entries: Tensor) -> Tensor:
        """The state behind the last entry alone. All guesses of a round see the rows that the target has by then."""
        self.rows = self.read_committed_target_rows()
        return self.forward_entries(
            features[-1:, -1].to(self.net.weight_with_net_dtype_and_device.dtype), entries[0][-1:]
        )

    def forward_entries(self, feature: Tensor, tokens: Tensor, *others: Tensor) -> Tensor:
        self.answer, out = self.net.forward_tokens(tokens, feature, self.position, self.rows)
        return out

    def log_q_of_outputs(self, out: Tensor) -> Tensor:
        return self.answer

    def read_committed_target_rows(self) -> dict[str, tuple[Tensor, Tensor]]:
        """The target's committed rows by type of layer, a row of zeros before any; of sliding layers the window and one more."""
        assert self.target is not None  # the drafter was shown it
        count, found = max(1, self.target.rows), {}
        for kind, (layer, heads, width) in self.net.places.items():
            first = max(0, count - 1 - self.net.sliding) if kind == SLIDING else 0
            keys, values = (each[:, :heads, first:count, :width] for each in self.target.layers[layer])
            found[kind] = keys, values
        return found


def shared_layer_heads_and_width(
    assistant: PreTrainedConfig, target: PreTrainedConfig
) -> dict[str, tuple[int, int, int]]:
    """By the assistant's types of layer: the target's last one that writes rows, its heads and width. Raises `KeyError` for none."""
    last = {kind: layer for layer, kind in enumerate(target.layer_types[: count_layers_with_own_kv(target)])}
    sizes = target.per_layer_config
    return {
        kind: (last[kind], sizes[last[kind]].num_key_value_heads, sizes[last[kind]].head_dim)
        for kind in {*assistant.layer_types}
    }
