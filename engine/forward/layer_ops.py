"""LayerOps: what a lean forward does between its products, as tensor operations: norms, rotation, attention, gates. Knows rows and one
model's sizes; knows no weights of products."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engine.forward.cache import KVCache, additive


@dataclass(frozen=True)
class Sizes:
    """Of a model's attention and norms. `norms` are the RMS norms' weights times sqrt(H) in the order of the forward, two a layer and
    the last one; `head_norms` a layer's norms of queries and keys `[heads + kv_heads, head_dim]` times sqrt(head_dim), or None;
    `turns` cosines and sines by position `[context, 2, head_dim / 2]`; `least` and `head_least` sqrt(n eps) of the two kinds."""

    heads: int
    kv_heads: int
    head_dim: int
    norms: list[torch.Tensor]
    head_norms: list[torch.Tensor | None]
    turns: torch.Tensor
    least: float
    head_least: float


def normed(x: torch.Tensor, weight: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """RMS norm of `x [..., H]` in four cheap operations."""
    return x * weight / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), least)


class LayerOps:
    def __init__(self, sizes: Sizes, dtype: torch.dtype):
        self.sizes, self.dtype = sizes, dtype
        self.least, self.head_least = torch.tensor(sizes.least), torch.tensor(sizes.head_least)
        cos, sin = sizes.turns.unbind(1)  # a head times cosines, and its halves swapped times sines with the sign
        self.turns = torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], 1)[:, :, None].to(dtype)

    def where(self, cache: KVCache, positions: torch.Tensor, visible: torch.Tensor | None):
        """What every layer of one forward needs."""
        mask = None if visible is None else additive(visible, cache.rows + len(positions), self.dtype)
        return cache, mask, *self.turns.index_select(0, positions).unbind(1)

    def first(self, x: torch.Tensor) -> torch.Tensor:
        """The first norm of the embeddings `x [N, H]`."""
        return normed(x, self.sizes.norms[0], self.least)

    def attended(self, qkv: torch.Tensor, layer: int, where) -> torch.Tensor:
        """Attention `[N, heads * head_dim]`, after keys and values were written behind the cache's committed rows."""
        (cache, mask, cos, sin), sizes = where, self.sizes
        turned, width = sizes.heads + sizes.kv_heads, sizes.head_dim
        start, end = cache.rows, cache.rows + len(qkv)
        keys, values = cache.layers[layer]
        rotated, new_values = qkv.view(1, len(qkv), -1, width).split((turned, sizes.kv_heads), 2)
        if (head_norms := sizes.head_norms[layer]) is not None:
            rotated = normed(rotated, head_norms, self.head_least)
        rotated = torch.addcmul(rotated * cos, rotated.roll(width // 2, -1), sin)
        queries, new_keys = rotated.split((sizes.heads, sizes.kv_heads), 2)
        keys[:, :, start:end] = new_keys.transpose(1, 2)
        values[:, :, start:end] = new_values.transpose(1, 2)
        return attend(queries, keys[:, :, :end], values[:, :, :end], mask)

    def added(self, x: torch.Tensor, more: torch.Tensor, norm: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum, and its norm by the norm of that number."""
        x = x + more
        return x, normed(x, self.sizes.norms[norm], self.least)

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate).mul_(up)

    def features(self, tapped: list[torch.Tensor], last: torch.Tensor) -> torch.Tensor:
        """Of these hidden states and of what the head reads, each `[N, H]`: `[N, taps + 1, H]`."""
        return normalised(torch.stack([*tapped, last], 1))


def normalised(hidden: torch.Tensor) -> torch.Tensor:
    """Features from hidden states `[..., taps + 1, H]`: all but the last, which is normed already, over their root mean square."""
    hidden = hidden.float()
    scale = hidden.shape[-1] ** 0.5 / torch.linalg.vector_norm(hidden, dim=-1, keepdim=True).clamp_(min=1e-6)
    scale[..., -1, :] = 1
    return hidden * scale


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Attention `[N, heads * head_dim]` of `queries [1, N, heads, head_dim]` over `keys` and `values` `[1, kv_heads, M, head_dim]`."""
    _, count, heads, _ = queries.shape
    twice = count == 1 and queries.dtype == torch.bfloat16  # one row of bfloat16 takes three times as long as two
    if twice:
        queries = queries.expand(-1, 2, -1, -1)
    found = F.scaled_dot_product_attention(
        queries.transpose(1, 2), keys, values, attn_mask=mask, enable_gqa=heads != keys.shape[1]
    ).transpose(1, 2)
    return (found[:, :1] if twice else found).reshape(count, -1)
