"""Expansion: a tree of favourites, grown level by level for as long as it promises enough, as compiled loops. Knows arrays and numbers.

`engine.policies.expanding` asks for it. Of drafters that are compiled, `grow` asks all levels in one call: it costs what the levels
cost, while Python between them runs behind megabytes of weights, its own memory cold.
"""

from typing import NamedTuple

import numpy as np

from engine.kernels import compiled
from engine.ranking import ranked_here
from engine.vectors import ticks

TOKEN, PARENT, DEPTH, KEY, CELL, PLACE, INDEX = range(7)  # rows of `Expansion.nodes`
SCORE, Q = range(2)  # of `Expansion.worth`
NODES, BEST, FRONTIER, TIP, ASKED, IN_FORWARDS, IN_ALL = range(7)  # of `Expansion.counts`
BINS = 10  # of scores, for each kind of guess
FAVOURITE, OTHER, COPY, KINDS = 0, 1, 2, 3  # a drafter's first guess, its others, and what was copied
TRUST = 6.0  # guesses that the first estimate of a bin counts for
NO_TABLE = np.zeros((2, 0))


class Terms(NamedTuple):
    """What a policy asks for: `width` favourites of each of a level's `beams` best nodes.

    A node enters when its score exceeds `least` and, with `only_best`, is among the best of all so far. A level that takes a draft
    forward follows while the scores of the nodes it is about sum to more than `promise`, and there are at most `reach` of them; one
    that takes none while they sum to more than `free_promise`. `table [2, cells]`, how many guesses of a cell came true and how many
    there were, corrects scores; without cells they stay as they are.
    """

    width: int
    beams: int
    only_best: bool = False
    least: float = -1.0
    promise: float = -1.0
    free_promise: float = -1.0
    reach: int = 99
    table: np.ndarray = NO_TABLE


class Expansion(NamedTuple):
    """A tree that is grown, and the room for it; filled anew every round.

    `nodes` int64 `[7, room]` and `worth` float64 `[2, room]` have a row for each of the names above. PLACE is a node's among all that
    the drafter was asked about, counted from 1; 0 for those that it was not, and for the root. `best` and `frontier` are nodes, the
    best first and the earlier first, `order` and INDEX are room to sort in. `counts`: how much of all that is in use, the best node of
    the last frontier, the levels that took a forward, and the processor's ticks within forwards and in all.
    """

    nodes: np.ndarray
    worth: np.ndarray
    best: np.ndarray
    frontier: np.ndarray
    order: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, depth: int, width: int, beams: int, keep: int | None = None) -> "Expansion":
        """Room for trees of such shapes. The `keep` best nodes below the root stay, all of them where it is None."""
        room = 1 + width + (depth - 1) * beams * width
        return cls(
            nodes=np.zeros((7, room), np.int64),
            worth=np.zeros((2, room)),
            best=np.zeros(room if keep is None else keep, np.int64),
            frontier=np.zeros(max(1, beams), np.int64),
            order=np.zeros(max(1, beams), np.int64),
            counts=np.zeros(7, np.int64),
        )


@compiled
def plant(expansion, root):
    """Empty but for the root, which is the frontier."""
    nodes, worth, counts = expansion.nodes, expansion.worth, expansion.counts
    for row in range(len(nodes)):
        nodes[row, 0] = 0
    nodes[TOKEN, 0], nodes[PARENT, 0] = root, -1
    worth[SCORE, 0] = worth[Q, 0] = 1.0
    for index in range(len(counts)):
        counts[index] = 0
    counts[NODES] = counts[FRONTIER] = 1
    expansion.frontier[0] = 0


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
def within(scores, order, held, node):
    """Whether the order, of the best that fit, holds the node."""
    if held < len(order):
        return True
    worst = order[held - 1]
    return scores[node] > scores[worst] or (scores[node] == scores[worst] and node <= worst)


