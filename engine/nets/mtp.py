"""MTP's net (DeepSeek-V3, 2024): layers for multi-token prediction that a target's own checkpoint holds, each of the target's own kind.

An entry pairs a token with the state behind the token before it. The first layer reads the target's final state there, and layer k the
output of layer k - 1. So layer k guesses behind a token that is drafted k deep. Below its depth the last layer goes on from its own
output. Embedding, head and rotary tables are the target's own modules.
"""

import sys

import torch
from torch import Tensor, nn
from transformers.modeling_layers import MtpModel

from engine.forward.cache import KVCache, additive, transformers_cache
from engine.forward.sizes import head_dim_of, kv_heads_of
from engine.forward.uploads import rows_of, uploaded
from engine.nets.layer import Net


class Mtp(Net):
    window = sys.maxsize  # rows attended to: all, but for a layer with a sliding window

    def __init__(self, model: MtpModel, target_layers: int):
        """`model` computes the layers, and shares the target's modules. `target_layers` counts the target's own."""
        nn.Module.__init__(self)  # nothing of the target is copied, as `Net` would
        self.model, self.reads = model.eval().requires_grad_(False), (target_layers,)
        kinds = getattr(model.config, "layer_types", None) or [""] * len(model.layers)
        self.caches = sum(getattr(layer.mtp_block, "caches", 1) for layer in model.layers)  # layers that attend
        self.kinds = [kind if model.has_per_layer_rope else "" for kind in kinds]
        self.sliding = [model.config.sliding_window if kind == "sliding_attention" else 0 for kind in kinds]

    @property
    def weight(self) -> Tensor:
        """One of the layers' own weights, which has their type and device."""
        return self.model.layers[0].eh_proj.weight

    def open(self, capacity: int) -> "MtpSession":
        """A session with room for so many rows."""
        return MtpSession(self, capacity)

    def step(self, layer: int, tokens, state, positions, mask, past) -> Tensor:
        """A layer's output `[N, H]` behind N entries. Their rows are written into `past`, under the additive `mask [N, rows + N]`.

        `state [N, H]` is what stands behind the tokens before `tokens [N]`.
        """
        model, embedded = self.model, self.model.embed_tokens(tokens[None])
        rotary = {"layer_type": self.kinds[layer]} if self.kinds[layer] else {}
        turned = model.rotary_emb and model.rotary_emb(embedded, position_ids=positions[None], **rotary)
        return model.layers[layer](
            embedded,
            state[None],
            position_embeddings=turned,
            position_ids=positions[None],
            attention_mask=mask[None, None],
            past_key_values=past,
        )[0]

    def log_q(self, out: Tensor) -> Tensor:
        """Log-probabilities `[n, V]` by the target's head from a layer's outputs `[n, H]`."""
        return self.model.shared_head(out).float().log_softmax(-1)


class MtpSession:
    """One lane's rows, at the same place in all layers, and every layer's outputs behind a round's entries.

    A layer has no true state behind the first tokens of a text, and nobody sees its rows there.
    """

    def __init__(self, net: Mtp, capacity: int):
        config, weight = net.model.config, net.weight
        self.net, self.layers, self.device = net, len(net.model.layers), weight.device
        heads, width = kv_heads_of(config), head_dim_of(config)
        assert heads is not None  # as for the target, which was loaded
        self.cache = KVCache(net.caches, heads, width, capacity, weight.dtype, self.device)
        self.past = transformers_cache(self.cache)
        self.stands = torch.zeros(capacity, dtype=torch.long, device=self.device)  # the position of every row
        # By layer, the outputs [layers, M, H] behind the root and behind the nodes asked about; nothing above a node's own layer
        self.outs: Tensor = weight.new_zeros(self.layers, 1, config.hidden_size)

    def root(self, tokens: list[int], features: Tensor, chosen: list[int], position: int, start: int) -> Tensor:
        """Log-probabilities `[1, V]` behind the last of N entries, the first of which stands at `position`.

        Their states are the `chosen` N of the target's features `[M, 2, H]`. All layers write their rows behind those that the cache
        has, and see all rows from `start` on, which is 0. Raises `ValueError` when the cache is full.
        """
        count = len(tokens)
        state = rows_of(features, chosen)[:, -1].to(self.net.weight.dtype)
        behind = self.outs[:, :1] if self.cache.rows else torch.zeros_like(self.outs[:, :1])
        causal = torch.ones(count, count, dtype=torch.bool).tril()
        ids, places, masks = self.entries(tokens, list(range(position, position + count)), causal)
        outs = []
        for layer in range(self.layers):
            out = self.net.step(layer, ids, state, places, masks[layer], self.past)
            state = torch.cat([behind[layer], out[:-1]])
            outs.append(out[-1:])
        self.cache.rows += count
        self.outs, self.position = torch.stack(outs), position + count - 1
        return self.net.log_q(self.outs[0])

    def level(self, tokens: list[int], above: list[int], positions: list[int], visible: Tensor, start: int) -> Tensor:
        """Log-probabilities `[n, V]` behind n nodes. Raises `ValueError` when the cache is full.

        `above` numbers the entries of this round that they go on from; the root's is 0. `visible` bool `[n, M]` says which of the last
        M rows each may see. The layers from a node's depth on write its row, because deeper nodes are guessed by those.
        """
        ids, places, masks = self.entries(tokens, positions, visible)
        depths, last = [place - self.position for place in positions], self.layers - 1
        parents = uploaded(above, self.device)
        new = self.outs.new_zeros(self.layers, len(tokens), self.outs.shape[2])
        for layer in range(min(last, *depths), self.layers):
            reads = [last if depth > last else layer - 1 for depth in depths]
            state = self.outs[uploaded(reads, self.device), parents]
            new[layer] = self.net.step(layer, ids, state, places, masks[layer], self.past)
        self.cache.rows += len(tokens)
        self.outs = torch.cat([self.outs, new], 1)
        guessing = uploaded([min(depth, last) for depth in depths], self.device)
        return self.net.log_q(new[guessing, torch.arange(len(tokens), device=self.device)])

    def entries(self, tokens: list[int], positions: list[int], visible: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Tokens and positions `[N]` on the device, and for every layer its additive mask `[N, rows + N]`."""
        self.cache.room_for(len(tokens))
        end = self.cache.rows + len(tokens)
        ids, places = uploaded([tokens, positions], self.device).unbind()
        self.stands[self.cache.rows : end] = places
        stands, dtype = self.stands[:end], self.net.weight.dtype
        mask, masks = additive(uploaded(visible, self.device), end, dtype), []
        for layer, window in enumerate(self.net.sliding):
            hidden = (stands <= layer)[None]
            if window:
                hidden = hidden | (places[:, None] - stands >= window)
            masks.append(mask.masked_fill(hidden, torch.finfo(dtype).min))
        return ids, places, masks
