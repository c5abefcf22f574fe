"""LayerOps: norms, rotation, attention and gates of our own forward, as tensors."""

import torch
import torch.nn.functional as F
from transformers import PreTrainedConfig

from engine.forward.cache import KVCache, additive
from engine.forward.sizes import head_dim_of


def normed(x: torch.Tensor, weight: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """RMS norm of `x [..., H]` in four cheap operations."""
    return x * weight / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), least)


class LayerOps:
    def __init__(
        self,
        config: PreTrainedConfig,
        norms: list[torch.Tensor],
        head_norms: list[torch.Tensor | None],
        turns: torch.Tensor,
    ):
        """`norms` are the RMS norms' weights `[H]`, in the order of the forward: two a layer, then the last one.

        `head_norms` holds for each layer what `engine.forward.llama.head_norm_of` gives. `turns [context, 2, head_dim / 2]` are cosines
        and sines by position.
        """
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = head_dim_of(config)
        self.norms, self.head_norms = [each.detach() * config.hidden_size**0.5 for each in norms], head_norms
        sizes, self.dtype = (config.hidden_size, self.head_dim), norms[0].dtype
        self.least, self.head_least = (torch.tensor((size * config.rms_norm_eps) ** 0.5) for size in sizes)
        cos, sin = turns.unbind(1)  # the sines carry the sign, so a rotation is head * cos + swapped halves * sin
        self.turns = torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], 1)[:, :, None].to(self.dtype)

    def where(self, cache: KVCache, positions: torch.Tensor, visible: torch.Tensor | None):
        """What the layers of one forward share: the cache, the additive mask and the rotations of the `positions`."""
        mask = None if visible is None else additive(visible, cache.rows + len(positions), self.dtype)
        return cache, mask, *self.turns.index_select(0, positions).unbind(1)

    def first(self, x: torch.Tensor) -> torch.Tensor:
        """The first norm of the embeddings `x [N, H]`."""
        return normed(x, self.norms[0], self.least)

    def attended(self, qkv: torch.Tensor, layer: int, where) -> torch.Tensor:
        """Attention `[N, heads * head_dim]` of `qkv`; keys and values are first written behind the cache's committed rows."""
        (cache, mask, cos, sin), width = where, self.head_dim
        start, end = cache.rows, cache.rows + len(qkv)
        keys, values = cache.layers[layer]
        rotated, new_values = qkv.view(1, len(qkv), -1, width).split((self.heads + self.kv_heads, self.kv_heads), 2)
        if (head_norms := self.head_norms[layer]) is not None:
            rotated = normed(rotated, head_norms, self.head_least)
        rotated = torch.addcmul(rotated * cos, rotated.roll(width // 2, -1), sin)
        queries, new_keys = rotated.split((self.heads, self.kv_heads), 2)
        keys[:, :, start:end] = new_keys.transpose(1, 2)
        values[:, :, start:end] = new_values.transpose(1, 2)
        return attend(queries, keys[:, :, :end], values[:, :, :end], mask)

    def added(self, x: torch.Tensor, more: torch.Tensor, norm: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of `x` and `more`, and its RMS norm with the weight `norms[norm]`, each `[N, H]`."""
        x = x + more
        return x, normed(x, self.norms[norm], self.least)

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate).mul_(up)


def features_of(tapped: list[torch.Tensor], last: torch.Tensor, taps: tuple[int, ...]) -> torch.Tensor:
    """Features `[N, taps + 1, H]` from the taps' hidden states and from what the head reads, `last`, each `[N, H]`.

    Those of negative taps stay as they are. All taps have the same sign.
    """
    hidden = torch.stack([*tapped, last], 1)
    return normalised(hidden) if taps[0] > 0 else hidden.float()


def normalised(hidden: torch.Tensor) -> torch.Tensor:
    """Features from hidden states `[..., taps + 1, H]`, each divided by its root mean square; the last is normed already and stays."""
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


def fitted(logits: torch.Tensor, vocab: int) -> torch.Tensor:
    """Log-probabilities `[n, vocab]` of the target's tokens from a draft's `logits`, which may be padded to another size."""
    width = logits.shape[-1]
    if width != vocab:
        logits = F.pad(logits[:, :vocab], (0, max(0, vocab - width)), value=-torch.inf)
    return logits.float().log_softmax(-1)


def over_all(own: torch.Tensor, vocabulary: torch.Tensor, vocab: int) -> torch.Tensor:
    """Log-probabilities `[n, vocab]` of the target's tokens, from those of a net's `own [n, own_vocab]`; -inf for all others."""
    return own.new_full((len(own), vocab), -torch.inf).index_copy_(1, vocabulary, own)
