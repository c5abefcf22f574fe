"""Ranking: which tokens a drafter favours at a position, how likely the target is to take them, and which ones will be drawn."""

import numpy as np
import torch

from engine.forward.devices import widest_float_dtype
from engine.kernels.ranking_compiled import SHARPENED, SHORTLIST, compiled_top_tokens_scores_q
from engine.sampling import Sampling

Shortlist = tuple[np.ndarray, np.ndarray, np.ndarray]  # tokens int64, scores and q float64, each [n, width]
NO_LAW = "a row with NaN, with plus infinity, or with minus infinity for every token"
NO_NOISE = np.zeros(0, np.float32)


def shortlist_by_shared_gumbel(log_q: torch.Tensor, position: int, width: int, sampling: Sampling) -> Shortlist:
    """The `width` best tokens of each row of `log_q [n, V]` for this position, with their scores and draft probabilities.

    Greedy: ordered by q. The score is q squared, normalised over a shortlist, because a greedy target takes the favourite more often
    than q says. Sampled: ordered by log q / T plus the position's Gumbel noise. The target draws with the same noise, so wherever
    p = q it takes the favourite. The score is the softmax of those sums over the shortlist.
    """
    if not log_q.is_cpu:
        return shortlist_by_shared_gumbel_on_device(log_q, position, width, sampling)
    noise = None if sampling.greedy else sampling.noise.row(position, log_q.shape[-1]).cpu()
    return compiled_top_tokens_scores_q(
        (log_q if sampling.keeps_all_tokens else sampling.scale_and_filter_logits(log_q)).float().contiguous().numpy(),
        NO_NOISE if noise is None else noise.numpy(),
        np.float32(sampling.temperature if sampling.keeps_all_tokens and noise is not None else 1),
        width,
    )


def shortlist_by_shared_gumbel_on_device(
    log_q: torch.Tensor, position: int, width: int, sampling: Sampling
) -> Shortlist:
    """`shortlist_by_shared_gumbel` on a device; the host waits once. Raises `ValueError` for NaN, which rows that are no
    distributions give.
    """
    noise = None if sampling.greedy else sampling.noise.row(position, log_q.shape[-1]).to(log_q.device)
    found = top_tokens_scores_and_q(sampling.scale_and_filter_logits(log_q), noise, width)
    tokens, scores, q = np.split(
        torch.cat([each.to(widest_float_dtype(log_q.device)) for each in found], -1).cpu().numpy(), 3, -1
    )
    if np.isnan(scores).any() or np.isnan(q).any():
        raise ValueError(f"The drafter answered {NO_LAW}. Its `log_q` must return log-probabilities.")
    return tokens.astype(np.int64), scores.astype(np.float64, copy=False), q.astype(np.float64, copy=False)


def top_tokens_scores_and_q(
    scaled_log_q: torch.Tensor, noise: torch.Tensor | None, width: int, widths_by_row: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`shortlist_by_shared_gumbel` as tensors `[n, width]`; waits for no device.

    `scaled_log_q [n, V]` is log q / T, or log q when greedy. `noise` is the position's, `[V]` or `[n, V]`, None when greedy.
    `widths_by_row [n]` are the rows' own, where they differ. Of a row so many guesses count.
    """
    count = min(max(width, SHORTLIST), scaled_log_q.shape[-1])
    log_q = scaled_log_q if noise is None else scaled_log_q.log_softmax(-1)
    keys, tokens = (log_q if noise is None else log_q + noise).topk(count)
    if widths_by_row is not None:
        beyond = torch.arange(count, device=keys.device) >= widths_by_row.clamp(min=SHORTLIST)[:, None]
        keys = keys.masked_fill(beyond, -torch.inf)
    scores = (keys if noise is not None else keys * SHARPENED).softmax(-1)
    return tokens[:, :width], scores[:, :width], log_q.gather(-1, tokens[:, :width]).exp()
