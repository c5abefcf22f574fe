"""EAGLE's net (Li et al. 2024-2025; features and training as in EAGLE-3): one layer that goes on from the target's hidden states.

An entry pairs a token with the feature behind the token before it. The feature is three fused layers of the target for text that the
target has read, and the drafter's own output for drafted tokens. The net has its own head over the most frequent tokens: its id `i`
is the target's `i + offsets[i]`.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from engine.forward.cache import KVCache, additive
from engine.nets.eagle_compiled import CompiledEagle, CompiledSession
from engine.nets.layer import FEATURES, Layer, Linear, Net, NetConfig, RMSNorm, Rotary


class Eagle(Net):
    reads = True  # the target's features, as `engine.forward.session.Session` takes them
    window = 256  # rows attended to, as many as a training row had, so that drafting does not slow down as a text grows

    def __init__(self, config: NetConfig, embedding: torch.Tensor, head: torch.Tensor):
        """`config.own_vocab` is the size of the drafter's own vocabulary."""
        super().__init__(config, embedding, head)
        hidden, size = config.hidden, config.own_vocab
        self.fuse = Linear(FEATURES * hidden, hidden)
        self.norm_token, self.norm_feature, self.norm_out = RMSNorm(hidden), RMSNorm(hidden), RMSNorm(hidden)
        self.layer = Layer(hidden, config.heads, config.mlp, inputs=2 * hidden)
        self.rotary = Rotary(hidden // config.heads, config.rope_theta)
        self.unembed = nn.Parameter(self.head[:size].clone())
        self.register_buffer("offsets", torch.zeros(size, dtype=torch.long))

    def choose_vocabulary(self, ids: torch.Tensor) -> None:
        """Make the drafter's vocabulary these target ids `[own_vocab]`, in ascending order."""
        ids = ids.to(self.offsets.device).sort().values
        self.offsets.copy_(ids - torch.arange(len(ids), device=ids.device))
        self.unembed.data.copy_(self.head[ids])

    @property
    def vocabulary(self) -> torch.Tensor:
        """The target's ids `[own_vocab]` of the drafter's own tokens."""
        return self.offsets + torch.arange(len(self.offsets), device=self.offsets.device)

    def fused(self, features: torch.Tensor) -> torch.Tensor:
        """`[..., H]` from the target's features `[..., 4, H]`."""
        return self.fuse(features[..., :FEATURES, :].flatten(-2))

    def entering(self, tokens: torch.Tensor, feature: torch.Tensor) -> torch.Tensor:
        """Attention's inputs `[..., 2H]` for `tokens [...]` and the features `[..., H]` behind the token before each."""
        return torch.cat([self.norm_token(F.embedding(tokens, self.embedding)), self.norm_feature(feature)], -1)

    def logits(self, out: torch.Tensor) -> torch.Tensor:
        """`[..., own_vocab]` from the layer's output `[..., H]`."""
        return F.linear(self.norm_out(out), self.unembed)

    def log_q(self, out: torch.Tensor) -> torch.Tensor:
        """Log-probabilities `[n, V]` over the target's vocabulary from the layer's output `[n, H]`; -inf for tokens it lacks."""
        own = self.logits(out).log_softmax(-1)
        return own.new_full((len(own), self.config.vocab), -torch.inf).index_copy_(1, self.vocabulary, own)

    def step(self, tokens, feature, positions, mask, kv, rows) -> torch.Tensor:
        """The layer's output `[N, H]` for N entries, whose rows are written behind the first `rows` of `kv`. `mask` is additive."""
        out = self.layer(
            feature[None], self.entering(tokens, feature)[None], self.rotary(positions[None]), mask, kv, rows
        )
        return out[0]

    def packed(self) -> CompiledEagle:
        return CompiledEagle(self)

    def open(self, capacity: int) -> "EagleSession | CompiledSession":
        """A session with room for so many rows."""
        return self.compiled.open(capacity) if self.compiled else EagleSession(self, capacity)

    def rollout(self, ids: torch.Tensor, features: torch.Tensor, steps: int) -> list[torch.Tensor]:
        """For training: the layer's outputs `[B, T - 1, H]` of every rollout step, from `ids [B, T]` and `features [B, T, 4, H]`.

        Output t of step s predicts the token behind place t + 1. It reads true features up to place t - s and the net's own outputs
        after that, as when drafting s levels deep. Outputs before place s have no such past, so a loss must leave them out.
        """
        tokens, feature = ids[:, 1:], self.fused(features[:, :-1])
        count = tokens.shape[1]
        rotary = self.rotary(torch.arange(1, count + 1, device=ids.device))
        outs, chain = [], []  # keys and values of the steps so far
        scale = (self.config.hidden // self.config.heads) ** -0.5
        allowed = torch.ones(count, count, dtype=torch.bool, device=ids.device).tril()
        for step in range(steps):
            queries, keys, values = self.layer.project(self.entering(tokens, feature), rotary)
            chain.append((keys, values))
            scores = (queries @ chain[0][0].mT * scale).masked_fill(~allowed.tril(-step), -torch.inf)
            own = [  # at step s the entry of step i stands s - i places back
                (queries * delayed(key, step - i)).sum(-1, keepdim=True) * scale
                for i, (key, _) in enumerate(chain[1:], 1)
            ]
            weights = torch.cat([scores, *own], -1).softmax(-1)
            attended = weights[..., :count] @ chain[0][1]
            for i, (_, value) in enumerate(chain[1:], 1):
                attended = attended + weights[..., count + i - 1, None] * delayed(value, step - i)
            out = self.layer.finish(feature, attended)
            outs.append(out)
            feature = F.pad(out, (0, 0, 1, 0))[:, :-1]  # the next step reads this output one place later
        return outs


class EagleSession:
    """One lane's rows, and the outputs of a round's entries.

    An entry of the text goes on from the target's features, and a drafted node's entry from the output of the node above.
    """

    net: Any  # whatever answers `fused`, `step` and `log_q`

    def __init__(self, net: Eagle, capacity: int):
        config, self.net, self.device = net.config, net, net.embedding.device
        self.cache = KVCache(1, config.heads, config.hidden // config.heads, capacity, torch.float32, self.device)

    def root(
        self, tokens: list[int], features: torch.Tensor, chosen: list[int], position: int, start: int
    ) -> torch.Tensor:
        """Log-probabilities `[1, V]` behind the last of N entries, the first of which stands at `position`.

        The entries read the `chosen` N of the target's features `[M, 4, H]`. Here and in `level` their rows are written behind those
        that the cache has, and they see no row before `start`. Raises `ValueError` when the cache is full.
        """
        count = len(tokens)
        causal = torch.ones(count, count, dtype=torch.bool).tril()
        positions = list(range(position, position + count))
        self.outs = self.step(tokens, self.net.fused(features[chosen]), positions, causal, start)[-1:]
        return self.net.log_q(self.outs)

    def level(
        self, tokens: list[int], above: list[int], positions: list[int], visible: torch.Tensor, start: int
    ) -> torch.Tensor:
        """Log-probabilities `[n, V]` behind n nodes. Raises `ValueError` when the cache is full.

        `above` numbers the outputs of this round that they go on from; the root's is 0. `visible` bool `[n, M]` says which of the last
        M rows each may see.
        """
        out = self.step(tokens, self.outs[above], positions, visible, start)
        self.outs = torch.cat([self.outs, out])
        return self.net.log_q(out)

    def step(self, tokens, feature, positions, visible, start) -> torch.Tensor:
        self.cache.room_for(len(tokens))
        rows, self.cache.rows = self.cache.rows - start, self.cache.rows + len(tokens)
        tokens, positions = torch.tensor([tokens, positions], device=self.device).unbind()
        mask = self.masked(visible, positions, start, self.cache.rows)
        return self.net.step(tokens, feature, positions, mask, self.cache.kv[0, :, :, start:], rows)

    def masked(self, visible: torch.Tensor, positions: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """The additive mask `[N, end - start]` of the entries at `positions [N]`, whose rows are the last ones before `end`."""
        return additive(visible, end - start).to(self.device)


def delayed(rows: torch.Tensor, places: int) -> torch.Tensor:
    """`rows [B, heads, T, head_dim]`, each moved `places` places later, with zeros in front."""
    return F.pad(rows, (0, 0, places, 0))[:, :, : rows.shape[2]]
