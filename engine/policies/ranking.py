"""Ranking: which tokens a drafter favours at a position, and how likely the target is to take them. Shared by the ranked policies."""

import torch

from engine.sampling import Sampling

Ranking = tuple[list[list[int]], list[list[float]], list[list[float]]]  # tokens, scores, q; each [n][width]
SHORTLIST = 4  # a token's score is its share among this many favourites
SHARPER = 0.5  # temperature of greedy scores: what the draft gives .45, the greedy target takes four times in five


def favourites(log_q: torch.Tensor, position: int, width: int, sampling: Sampling) -> Ranking:
    """The `width` best tokens of each row of `log_q [n, V]` for this position, with their scores and draft probabilities.

    Greedy: ordered by q; the score is a sharpened softmax over a shortlist, for a greedy target takes the favourite more often than q
    says. Sampled: ordered by log q / T + the position's own Gumbel noise, the noise that the target draws with, so that the favourite
    is the token that the target takes wherever p = q; the score is the softmax of that over the shortlist.
    """
    noise = None if sampling.greedy else sampling.noise.row(position, log_q.shape[-1]).to(log_q.device)
    return tuple(each.tolist() for each in ranked(sampling.scaled(log_q), noise, width))


def ranked(
    scaled: torch.Tensor, noise: torch.Tensor | None, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`favourites` as tensors `[n, width]`, of log q / T `[n, V]` (log q itself when greedy) and the position's noise `[V]` (None when
    greedy). Waits for no device."""
    width = min(width, scaled.shape[-1])
    shortlist = min(max(width, SHORTLIST), scaled.shape[-1])
    if noise is None:
        top = scaled.topk(shortlist)
        return top.indices[:, :width], (top.values / SHARPER).softmax(-1)[:, :width], top.values[:, :width].exp()
    log_q = scaled.log_softmax(-1)
    top = (log_q + noise).topk(shortlist)
    tokens = top.indices[:, :width]
    return tokens, top.values.softmax(-1)[:, :width], log_q.gather(-1, tokens).exp()


def most_probable(log_q: torch.Tensor, width: int, sampling: Sampling) -> tuple[Ranking, torch.Tensor]:
    """The `width` most probable tokens of each row by q alone, no noise, and q `[n, V]` itself."""
    q = sampling.scaled(log_q).softmax(-1)
    top = q.topk(min(width, q.shape[-1]))
    values = top.values.tolist()
    return (top.indices.tolist(), values, values), q
