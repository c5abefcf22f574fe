"""LayerOps: norms, attention and features as tensors, for our own forward and for nets."""

import torch
import torch.nn.functional as F
from torch import Tensor

TappedLayers = tuple[
    int, ...
]  # layers, counted from 1, whose outputs are features; those of negative ones stay as they are
FeatureLayers = bool | TappedLayers  # what a session is asked for, see `engine.forward.session.Session`
LogitsAndFeatures = tuple[
    Tensor, Tensor | None
]  # logits `[N, V]` and features `[N, taps + 1, H]` of N rows, None without taps


def normalise_rms(x: Tensor, weight: Tensor, norm_floor: Tensor) -> Tensor:
    """RMS norm of `x [..., H]` in four cheap operations."""
    return x * weight / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), norm_floor)


def stack_features_of_taps(tapped: list[Tensor], last: Tensor, taps: TappedLayers) -> Tensor:
    """Features `[N, taps + 1, H]` of the taps' states and `last`, the head's input, each `[N, H]`. Negative taps stay as they are."""
    hidden = torch.stack([*tapped, last], -2)
    return normalise_features(hidden) if taps[0] > 0 else hidden.float()


def normalise_features(hidden: Tensor) -> Tensor:
    """Features from hidden states `[..., taps + 1, H]`, each divided by its root mean square; the last is normed already and stays."""
    hidden = hidden.float()
    scale = hidden.shape[-1] ** 0.5 / torch.linalg.vector_norm(hidden, dim=-1, keepdim=True).clamp_(min=1e-6)
    scale[..., -1, :] = 1
    return hidden * scale


def attend_with_mask(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention `[N, heads * head_dim]` of `queries [1, N, heads, head_dim]` over `keys` and `values` `[1, kv_heads, M, head_dim]`."""
    _, count, heads, _ = queries.shape
    twice = count == 1 and queries.dtype == torch.bfloat16  # one row of bfloat16 takes three times as long as two
    if twice:
        queries = queries.expand(-1, 2, -1, -1)
    found = F.scaled_dot_product_attention(
        queries.transpose(1, 2), keys, values, attn_mask=mask, enable_gqa=heads != keys.shape[1]
    ).transpose(1, 2)
    return (found[:, :1] if twice else found).reshape(count, -1)


def log_q_of_padded_logits(logits: Tensor, vocab: int) -> Tensor:
    """Log-probabilities `[n, vocab]` of the target's tokens from a draft's `logits`, which may be padded to another size."""
    width = logits.shape[-1]
    if width != vocab:
        logits = F.pad(logits[:, :vocab], (0, max(0, vocab - width)), value=-torch.inf)
    return logits.float().log_softmax(-1)


def expand_log_q_to_full_vocab(draft_log_q: Tensor, target_ids: Tensor, vocab_size: int) -> Tensor:
    """Log-probabilities `[n, vocab_size]` of the target's tokens, from those of a net's `draft_log_q [n, own_vocab]`; -inf for all
    others.
    """
    return draft_log_q.new_full((len(draft_log_q), vocab_size), -torch.inf).index_copy_(1, target_ids, draft_log_q)
