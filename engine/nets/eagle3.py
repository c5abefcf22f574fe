"""EAGLE-3's net as others publish it (Li et al. 2025): one Llama layer whose queries, keys and values read a token and a feature.

A feature is fused from layers of the target for text that the target has read, and is the net's own output before the final norm
for drafted tokens; EAGLE-3.1 takes it behind that norm. It differs from `engine.nets.eagle`: features are as the target made them, or
normed with weights, and the layer may have fewer key heads than heads.
"""

import sys
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from engine.forward.cache import KVCache
from engine.nets.eagle import EagleSession
from engine.nets.layer import Linear, Net, NetConfig, Rotary


@dataclass(frozen=True)
class Eagle3Sizes:
    """What a published config says. `target_hidden` is the target's hidden size, and `vocab` its vocabulary.

    `layers` are the target's layers that are read, by how many layers are behind each. `inverse` holds the rotary embedding's
    `head_dim / 2` inverse frequencies, and `attention_scaling` is the factor of its cosines and sines. `sliding` is the number of
    positions that a token attends to, 0 for all. `normed_residual` says whether the residual stream begins with the normed feature.

    `normed_input` says whether all layers' features together pass one norm before they are fused, `normed_taps` whether each passes
    one of its own, and `normed_output` whether the final norm's output is what drafted tokens go on from.
    """

    hidden: int
    target_hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    own_vocab: int
    eps: float
    layers: tuple[int, ...]
    inverse: torch.Tensor = field(compare=False)
    attention_scaling: float = 1.0
    sliding: int = 0
    normed_residual: bool = False
    head_norms: bool = False
    normed_input: bool = False
    normed_taps: bool = False
    normed_output: bool = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter, by its name in `Eagle3`."""
        width, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        found: dict[str, tuple[int, ...]] = {
            "fuse.weight": (self.hidden, len(self.layers) * self.target_hidden),
            "norm_token.weight": (self.hidden,),
            "norm_feature.weight": (self.hidden,),
            "norm_mlp.weight": (self.hidden,),
            "norm_out.weight": (self.hidden,),
            "q.weight": (width, 2 * self.hidden),
            "k.weight": (keys, 2 * self.hidden),
            "v.weight": (keys, 2 * self.hidden),
            "o.weight": (self.hidden, width),
            "gate.weight": (self.mlp, self.hidden),
            "up.weight": (self.mlp, self.hidden),
            "down.weight": (self.hidden, self.mlp),
            "unembed.weight": (self.own_vocab, self.hidden),
        }
        if self.head_norms:
            found["norm_q.weight"] = found["norm_k.weight"] = (self.head_dim,)
        if self.normed_input:
            found["norm_input.weight"] = (len(self.layers) * self.target_hidden,)
        if self.normed_taps:
            found |= {f"norm_tap_{tap}.weight": (self.target_hidden,) for tap in range(len(self.layers))}
        return found


class Norm(nn.Module):
    """An RMS norm in the order of operations that the published code has."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


