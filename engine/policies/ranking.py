"""Ranking: which tokens a drafter favours at a position, and how likely the target is to take them. Shared by the ranked policies."""

import torch

from engine.sampling import Sampling

Ranking = tuple[list[list[int]], list[list[float]], list[list[float]]]  # tokens, scores, q; each [n][width]
SHORTLIST = 4  # at T > 0 a token's score is its share among this many perturbed favourites


def favourites(log_q: torch.Tensor, position: int, width: int, sampling: Sampling) -> Ranking:
    """The `width` best tokens of each row of `log_q [n, V]` for this position, with their scores and draft probabilities.

    Greedy: ordered by q, which is also the score. Sampled: ordered by log q / T + the position's own Gumbel noise, the noise that the
    target draws with, so that the favourite is the token that the target takes wherever p = q; the score is the softmax of that
    over a shortlist.
    """
    scaled = sampling.scaled(log_q)
    width = min(width, log_q.shape[-1])
    if sampling.greedy:
        top = scaled.topk(width)
        q = top.values.exp()
        return top.indices.tolist(), q.tolist(), q.tolist()
    perturbed = scaled + sampling.noise.row(position, log_q.shape[-1]).to(log_q.device)
    top = perturbed.topk(min(max(width, SHORTLIST), log_q.shape[-1]))
    tokens = top.indices[:, :width]
    q = (scaled.gather(-1, tokens) - scaled.logsumexp(-1, keepdim=True)).exp()
    return tokens.tolist(), top.values.softmax(-1)[:, :width].tolist(), q.tolist()


def most_probable(log_q: torch.Tensor, width: int, sampling: Sampling) -> tuple[Ranking, torch.Tensor]:
    """The `width` most probable tokens of each row by q alone, no noise, and q `[n, V]` itself."""
    q = sampling.scaled(log_q).softmax(-1)
    top = q.topk(min(width, q.shape[-1]))
    values = top.values.tolist()
    return (top.indices.tolist(), values, values), q
