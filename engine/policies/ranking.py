"""Ranking: which tokens a drafter favours at a position, and how likely the target is to take them. Shared by the ranked policies."""

import math

import torch

from engine.sampling import Sampling

Ranking = tuple[list[list[int]], list[list[float]], list[list[float]]]  # tokens, scores, q; each [n][width]
SHORTLIST = 4  # a token's score is its share among this many favourites
SHARPENED = 2.0  # power of q in greedy scores: what the draft gives .45, the greedy target takes four times in five


def favourites(log_q: torch.Tensor, position: int, width: int, sampling: Sampling) -> Ranking:
    """The `width` best tokens of each row of `log_q [n, V]` for this position, with their scores and draft probabilities.

    Greedy: ordered by q; the score is a share of a shortlist's q squared, for a greedy target takes the favourite more often than q
    says. Sampled: ordered by log q / T + the position's own Gumbel noise, the noise that the target draws with, so that the favourite
    is the token that the target takes wherever p = q; the score is the softmax of that over the shortlist.
    """
    noise = None if sampling.greedy else sampling.noise.row(position, log_q.shape[-1]).to(log_q.device)
    tokens, keys, logs = shortlisted(sampling.scaled(log_q), noise, width)
    tokens = tokens.tolist()
    q = [[math.exp(each) for each in row] for row in logs.tolist()]  # a few numbers: less work as lists than as tensors
    if noise is None:
        scores = [shares([each**SHARPENED for each in row]) for row in q]
    else:
        scores = [shares([math.exp(each - row[0]) for each in row]) for row in keys.tolist()]
    if len(q[0]) > width:
        tokens, scores, q = ([row[:width] for row in rows] for rows in (tokens, scores, q))
    return tokens, scores, q


def shares(weights: list[float]) -> list[float]:
    total = sum(weights)
    return [weight / total for weight in weights]


def shortlisted(
    scaled: torch.Tensor, noise: torch.Tensor | None, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of log q / T `[n, V]` (log q itself when greedy) and the position's noise `[V]` (None when greedy) the tokens that scores are
    shares of, what they are ordered by, and their log q, each `[n, max(width, SHORTLIST)]`."""
    count = min(max(width, SHORTLIST), scaled.shape[-1])
    if noise is None:
        top = scaled.topk(count)
        return top.indices, top.values, top.values
    log_q = scaled.log_softmax(-1)
    top = (log_q + noise).topk(count)
    return top.indices, top.values, log_q.gather(-1, top.indices)


def ranked(
    scaled: torch.Tensor, noise: torch.Tensor | None, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`favourites` as tensors `[n, width]`, of log q / T `[n, V]` (log q itself when greedy) and the position's noise `[V]` (None when
    greedy). Waits for no device."""
    tokens, keys, logs = shortlisted(scaled, noise, width)
    scores = (keys if noise is not None else keys * SHARPENED).softmax(-1)
    return tokens[:, :width], scores[:, :width], logs[:, :width].exp()


def most_probable(log_q: torch.Tensor, width: int, sampling: Sampling) -> tuple[Ranking, torch.Tensor]:
    """The `width` most probable tokens of each row by q alone, no noise, and q `[n, V]` itself."""
    q = sampling.scaled(log_q).softmax(-1)
    top = q.topk(min(width, q.shape[-1]))
    values = top.values.tolist()
    return (top.indices.tolist(), values, values), q
