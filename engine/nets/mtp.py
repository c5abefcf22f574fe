"""MTP's net (DeepSeek-V3, 2024): layers for multi-token prediction that a target's own checkpoint holds, each of the target's own kind.

An entry pairs a token with the state behind the token before it. The first layer reads the target's final state there, and layer k the
output of layer k - 1. So layer k guesses behind a token that is drafted k deep. Below its depth the last layer goes on from its own
output. Embedding, head and rotary tables are the target's own modules.
"""

import sys

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_layers import MtpModel

from engine.forward.cache import KVCache, additive_mask
from engine.forward.runner_gpu import SlotCacheLayer
from engine.forward.sizes import head_dim_of, kv_heads_of
from engine.nets.eagle import EagleSession
from engine.nets.layer import Net


class Mtp(Net):
    window = sys.maxsize  # rows attended to: all, but for a layer with a sliding window

    def __init__(self, model: MtpModel, target_layer_count: int):
        """`model` computes the layers, and shares the target's modules. `target_layer_count` counts the target's own."""
        nn.Module.__init__(self)  # nothing of the target is copied, as `Net` would
        self.model, self.reads_features = model.eval().requires_grad_(False), (target_layer_count,)
        kinds = getattr(model.config, "layer_types", None) or [""] * len(model.layers)
        self.caches = sum(getattr(layer.mtp_block, "caches", 1) for layer in model.layers)  # layers that attend
        self.kinds = [kind if model.has_per_layer_rope else "" for kind in kinds]
        self.sliding = [model.config.sliding_window if kind == "sliding_attention" else 0 for kind in kinds]

    @property
    def weight_with_net_dtype_and_device(self) -> Tensor:
        """One of the layers' own weights, which has their type and device."""
        return self.model.layers[0].eh_proj.weight

    def open_session(self, capacity: int) -> "MtpSession":
        """A session with room for so many rows."""
        return MtpSession(self, capacity)

    def forward_layer(
        self, layer_index: int, tokens: Tensor, state: Tensor, positions: Tensor, mask: Tensor, cache: Cache
    ) -> Tensor:
        """A layer's output `[N, H]` behind N entries. Their rows are written into `cache`, under the additive `mask [N, rows + N]`.

        `state [N, H]` is what stands behind the tokens before `tokens [N]`.
        """
        model, embedded = self.model, self.model.embed_tokens(tokens[None])
        rotary = {"layer_type": self.kinds[layer_index]} if self.kinds[layer_index] else {}
        turned = model.rotary_emb and model.rotary_emb(embedded, position_ids=positions[None], **rotary)
        return model.layers[layer_index](
            embedded,
            state[None],
            position_embeddings=turned,
            position_ids=positions[None],
            attention_mask=mask[None, None],
            past_key_values=cache,
        )[0]

    def log_q_of_outputs(self, out: Tensor) -> Tensor:
        """Log-probabilities `[n, V]` by the target's head from a layer's outputs `[n, H]`."""
        return self.model.shared_head(out).float().log_softmax(-1)


class MtpSession(EagleSession):
    """One lane's rows, at the same place in all layers, and every layer's outputs `[layers, M, H]` behind a round's entries.

    A layer has no true state behind the first tokens of a text, and nobody sees its rows there. Outputs behind nodes are those of the
    layers from the node's depth on, because deeper nodes are guessed by those.
    """

    net: Mtp

    def __init__(self, net: Mtp, capacity: int):
        config, weight = net.model.config, net.weight_with_net_dtype_and_device
        self.net, self.last, self.device = net, len(net.model.layers) - 1, weight.device
        heads, width = kv_heads_of(config), head_dim_of(config)
        assert heads is not None  # as for the target, which was loaded
        self.cache = KVCache(net.caches, heads, width, capacity, weight.dtype, self.device)
        self.layers = [SlotCacheLayer(self.cache, layer) for layer in range(net.caches)]
        self.past = Cache(layers=self.layers)
        self.stands = torch.zeros(capacity, dtype=torch.long, device=self.device)  # the position of every row
        self.behind = weight.new_zeros(self.last + 1, 1, config.hidden_size)  # the outputs behind the entry before

    def forward_text_entries(self, features: Tensor, *entries: Tensor) -> Tensor:
        """A layer reads the one before, behind the token before; the first one the target's final state."""
        state, outs, behind = (
            features[:, -1].to(self.net.weight_with_net_dtype_and_device.dtype),
            [],
            self.behind * (entries[1][:1] > 1),
        )
        for layer in range(self.last + 1):
            outs.append(self.forward_entries(state, *entries, layer=layer))
            state = torch.cat([behind[layer], outs[-1][:-1]])
        self.behind.copy_(torch.stack(outs)[:, -1:])
        return torch.stack(outs)

    def store_root_output_and_log_q(self, outs: Tensor) -> Tensor:
        self.behind.copy_(outs)
        self.outs = outs
        return self.net.log_q_of_outputs(outs[0])

    def log_q_of_drafted_entries(self, depth: int, parent_outputs: Tensor, *entries: Tensor) -> Tensor:
        last, new = self.last, self.outs.new_zeros(self.last + 1, len(parent_outputs), self.outs.shape[2])
        for layer in range(min(last, depth), last + 1):
            state = self.outs[last if depth > last else layer - 1].index_select(0, parent_outputs)
            new[layer] = self.forward_entries(state, *entries, layer=layer)
        self.outs = torch.cat([self.outs, new], 1)
        return self.net.log_q_of_outputs(new[min(depth, last)])

    def forward_entries(
        self, feature: Tensor, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Tensor, *, layer: int = 0
    ) -> Tensor:
        self.stands.index_copy_(0, slots, positions)
        stands, window = self.stands[: seen.shape[1]], self.net.sliding[layer]
        seen = seen & (stands > layer)
        if window:
            seen = seen & (positions[:, None] - stands < window)
        for each in self.layers:
            each.slots, each.visible_end = slots, seen.shape[1]
        mask = additive_mask(seen, seen.shape[1], self.net.weight_with_net_dtype_and_device.dtype)
        return self.net.forward_layer(layer, tokens, feature, positions, mask, self.past)
