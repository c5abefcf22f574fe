"""Parallel-tree drafter's net: every depth from one forward, future places filled with one learned stand-in.

An entry of the stream pairs a token with the target's features behind the token before it. The anchor, the root when serving,
predicts depth 1. Behind it stand `depth - 1` slots; the one at rotary position anchor + d predicts depth d + 1. All carry the same
learned mask embedding and hidden state in place of token and features. A slot sees the stream up to its anchor and its anchor's
shallower slots.

Embedding, final norm and LM head are the target's, frozen; the norm's weight is saved, because a `Net` is given only the other two.
A net with a width of its own trains embedding and head, and its final norm has no weight.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.forward.llama_layer import EPS, GatedDecoderLayer, Linear, RMSNorm, Rotary
from engine.nets.layer import FEATURES, Net, NetConfig
from engine.nets.parallel_compiled import CompiledParallel


class Parallel(Net):
    used_table_names = "embedding", "head"

    def __init__(self, config: NetConfig, embedding: Tensor, head: Tensor):
        super().__init__(config, embedding, head)
        hidden = config.hidden
        self.feat_proj = Linear(FEATURES * config.feature_size, hidden)
        self.in_proj = Linear(2 * hidden, hidden)
        self.mask_embed = nn.Parameter(torch.empty(hidden).normal_())
        self.shared_state = nn.Parameter(torch.empty(hidden).normal_())
        self.layers = nn.ModuleList(GatedDecoderLayer(hidden, config.heads, config.mlp) for _ in range(config.layers))
        self.norms = nn.ModuleList(RMSNorm(hidden) for _ in range(config.layers))
        self.rotary = Rotary.from_theta(hidden // config.heads, config.rope_theta)
        self.register_buffer("final_norm", torch.ones(hidden))

    def build_compiled(self) -> CompiledParallel:
        return CompiledParallel(self)

    def embed_stream_entries(self, tokens: Tensor, features: Tensor) -> Tensor:
        """Entries `[..., H]` of `tokens [...]` and the target's `features [..., 4, H]` behind the token before each."""
        token = F.rms_norm(self.embed_tokens(tokens), (self.config.hidden,))
        return self.in_proj(torch.cat([token, self.feat_proj(features[..., :FEATURES, :].flatten(-2))], -1))

    def slot_entry(self) -> Tensor:
        """The entry `[H]` of every slot. Slots differ only in their positions."""
        return self.in_proj(torch.cat([self.mask_embed, self.shared_state])[None])[0]

    def forward_block(
        self,
        tokens: Tensor,
        features: Tensor,
        anchor: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        kv: Tensor,
        rows: int | Tensor,
    ) -> Tensor:
        """States `[N, H]` of the entries of `tokens [n]` and `features [n, 4, H]`, and of N - n slots. The rest is as in a call."""
        slots = self.slot_entry().expand(len(positions) - len(tokens), -1)
        return self(torch.cat([self.embed_stream_entries(tokens, features), slots])[None], positions, mask, kv, rows)[0]

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor | None, kv: Tensor | None = None, rows: int | Tensor = 0
    ) -> Tensor:
        """The last layer's states `[B, N, H]` of entries `x [B, N, H]` at `positions [N]`. The rest is as in
        `GatedDecoderLayer.forward`.
        """
        rotary = self.rotary(positions)
        for index, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            x = layer(x, norm(x), rotary, mask, None if kv is None else kv[index], rows)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """`[..., V]` from states `[..., H]`, through the final norm and the head."""
        return self.apply_lm_head(F.rms_norm(x, (self.config.hidden,), self.final_norm, EPS))
