"""Expansion: a tree of favourites, grown level by level for as long as it promises enough, as compiled loops. Knows arrays and numbers.

`engine.policies.growing` asks for it. Of drafters that are compiled, `grow` asks all levels in one call: it costs what the levels
cost, while Python between them runs behind megabytes of weights, its own memory cold. For the same reason the arrays are few: a call
costs by the array, and more for tuples of them.
"""

import numpy as np

from engine.kernels.compiling import compiled

# Rows of `Expansion.nodes`: what every node is, and room to sort in.
TOKEN, PARENT, DEPTH, KEY, CELL, PLACE, INDEX, BEST, FRONTIER, ORDER = range(10)
SCORE, Q = range(2)  # of `Expansion.worth`
NODES, KEPT, HELD, ASKING, TIP, ASKED, IN_FORWARDS, IN_ALL = range(8)  # of `Expansion.counts`
WIDTH, BEAMS, ONLY_BEST, LEAST, PROMISE, FREE_PROMISE, REACH = range(7)  # of `Terms`
BINS = 10  # of scores, for each kind of guess
FAVOURITE, OTHER, COPY, KINDS = 0, 1, 2, 3  # a drafter's first guess, its others, and what was copied
TRUST = 6.0  # guesses that the first estimate of a bin counts for
NO_TABLE = np.zeros((2, 0))
MOST_LEVELS = 99


class Terms:
    """What a policy asks for: `width` favourites of each of a level's `beams` best nodes.

    A node enters when its score exceeds `least` and, with `only_best`, is among the best of all so far. A level that takes a draft
    forward follows while the scores of the nodes it is about sum to more than `promise`, and there are at most `reach` of them; one
    that takes none while they sum to more than `free_promise`. `table [2, cells]`, how many guesses of a cell came true and how many
    there were, corrects scores; without cells they stay as they are. `numbers` float64 `[7]` are the others, by the names above.
    """

    def __init__(
        self, width: int, beams: int, only_best: bool = False, least: float = -1.0, table: np.ndarray = NO_TABLE
    ):
        promise, reach = -1.0, MOST_LEVELS
        self.numbers, self.table = (
            np.array([width, beams, only_best, least, promise, promise, reach], np.float64),
            table,
        )


class Expansion:
    """A tree that is grown, and the room for it; filled anew every round.

    `nodes` int64 `[10, room]` and `worth` float64 `[2, room]` have a row for each of the names above. PLACE is a node's among all that
    the drafter was asked about, counted from 1; 0 for those that it was not, and for the root. BEST and FRONTIER hold nodes, the best
    first and the earlier first. `counts`: the nodes, how many of the best are kept and held, how many the frontier has, the best node
    of the last frontier, the levels that took a forward, and the processor's ticks within forwards and in all.
    """

    def __init__(self, depth: int, width: int, beams: int, keep: int | None = None):
        """Room for trees of such shapes. The `keep` best nodes below the root stay, all of them where it is None."""
        most = 1 + width + (depth - 1) * beams * width
        room = max(most, beams, keep or 0)
        self.nodes, self.worth, self.counts = np.zeros((10, room), np.int64), np.zeros((2, room)), np.zeros(8, np.int64)
        self.counts[KEPT] = most if keep is None else keep

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.nodes, self.worth, self.counts


@compiled
def plant(nodes, worth, counts, root):
    """Empty but for the root, which is the frontier."""
    for row in range(len(nodes)):
        nodes[row, 0] = 0
    nodes[TOKEN, 0], nodes[PARENT, 0] = root, -1
    worth[SCORE, 0] = worth[Q, 0] = 1.0
    for index in range(KEPT + 1, len(counts)):
        counts[index] = 0
    counts[NODES] = counts[ASKING] = 1


@compiled
def chance(table, score, kind):
    """That a guess comes true: its score, corrected by the guesses of its cell so far; and the cell."""
    cell = kind * BINS + min(int(score * BINS), BINS - 1)
    if table.shape[1] == 0:
        return score, cell
    return (table[0, cell] + TRUST * score) / (table[1, cell] + TRUST), cell


@compiled
def placed(scores, order, held, node):
    """Put the node into the order of the `held` best, the earlier one first of equals; how many it holds then, never more than fit."""
    place = held
    if held == len(order):
        if held == 0 or scores[node] <= scores[order[held - 1]]:
            return held
        place = held - 1
    held = place + 1
    while place > 0 and scores[node] > scores[order[place - 1]]:
        order[place] = order[place - 1]
        place -= 1
    order[place] = node
    return held


@compiled
def as_good(score, node, least, worst):
    """Whether a node of that score comes before the `worst`, whose score is `least`, or is it."""
    return score > least or (score == least and node <= worst)


@compiled
def among_best(scores, best, held, node):
    """Whether the order of the best, as many as fit, holds the node."""
    return held < len(best) or as_good(scores[node], node, scores[best[held - 1]], best[held - 1])


@compiled
def admit(nodes, worth, counts, tokens, scores, q, terms, table):
    """Add a level: row i of `tokens`, `scores` and `q`, each `[n, width]`, follows the frontier's node i. The new frontier is the best
    of what was added. Returns its scores' sum, or -1 and leaves it when there are none."""
    values, best, order, only_best = worth[SCORE], nodes[BEST, : counts[KEPT]], nodes[ORDER], terms[ONLY_BEST] > 0
    first, node, held = counts[NODES], counts[NODES], counts[HELD]
    for row in range(counts[ASKING]):
        parent = nodes[FRONTIER, row]
        for rank in range(tokens.shape[1]):
            likely, cell = chance(table, scores[row, rank], min(rank, OTHER))
            value = values[parent] * likely
            if value <= terms[LEAST] or (only_best and held == len(best) and value <= values[best[held - 1]]):
                continue
            nodes[TOKEN, node], nodes[PARENT, node] = tokens[row, rank], parent
            nodes[DEPTH, node], nodes[KEY, node] = nodes[DEPTH, parent] + 1, node
            nodes[CELL, node], nodes[PLACE, node] = cell, 0
            values[node], worth[Q, node] = value, q[row, rank]
            held = placed(values, best, held, node)
            node += 1
    counts[NODES], counts[HELD] = node, held
    order, chosen = nodes[ORDER, : int(terms[BEAMS])], 0
    for node in range(first, counts[NODES]):
        if not only_best or among_best(values, best, held, node):
            chosen = placed(values, order, chosen, node)
    if chosen == 0:
        return -1.0
    count, promised = 0, 0.0
    for node in range(first, counts[NODES]):
        if (not only_best or among_best(values, best, held, node)) and among_best(values, order, chosen, node):
            nodes[FRONTIER, count] = node
            count += 1
            promised += values[node]
    counts[ASKING], counts[TIP] = count, order[0]
    return promised


@compiled
def harvest(nodes, worth, counts):
    """Drop all but the best nodes; every parent is among them."""
    held, count, scores = counts[HELD], 1, worth[SCORE]
    worst = nodes[BEST, held - 1] if held == counts[KEPT] else counts[NODES]
    least = scores[worst] if held == counts[KEPT] else -np.inf
    for node in range(1, counts[NODES]):
        if as_good(scores[node], node, least, worst):
            nodes[INDEX, node] = count
            for row in range(INDEX):
                nodes[row, count] = nodes[row, node]
            for row in range(len(worth)):
                worth[row, count] = worth[row, node]
            parent = nodes[PARENT, count]
            nodes[PARENT, count] = nodes[INDEX, parent] if parent else 0
            count += 1
    counts[NODES] = count
