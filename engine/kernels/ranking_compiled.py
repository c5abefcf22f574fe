"""`engine.policies.shared.ranking` as compiled loops; held equal by tests/fast/test_equal_to_reference.py[kernels.ranking_compiled]."""

import numpy as np

from engine.kernels.compiling import compiled, within
from engine.kernels.elementwise import LOWEST, sum_exponentials
from engine.kernels.intrinsics import larger

SHORTLIST = 4  # a token's score is its share among this many favourites
TOGETHER = 128  # tokens in a block, whose highest key is found first
# Power of q in greedy scores. A greedy target takes a favourite more often than q says: at q = 0.45, in four of five cases.
SHARPENED = 2.0


@compiled
def ranked_on_cpu(log_q, noise, temperature, width):
    """`engine.policies.shared.ranking.rank_scaled_logits` of `log_q [n, V]`, divided by the temperature, and `noise [V]`, `[0]` when
    greedy.
    """
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
            most = LOWEST
            for token in range(vocab):
                scaled[token] = keys[token] / temperature
            for token in range(vocab):
                most = larger(most, scaled[token])
            log_total = most + np.log(sum_exponentials(scaled, most))
            for token in range(vocab):
                scaled[token] += noise[token]
            keys = scaled
        write_highest_places(keys, best, tops)
        for place in range(count):
            weights[place] = np.exp((keys[best[place]] - keys[best[0]]) * power)
        for place in range(width):
            token = best[place]
            tokens[row, place] = token
            scores[row, place] = weights[place] / weights.sum()
            q[row, place] = np.exp(log_q[row, token] / temperature - log_total)
    return tokens, scores, q


@within
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
def write_highest_places(keys, best, tops):
    """Write the places of the highest `keys` into `best [count]`, of equals the earlier first. `tops` is room for one a block."""
    held, count, least = 0, len(best), -np.inf
    for block in range(len(tops)):
        most, part = LOWEST, keys[block * TOGETHER : (block + 1) * TOGETHER]
        for index in range(len(part)):
            most = larger(most, part[index])
        tops[block] = most
    if count < len(tops):
        least = nth_highest(tops, count)  # `count` blocks hold a key at least this high, so no lower key counts
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
