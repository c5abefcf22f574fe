"""Ranking: which tokens a drafter favours at a position, and how likely the target is to take them. Shared by all that rank."""

import numpy as np
import torch

from engine.kernels import LOWEST, compiled, exp, larger
from engine.sampling import Sampling

Ranking = tuple[list[list[int]], list[list[float]], list[list[float]]]  # tokens, scores, q; each [n][width]
SHORTLIST = 4  # a token's score is its share among this many favourites
TOGETHER = 128  # tokens of which the highest key is found first
NO_NOISE = np.zeros(0, np.float32)
SHARPENED = 2.0  # power of q in greedy scores: what the draft gives .45, the greedy target takes four times in five


def favourites(log_q: torch.Tensor, position: int, width: int, sampling: Sampling) -> Ranking:
    """The `width` best tokens of each row of `log_q [n, V]` for this position, with their scores and draft probabilities.

    Greedy: ordered by q; the score is a share of a shortlist's q squared, for a greedy target takes the favourite more often than q
    says. Sampled: ordered by log q / T + the position's own Gumbel noise, the noise that the target draws with, so that the favourite
    is the token that the target takes wherever p = q; the score is the softmax of that over the shortlist.
    """
    return tuple(each.tolist() for each in shortlist(log_q, position, width, sampling))


def shortlist(
    log_q: torch.Tensor, position: int, width: int, sampling: Sampling
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`favourites` as arrays `[n, width]`: int64, float64, float64."""
    noise = None if sampling.greedy else sampling.noise.row(position, log_q.shape[-1]).to(log_q.device)
    if not log_q.is_cpu:
        tokens, scores, q = (each.cpu().numpy() for each in ranked(sampling.scaled(log_q), noise, width))
        return tokens, scores.astype(np.float64), q.astype(np.float64)
    return ranked_here(
        (log_q if sampling.open_ended else sampling.scaled(log_q)).float().contiguous().numpy(),
        NO_NOISE if noise is None else noise.numpy(),
        np.float32(sampling.temperature if sampling.open_ended and noise is not None else 1),
        width,
    )


@compiled
def ranked_here(log_q, noise, temperature, width):
    """`ranked` on a CPU: of `log_q [n, V]`, still to be divided by the temperature, and the position's `noise`, empty when greedy."""
    rows, vocab = log_q.shape
    greedy, count = len(noise) == 0, min(max(width, SHORTLIST), vocab)
    power = np.float32(SHARPENED if greedy else 1)
    width = min(width, count)
    tokens, scores, q = np.empty((rows, width), np.int64), np.empty((rows, width)), np.empty((rows, width))
    scaled, tops = np.empty(vocab, np.float32), np.empty(-(-vocab // TOGETHER), np.float32)
    best, weights = np.empty(count, np.int64), np.empty(count)
    for row in range(rows):
        keys, log_total = log_q[row], np.float32(0)
        if not greedy:
            most, total = LOWEST, np.float32(0)
            for token in range(vocab):
                scaled[token] = keys[token] / temperature
            for token in range(vocab):
                most = larger(most, scaled[token])
            for token in range(vocab):
                total += exp(scaled[token] - most)
            for token in range(vocab):
                scaled[token] += noise[token]
            keys, log_total = scaled, most + np.log(total)
        highest(keys, best, tops)
        for place in range(count):
            weights[place] = np.exp((keys[best[place]] - keys[best[0]]) * power)
        for place in range(width):
            token = best[place]
            tokens[row, place] = token
            scores[row, place] = weights[place] / weights.sum()
            q[row, place] = np.exp(log_q[row, token] / temperature - log_total)
    return tokens, scores, q


@compiled
def nth_highest(values, n):
    found = np.full(n, LOWEST)
    for value in values:
        place = n - 1
        if value > found[place]:
            while place > 0 and value > found[place - 1]:
                found[place] = found[place - 1]
                place -= 1
            found[place] = value
    return found[n - 1]


@compiled
def highest(keys, best, tops):
    """Into `best [count]` where the highest of `keys` stand, the highest first; of equals the earlier one. `tops` is room for a number
    for every `TOGETHER` keys."""
    held, count, least = 0, len(best), -np.inf
    for block in range(len(tops)):
        most, part = LOWEST, keys[block * TOGETHER : (block + 1) * TOGETHER]
        for index in range(len(part)):
            most = larger(most, part[index])
        tops[block] = most
    if count < len(tops):
        least = nth_highest(tops, count)  # as many blocks hold something at least as high as this
    for block in range(len(tops)):
        if tops[block] < least:
            continue
        part = keys[block * TOGETHER : (block + 1) * TOGETHER]
        for index in range(len(part)):
            key = part[index]
            if held == count and key <= least:
                continue
            held = min(held + 1, count)
            place = held - 1
            while place > 0 and key > keys[best[place - 1]]:
                best[place] = best[place - 1]
                place -= 1
            best[place] = block * TOGETHER + index
            if held == count:
                least = keys[best[count - 1]]


def ranked(
    scaled: torch.Tensor, noise: torch.Tensor | None, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`favourites` as tensors `[n, width]`, of log q / T `[n, V]` (log q itself when greedy) and the position's noise `[V]` (None when
    greedy). Waits for no device."""
    count = min(max(width, SHORTLIST), scaled.shape[-1])
    log_q = scaled if noise is None else scaled.log_softmax(-1)
    keys, tokens = (log_q if noise is None else log_q + noise).topk(count)
    scores = (keys if noise is not None else keys * SHARPENED).softmax(-1)
    return tokens[:, :width], scores[:, :width], log_q.gather(-1, tokens[:, :width]).exp()


def most_probable(log_q: torch.Tensor, width: int, sampling: Sampling) -> tuple[Ranking, torch.Tensor]:
    """The `width` most probable tokens of each row by q alone, no noise, and q `[n, V]` itself."""
    q = sampling.scaled(log_q).softmax(-1)
    top = q.topk(min(width, q.shape[-1]))
    values = top.values.tolist()
    return (top.indices.tolist(), values, values), q