@compiled
def admit(expansion, tokens, scores, q, terms):
    """Add a level: row i of `tokens`, `scores` and `q`, each `[n, width]`, follows the frontier's node i. The new frontier is the best
    of what was added. Returns its scores' sum, or -1 and leaves it when there are none."""
    nodes, worth, best, counts = expansion.nodes, expansion.worth, expansion.best, expansion.counts
    values, first, held = worth[SCORE], counts[NODES], counts[BEST]
    node = first
    for row in range(counts[FRONTIER]):
        parent = expansion.frontier[row]
        for rank in range(tokens.shape[1]):
            likely, cell = chance(terms.table, scores[row, rank], min(rank, OTHER))
            value = values[parent] * likely
            if value <= terms.least or (terms.only_best and held == len(best) and value <= values[best[held - 1]]):
                continue
            nodes[TOKEN, node], nodes[PARENT, node] = tokens[row, rank], parent
            nodes[DEPTH, node], nodes[KEY, node] = nodes[DEPTH, parent] + 1, node
            nodes[CELL, node], nodes[PLACE, node] = cell, 0
            values[node], worth[Q, node] = value, q[row, rank]
            held = placed(values, best, held, node)
            node += 1
    counts[NODES], counts[BEST] = node, held
    chosen, order = 0, expansion.order[: terms.beams]
    for node in range(first, counts[NODES]):
        if not terms.only_best or within(values, best, held, node):
            chosen = placed(values, order, chosen, node)
    if chosen == 0:
        return -1.0
    counts[FRONTIER], counts[TIP] = 0, order[0]
    promised = 0.0
    for node in range(first, counts[NODES]):
        if (not terms.only_best or within(values, best, held, node)) and within(values, order, chosen, node):
            expansion.frontier[counts[FRONTIER]] = node
            counts[FRONTIER] += 1
            promised += values[node]
    return promised


@compiled
def harvest(expansion):
    """Drop all but the best nodes; every parent is among them."""
    nodes, worth, best, counts = expansion.nodes, expansion.worth, expansion.best, expansion.counts
    held, count = counts[BEST], 1
    for node in range(1, counts[NODES]):
        if within(worth[SCORE], best, held, node):
            nodes[INDEX, node] = count
            for row in range(INDEX):
                nodes[row, count] = nodes[row, node]
            for row in range(len(worth)):
                worth[row, count] = worth[row, node]
            parent = nodes[PARENT, count]
            nodes[PARENT, count] = nodes[INDEX, parent] if parent else 0
            count += 1
    counts[NODES] = count


def below(net, ids, above, positions, visible, rows, asked):
    """Log-probabilities `[n, V]` behind a level's nodes, for `grow`; compiled nets overload it. `ids` and `positions` `[n]` are the
    nodes', `above` the places of their parents, and `asked` is the first node's own. Their rows are written behind the first `rows`,
    and `visible` bool `[n, M]` says which of the last M rows each may see."""
    raise NotImplementedError


@compiled
def grow(net, log_q, expansion, root, base, rows, capacity, noise, temperature, levels, terms):
    """Grow a tree from `log_q [1, V]` behind its root, which stands at `base` and whose row is the last of the first `rows`.
    `noise [levels, V]` is that of the positions behind the root, `[levels, 0]` when greedy. Ends where the `capacity` for rows does."""
    nodes, counts = expansion.nodes, expansion.counts
    begun, asked, levels = ticks(), 1, min(levels, max(1, terms.reach))
    plant(expansion, root)
    most = 1 + (levels - 1) * len(expansion.frontier)
    lineage = np.zeros((most, most), np.bool_)
    counts[ASKED] += 1
    for level in range(levels):
        tokens, scores, q = ranked_here(log_q, noise[level], temperature, terms.width)
        promised = admit(expansion, tokens, scores, q, terms)
        count = counts[FRONTIER]
        if promised <= terms.promise or level == levels - 1 or rows + count > capacity:
            break
        ids, above, positions = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
        visible = np.empty((count, asked - 1 + count), np.bool_)
        for row in range(count):
            node, place = expansion.frontier[row], asked + row
            parent = nodes[PLACE, nodes[PARENT, node]]
            nodes[PLACE, node], ids[row], above[row] = place, nodes[TOKEN, node], parent
            positions[row] = base + nodes[DEPTH, node]
            for index in range(1, asked):
                lineage[place, index] = lineage[parent, index]
            lineage[place, place] = True
            for index in range(visible.shape[1]):
                visible[row, index] = lineage[place, 1 + index]
        start = ticks()
        log_q = below(net, ids, above, positions, visible, rows, asked)
        counts[IN_FORWARDS] += ticks() - start
        counts[ASKED] += 1
        rows, asked = rows + count, asked + count
    harvest(expansion)
    counts[IN_ALL] += ticks() - begun
