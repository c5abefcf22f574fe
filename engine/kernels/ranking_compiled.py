"""`engine.policies.shared.ranking` as compiled loops; held equal by tests/fast/test_equal_to_reference.py[kernels.ranking_compiled]."""

import numpy as np

from engine.kernels.compiling import compiled_assuming_no_nan
from engine.kernels.elementwise import insert_into_best_indices, log_sum_exp, max_of_row

SHORTLIST = 4  # a token's score is its share among this many favourites
TOGETHER = 128  # tokens in a block, whose highest key is found first
# Power of q in greedy scores. A greedy target takes a favourite more often than q says: at q = 0.45, in four of five cases.
SHARPENED = 2.0


@compiled_assuming_no_nan
def compiled_top_tokens_scores_q(log_q, noise, temperature, width):
    """`engine.policies.shared.ranking.top_tokens_scores_and_q` of `log_q [n, V]`, divided by the temperature, and `noise [V]`, `[0]`
    when greedy.
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
            for token in range(vocab):
                scaled[token] = keys[token] / temperature
            log_total = log_sum_exp(scaled)
            for token in range(vocab):
                scaled[token] += noise[token]
            keys = scaled
        write_highest_key_indices(keys, best, tops)
        for place in range(count):
            weights[place] = np.exp((keys[best[place]] - keys[best[0]]) * power)
        for place in range(width):
            token = best[place]
            tokens[row, place] = token
            scores[row, place] = weights[place] / weights.sum()
            q[row, place] = np.exp(log_q[row, token] / temperature - log_total)
    return tokens, scores, q


@compiled_assuming_no_nan
def write_highest_key_indices(keys, best, block_maxima):
    """Write the places of the highest `keys` into `best [count]`, of equals the earlier first. `block_maxima` is room for one a
    block.
    """
    held, count, least = 0, len(best), -np.inf
    for block in range(len(block_maxima)):
        block_maxima[block] = max_of_row(keys[block * TOGETHER : (block + 1) * TOGETHER])
    if count < len(block_maxima):
        for block in range(len(block_maxima)):
            held = insert_into_best_indices(block_maxima, best, held, block)
        held, least = (
            0,
            block_maxima[best[count - 1]],
        )  # `count` blocks hold a key at least this high, so no lower key counts
    for block in range(len(block_maxima)):
        if block_maxima[block] < least:
            continue
        part = keys[block * TOGETHER : (block + 1) * TOGETHER]
        for index in range(len(part)):
            if held < count or part[index] > least:
                held = insert_into_best_indices(keys, best, held, block * TOGETHER + index)
                if held == count:
                    least = keys[best[count - 1]]
