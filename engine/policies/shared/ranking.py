"""Ranking: which tokens a drafter favours at a position, how likely the target is to take them, and which ones will be drawn."""

import numpy as np
import torch

from engine.forward.devices import widest
from engine.kernels.expansion import BINS, OTHER, TRUST
from engine.kernels.ranking_compiled import SHARPENED, SHORTLIST, ranked_on_cpu
from engine.sampling import Sampling

Shortlist = tuple[np.ndarray, np.ndarray, np.ndarray]  # tokens int64, scores and q float64, each [n, width]
NO_LAW = "a row with NaN, with plus infinity, or with minus infinity for every token"
NO_NOISE = np.zeros(0, np.float32)


def shortlist(log_q: torch.Tensor, position: int, width: int, sampling: Sampling) -> Shortlist:
    """The `width` best tokens of each row of `log_q [n, V]` for this position, with their scores and draft probabilities.

    Greedy: ordered by q. The score is q squared, normalised over a shortlist, because a greedy target takes the favourite more often
    than q says. Sampled: ordered by log q / T plus the position's Gumbel noise. The target draws with the same noise, so wherever
    p = q it takes the favourite. The score is the softmax of those sums over the shortlist.
    """
    if not log_q.is_cpu:
        return read(log_q, [position], width, sampling)
    noise = None if sampling.greedy else sampling.noise.row(position, log_q.shape[-1]).cpu()
    return ranked_on_cpu(
        (log_q if sampling.open_ended else sampling.scaled(log_q)).float().contiguous().numpy(),
        NO_NOISE if noise is None else noise.numpy(),
        np.float32(sampling.temperature if sampling.open_ended and noise is not None else 1),
        width,
    )


def read(log_q: torch.Tensor, positions: list[int], width: int, sampling: Sampling) -> Shortlist:
    """`shortlist` on a device, for one position or for each row its own. Raises `ValueError` for rows that are no distributions."""
    noise = None if sampling.greedy else sampling.noise.rows(positions, log_q.shape[-1]).to(log_q.device)
    found = ranked(sampling.scaled(log_q), noise, width)
    return split(on_host(torch.cat([each.to(widest(log_q.device)) for each in found], -1)))


def on_host(rows: torch.Tensor) -> np.ndarray:
    """Rows of what `ranked` found. The host waits once. Raises `ValueError` for NaN, which rows that are no distributions give."""
    found = rows.cpu().numpy()
    if np.isnan(found).any():
        raise ValueError(f"The drafter answered {NO_LAW}. Its `log_q` must return log-probabilities.")
    return found


def split(rows: np.ndarray) -> Shortlist:
    """Tokens, scores and q from `rows [n, 3 width]`."""
    tokens, scores, q = np.split(rows, 3, -1)
    return tokens.astype(np.int64), scores.astype(np.float64, copy=False), q.astype(np.float64, copy=False)


def ranked(
    scaled: torch.Tensor, noise: torch.Tensor | None, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`shortlist` as tensors `[n, width]`; waits for no device.

    `scaled [n, V]` is log q / T, or log q when greedy. `noise [V]` is the position's, or `[n, V]` each row's; None when greedy.
    """
    count = min(max(width, SHORTLIST), scaled.shape[-1])
    log_q = scaled if noise is None else scaled.log_softmax(-1)
    keys, tokens = (log_q if noise is None else log_q + noise).topk(count)
    scores = (keys if noise is not None else keys * SHARPENED).softmax(-1)
    return tokens[:, :width], scores[:, :width], log_q.gather(-1, tokens[:, :width]).exp()


def likely(scores: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
    """`engine.kernels.expansion.chance` of the `scores [n, width]` of a drafter's guesses, the first one of a row its favourite."""
    if not chances.numel():
        return scores
    kinds = torch.arange(scores.shape[1], device=scores.device).clamp(max=OTHER)
    cells = kinds * BINS + (scores * BINS).long().clamp(max=BINS - 1)
    true, all_ = (each.index_select(0, cells.flatten()).view_as(scores) for each in chances)
    return (true + TRUST * scores) / (all_ + TRUST)


def foreseen_distinct(q: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The tokens `[n, most]` that `engine.sampling.successive` draws from `q [n, V]` by `uniform [n, most]`, up to rounding.

    Where that draws no more tokens, the rest means nothing. Waits for no device.
    """
    edges = q.to(widest(q.device)).cumsum(-1)
    starts = lengths = edges[:, :0]  # of the intervals that are taken, in [0, total)
    tokens = []
    for number in uniform.split(1, -1):
        ordered = starts.sort(-1)
        behind = lengths.gather(-1, ordered.indices)
        point = number * (edges[:, -1:] - lengths.sum(-1, keepdim=True))
        passed = point >= ordered.values - (behind.cumsum(-1) - behind)
        point = point + (behind * passed).sum(-1, keepdim=True)
        token = torch.searchsorted(edges, point, right=True).clamp(max=q.shape[-1] - 1)
        start = torch.where(token > 0, edges.gather(-1, (token - 1).clamp(min=0)), 0.0)
        starts, lengths = torch.cat([starts, start], -1), torch.cat([lengths, edges.gather(-1, token) - start], -1)
        tokens.append(token)
    return torch.cat(tokens, -1)
