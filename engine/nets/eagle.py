"""EAGLE drafter (Li et al. 2024-2025; features and training as in EAGLE-3): one layer that goes on from the target's hidden states.

An entry pairs a token with the feature behind the token before it: three fused layers of the target where the target has been, the
drafter's own output where it has not. It has its own head over the most frequent tokens; `offsets` maps its ids to the target's,
`id = i + offsets[i]`.
"""

import torch
import torch.nn.functional as F
from torch import nn

from engine.nets.layer import FEATURES, Layer, Linear, Net, NetConfig, RMSNorm, Rotary, product, served, unit
from engine.products import Int8

UNSAID = -1e4  # a logit that no softmax notices


class Eagle(Net):
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
        self.served: ServedEagle | None = None

    def choose_vocabulary(self, ids: torch.Tensor) -> None:
        """Make the drafter's vocabulary these target ids `[own_vocab]`, in ascending order."""
        ids = ids.to(self.offsets.device).sort().values
        self.offsets.copy_(ids - torch.arange(len(ids), device=ids.device))
        self.unembed.data.copy_(self.head[ids])

    @property
    def vocabulary(self) -> torch.Tensor:
        """The target's id of each of the drafter's own, `[own_vocab]`."""
        return self.offsets + torch.arange(len(self.offsets), device=self.offsets.device)

    def fused(self, features: torch.Tensor) -> torch.Tensor:
        """`[..., H]` from the target's features `[..., 4, H]`."""
        return self.fuse(features[..., :FEATURES, :].flatten(-2))

    def entering(self, tokens: torch.Tensor, feature: torch.Tensor) -> torch.Tensor:
        """What enters attention, `[..., 2H]`, for `tokens [...]` and the feature `[..., H]` behind the token before each."""
        return torch.cat([self.norm_token(F.embedding(tokens, self.embedding)), self.norm_feature(feature)], -1)

    def logits(self, out: torch.Tensor) -> torch.Tensor:
        """`[..., own_vocab]` from the layer's output `[..., H]`."""
        return product(self.norm_out(out), self.unembed, self.packed_head)

    def log_q(self, out: torch.Tensor) -> torch.Tensor:
        """Log-probabilities `[n, V]` over the target's vocabulary from the layer's output `[n, H]`; next to nothing, or -inf, for what
        it cannot say."""
        if self.served:
            return self.served.logits(out).log_softmax(-1)
        own = self.logits(out).log_softmax(-1)
        return own.new_full((len(own), self.config.vocab), -torch.inf).index_copy_(1, self.vocabulary, own)

    def reach(self, places: int) -> None:
        """Be ready for positions below `places`, before the first step."""
        if self.served:
            self.served.reach(places)

    def step(self, tokens, feature, positions, mask, kv, rows) -> torch.Tensor:
        """The layer's output `[N, H]` of N entries, whose rows are written behind the first `rows` of `kv`. `mask` is additive."""
        if self.served:
            return self.served.step(tokens, feature, positions, mask, kv, rows)
        out = self.layer(
            feature[None], self.entering(tokens, feature)[None], self.rotary(positions[None]), mask, kv, rows
        )
        return out[0]

    def last(self, tokens, feature, positions, kv, rows) -> torch.Tensor:
        """The layer's output `[1, H]` of the last of N entries in a row; the rows of all are written, as in `step`."""
        if self.served:
            return self.served.step(tokens, feature, positions, None, kv, rows, last_only=True)
        count = len(tokens)
        mask = torch.ones(count, rows + count, dtype=torch.bool, device=tokens.device).tril(rows)
        return self.step(tokens, feature, positions, mask, kv, rows)[-1:]

    def pack(self) -> "Eagle":
        """As `Net.pack`, for a whole step; of the matrices outside it there is one."""
        try:
            self.served = ServedEagle(self) if self.embedding.device.type == "cpu" else None
        except RuntimeError:
            self.served = None
        if self.served is None:
            return super().pack()
        self.fuse.packed = served(self.fuse.weight)
        return self

    def rollout(self, ids: torch.Tensor, features: torch.Tensor, steps: int) -> list[torch.Tensor]:
        """Training: the layer's outputs `[B, T - 1, H]` of every rollout step, from `ids [B, T]` and `features [B, T, 4, H]`.

        Output t of step s speaks about the token behind place t + 1, from true features up to place t - s and from its own outputs
        after that, which is what drafting s levels deep looks like. Outputs before place s have no such past: do not count them.
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
            own = [  # at step s the entry made i steps into the chain stands s - i places back
                (queries * delayed(key, step - i)).sum(-1, keepdim=True) * scale
                for i, (key, _) in enumerate(chain[1:], 1)
            ]
            weights = torch.cat([scores, *own], -1).softmax(-1)
            attended = weights[..., :count] @ chain[0][1]
            for i, (_, value) in enumerate(chain[1:], 1):
                attended = attended + weights[..., count + i - 1, None] * delayed(value, step - i)
            out = self.layer.finish(feature, attended)
            outs.append(out)
            feature = F.pad(out, (0, 0, 1, 0))[:, :-1]  # the next step's feature is this one's output, one place later
        return outs


class ServedEagle:
    """An `Eagle`'s step for a CPU: eight-bit matrices with the norms' weights folded into them, and as few operations as will do. On
    two cores a level's small operations take longer than its matrices.

    The two coordinates that a rotation turns stand side by side here, so that it is one product of complex numbers; queries and keys
    are reordered alike, which no score notices.
    """

    def __init__(self, net: Eagle):
        """Raises `RuntimeError` where there are no eight-bit products."""
        config, layer, root = net.config, net.layer, net.config.hidden**0.5
        self.heads, self.mlp, self.least = config.heads, config.mlp, net.norm_out.least
        self.inverse = net.rotary.inverse[: len(net.rotary.inverse) // 2]
        self.turns = torch.zeros(0, 1, len(self.inverse), dtype=torch.complex64)
        self.token = unit(net.embedding, self.least)  # as large as the feature beside it: one scale rounds both
        columns = torch.cat([net.norm_token.weight, net.norm_feature.weight]) * root
        halves = (layer.qkv.weight * columns).unflatten(0, (3, config.heads, 2, -1))
        pairs = halves[:2].transpose(2, 3).flatten(0, 3)
        self.qkv = Int8(torch.cat([pairs, halves[2].flatten(0, 2)]))
        self.out = Int8(layer.out.weight)
        self.gate_up = Int8(layer.gate_up.weight * layer.norm.weight * root)
        self.down = Int8(layer.down.weight)
        said = torch.zeros(config.vocab, config.hidden).index_copy_(0, net.vocabulary, net.unembed.detach())
        unsaid = torch.full((config.vocab,), UNSAID).index_fill_(0, net.vocabulary, 0.0)
        self.head = Int8(said * net.norm_out.weight.detach() * root, unsaid)

    def reach(self, places: int) -> None:
        """Be ready for positions below `places`."""
        if places > len(self.turns):
            angles = torch.arange(places)[:, None, None].float() * self.inverse
            self.turns = torch.polar(torch.ones_like(angles), angles)

    def step(self, tokens, feature, positions, mask, kv, rows, last_only: bool = False) -> torch.Tensor:
        """As `Eagle.step`, or as `Eagle.last`: this is the only layer, so entries before the last are needed for their rows alone."""
        count, heads = len(tokens), self.heads
        entering = torch.cat([self.token.index_select(0, tokens), unit(feature, self.least)], -1)
        qkv = self.qkv(entering).view(count, 3, heads, -1)
        rotating = torch.view_as_complex(qkv.view(count, 3 * heads, -1, 2))[:, : 2 * heads]
        rotating.mul_(self.turns.index_select(0, positions))
        kv[:, :, rows : rows + count] = qkv[:, 1:].permute(1, 2, 0, 3)
        queries = qkv[:, 0]
        if last_only:
            queries, feature = queries[-1:], feature[-1:]
        keys, values = kv[:, None, :, : rows + count].unbind()
        attended = F.scaled_dot_product_attention(queries.transpose(0, 1)[None], keys, values, attn_mask=mask)
        x = self.out(attended[0].transpose(0, 1).flatten(1)).add_(feature)
        gate, up = self.gate_up(unit(x, self.least)).split(self.mlp, -1)
        return x.add_(self.down(F.silu(gate).mul_(up)))

    def logits(self, out: torch.Tensor) -> torch.Tensor:
        """`[n, V]` over the target's vocabulary, `UNSAID` added to what the net cannot say."""
        return self.head(unit(out, self.least))


def delayed(rows: torch.Tensor, places: int) -> torch.Tensor:
    """`rows [B, heads, T, head_dim]` moved `places` further back, zeros in front."""
    return F.pad(rows, (0, 0, places, 0))[:, :, : rows.shape[2]]