class Eagle3(Net):
    window = sys.maxsize  # rows attended to; `Eagle3Session` masks what a sliding window hides

    def __init__(self, sizes: Eagle3Sizes, embedding: torch.Tensor, head: torch.Tensor, vocabulary: torch.Tensor):
        """`embedding [V, H]` is the drafter's own or the target's; `vocabulary [own_vocab]` holds the target's ids of its tokens."""
        config = NetConfig("eagle3", sizes.hidden, sizes.heads, sizes.mlp, 1, 0, sizes.vocab, own_vocab=sizes.own_vocab)
        super().__init__(config, embedding, head)
        self.sizes, self.reads = sizes, sizes.layers
        for name, shape in sizes.shapes.items():
            module = name.removesuffix(".weight")
            made = Norm(shape[0], sizes.eps) if len(shape) == 1 else Linear(shape[1], shape[0])
            self.add_module(module, made)
        self.rotary = Rotary(sizes.head_dim, 1.0)
        self.rotary.inverse.copy_(torch.cat([sizes.inverse, sizes.inverse]))
        self.register_buffer("vocabulary", vocabulary, persistent=False)

    def packed(self) -> None:
        """There are no compiled loops of this net: it drafts with tensors on every device."""

    def fused(self, features: torch.Tensor) -> torch.Tensor:
        """`[..., H]` from the features `[..., layers + 1, H_t]`, of which the last is not read."""
        read = features[..., : len(self.sizes.layers), :]
        if self.sizes.normed_taps:
            read = torch.stack([getattr(self, f"norm_tap_{tap}")(x) for tap, x in enumerate(read.unbind(-2))], -2)
        read = read.flatten(-2)
        return self.fuse(self.norm_input(read) if self.sizes.normed_input else read)

    def log_q(self, out: torch.Tensor) -> torch.Tensor:
        """Log-probabilities `[n, V]` over the target's vocabulary from the layer's output `[n, H]`; -inf for tokens it lacks."""
        own = self.unembed(out if self.sizes.normed_output else self.norm_out(out)).log_softmax(-1)
        return own.new_full((len(own), self.config.vocab), -torch.inf).index_copy_(1, self.vocabulary, own)

    def step(self, tokens, feature, positions, mask, kv, rows) -> torch.Tensor:
        """The layer's output `[N, H]` for N entries, whose rows are written behind the first `rows` of `kv`.

        `tokens [N]`, `feature [N, H]` and `positions [N]` are the entries'; `mask [N, rows + N]` is additive.
        """
        sizes, end = self.sizes, rows + len(tokens)
        normed = self.norm_feature(feature)
        entering = torch.cat([self.norm_token(F.embedding(tokens, self.embedding)), normed], -1)
        queries, keys, values = (
            matrix(entering).view(len(tokens), -1, sizes.head_dim) for matrix in (self.q, self.k, self.v)
        )
        if sizes.head_norms:
            queries, keys = self.norm_q(queries), self.norm_k(keys)
        cosines, sines = (each * sizes.attention_scaling for each in self.rotary(positions))
        queries, keys = (each * cosines + each.roll(sizes.head_dim // 2, -1) * sines for each in (queries, keys))
        kv[0, :, rows:end], kv[1, :, rows:end] = keys.transpose(0, 1), values.transpose(0, 1)
        attended = F.scaled_dot_product_attention(
            queries.transpose(0, 1)[None], kv[None, 0, :, :end], kv[None, 1, :, :end], attn_mask=mask, enable_gqa=True
        )
        x = (normed if sizes.normed_residual else feature) + self.o(attended[0].transpose(0, 1).flatten(1))
        within = self.norm_mlp(x)
        x = x + self.down(F.silu(self.gate(within)) * self.up(within))
        return self.norm_out(x) if sizes.normed_output else x

    def open(self, capacity: int) -> "Eagle3Session":
        """A session with room for so many rows."""
        return Eagle3Session(self, capacity)


class Eagle3Session(EagleSession):
    """As `EagleSession`, for grouped key heads and with a sliding window where the config has one."""

    def __init__(self, net: Eagle3, capacity: int):
        sizes, self.net, self.device = net.sizes, net, net.embedding.device
        self.cache = KVCache(1, sizes.kv_heads, sizes.head_dim, capacity, torch.float32, self.device)
        self.places = torch.zeros(capacity, dtype=torch.long, device=self.device)  # the position of every row

    def masked(self, visible: torch.Tensor, positions: torch.Tensor, start: int, end: int) -> torch.Tensor:
        mask = super().masked(visible, positions, start, end)
        self.places[end - len(positions) : end] = positions
        if self.net.sizes.sliding:
            away = positions[:, None] - self.places[start:end]
            mask = mask.masked_fill(away >= self.net.sizes.sliding, torch.finfo(mask.dtype).min)
        return mask
