"""Expansion: a tree of favourites, grown level by level for as long as it promises enough, as compiled loops. Knows arrays and numbers.

`engine.policies.growing` asks for it. Of drafters that are compiled, `engine.kernels.growing_compiled` asks all levels in one call: it
costs what the levels cost, while Python between them runs behind megabytes of weights, its own memory cold.
"""

from typing import Annotated, NamedTuple

import numpy as np

from engine.kernels.compiling import compiled
from engine.kernels.named_arrays import Ids, NamedArrays, unpacked

INTEGER, REAL = np.int64, np.float64
# What every node is. `place` is its own among all that the drafter was asked about, counted from 1; 0 for those that it was not, and
# for the root. `score` is that of its path, `cell` that of the chances which made it.
NODE = np.dtype(
    [(name, INTEGER) for name in ("token", "parent", "depth", "key", "cell", "place")] + [("score", REAL), ("q", REAL)],
    align=True,
)
# What a policy asks for, see `Expansion`; and the `levels` and the `temperature` of this round.
TERMS = np.dtype(
    [(name, INTEGER) for name in ("width", "beams", "keep", "only_best", "reach", "levels")]
    + [(name, REAL) for name in ("least", "promise", "free_promise", "temperature")],
    align=True,
)
# The nodes, how many of the best are held, how many the frontier has, the best node of the last frontier, the levels that took a
# forward, and the processor's ticks within forwards and in all.
COUNTS = np.dtype(
    [(name, INTEGER) for name in ("nodes", "held", "asking", "tip", "asked", "ticks_in_forwards", "ticks")],
    align=True,
)
BINS = 10  # of scores, for each kind of guess
FAVOURITE, OTHER, COPY, KINDS = 0, 1, 2, 3  # a drafter's first guess, its others, and what was copied
TRUST = 6.0  # guesses that the first estimate of a bin counts for
NO_CHANCES = np.zeros((2, 0))
MOST_LEVELS = 99


class Arrays(NamedTuple):
    """An `Expansion` in compiled loops. `index` is a node's number behind a harvest, `order` room to sort in; `terms` and `counts` are
    one record each."""

    nodes: Annotated[np.ndarray, NODE, 1]
    best: Ids
    frontier: Ids
    order: Ids
    index: Ids
    terms: Annotated[np.ndarray, TERMS, 1]
    counts: Annotated[np.ndarray, COUNTS, 1]
    chances: Annotated[np.ndarray, REAL, 2]


class Expansion:
    """A tree that is grown, and the room for it; filled anew every round. What a policy asks for: `width` favourites of each of a
    level's `beams` best nodes.

    A node enters when its score exceeds `least` and, with `only_best`, is among the best of all so far. A level that takes a draft
    forward follows while the scores of the nodes it is about sum to more than the term `promise`, and there are at most `reach` of
    them; one that takes none while they sum to more than `free_promise`. `chances [2, cells]`, how many guesses of a cell came true
    and how many there were, corrects scores; without cells they stay as they are.

    `nodes` are records `NODE`, `best` and `frontier` hold nodes, the best first and the earlier first; `terms` is the record `TERMS`,
    `counts` the record `COUNTS`. Compiled loops take `table`.
    """

    def __init__(
        self,
        depth: int,
        width: int,
        beams: int,
        keep: int | None = None,
        only_best: bool = False,
        least: float = -1.0,
        chances: np.ndarray = NO_CHANCES,
    ):
        """Room for trees of such shapes. The `keep` best nodes below the root stay, all of them where it is None."""
        most = 1 + width + (depth - 1) * beams * width
        room = max(most, beams, keep or 0)
        self.nodes, self.chances = np.zeros(room, NODE), chances
        self.best, self.frontier, order, index = np.zeros((4, room), np.int64)
        terms, counts = np.zeros(1, TERMS), np.zeros(1, COUNTS)
        self.terms, self.counts = terms[0], counts[0]
        asked = {"width": width, "beams": beams, "keep": most if keep is None else keep, "only_best": only_best}
        for name, value in {**asked, "least": least, "promise": -1, "free_promise": -1, "reach": MOST_LEVELS}.items():
            self.terms[name] = value
        arrays = Arrays(self.nodes, self.best, self.frontier, order, index, terms, counts, chances)
        self.named = NamedArrays(arrays)
        self.table = self.named.table


@compiled
def plant(expansion, root):
    """Empty but for the root, which is the frontier."""
    arrays = unpacked(Arrays, expansion, 0)
    node, counts = arrays.nodes[0], arrays.counts[0]
    node.token, node.parent, node.score, node.q = root, -1, 1.0, 1.0
    node.depth = node.key = node.cell = node.place = 0
    arrays.frontier[0] = 0
    counts.nodes = counts.asking = 1
    counts.held = counts.tip = counts.asked = counts.ticks_in_forwards = counts.ticks = 0


@compiled
def chance(chances, score, kind):
    """That a guess comes true: its score, corrected by the guesses of its cell so far; and the cell."""
    cell = kind * BINS + min(int(score * BINS), BINS - 1)
    if chances.shape[1] == 0:
        return score, cell
    return (chances[0, cell] + TRUST * score) / (chances[1, cell] + TRUST), cell


@compiled
def placed(nodes, order, held, node):
    """Put the node into the order of the `held` best, the earlier one first of equals; how many it holds then, never more than fit."""
    place, score = held, nodes[node].score
    if held == len(order):
        if held == 0 or score <= nodes[order[held - 1]].score:
            return held
        place = held - 1
    held = place + 1
    while place > 0 and score > nodes[order[place - 1]].score:
        order[place] = order[place - 1]
        place -= 1
    order[place] = node
    return held


@compiled
def as_good(score, node, least, worst):
    """Whether a node of that score comes before the `worst`, whose score is `least`, or is it."""
    return score > least or (score == least and node <= worst)


@compiled
def among_best(nodes, best, held, node):
    """Whether the order of the best, as many as fit, holds the node."""
    return held < len(best) or as_good(nodes[node].score, node, nodes[best[held - 1]].score, best[held - 1])


@compiled
def admit(expansion, tokens, scores, q):
    """Add a level: row i of `tokens`, `scores` and `q`, each `[n, width]`, follows the frontier's node i. The new frontier is the best
    of what was added. Returns its scores' sum, or -1 and leaves it when there are none."""
    arrays = unpacked(Arrays, expansion, 0)
    nodes, frontier, terms, counts = arrays.nodes, arrays.frontier, arrays.terms[0], arrays.counts[0]
    best, only_best = arrays.best[: terms.keep], terms.only_best > 0
    first, node, held = counts.nodes, counts.nodes, counts.held
    for row in range(counts.asking):
        parent = frontier[row]
        for rank in range(tokens.shape[1]):
            likely, cell = chance(arrays.chances, scores[row, rank], min(rank, OTHER))
            score = nodes[parent].score * likely
            if score <= terms.least or (only_best and held == len(best) and score <= nodes[best[held - 1]].score):
                continue
            new = nodes[node]
            new.token, new.parent, new.depth, new.key = tokens[row, rank], parent, nodes[parent].depth + 1, node
            new.cell, new.place, new.score, new.q = cell, 0, score, q[row, rank]
            held = placed(nodes, best, held, node)
            node += 1
    counts.nodes, counts.held = node, held
    order, chosen = arrays.order[: terms.beams], 0
    for node in range(first, counts.nodes):
        if not only_best or among_best(nodes, best, held, node):
            chosen = placed(nodes, order, chosen, node)
    if chosen == 0:
        return -1.0
    count, promised = 0, 0.0
    for node in range(first, counts.nodes):
        if (not only_best or among_best(nodes, best, held, node)) and among_best(nodes, order, chosen, node):
            frontier[count] = node
            count += 1
            promised += nodes[node].score
    counts.asking, counts.tip = count, order[0]
    return promised


@compiled
def harvest(expansion):
    """Drop all but the best nodes; every parent is among them."""
    arrays = unpacked(Arrays, expansion, 0)
    nodes, index, counts, keep = arrays.nodes, arrays.index, arrays.counts[0], arrays.terms[0].keep
    held, count = counts.held, 1
    worst = arrays.best[held - 1] if held == keep else counts.nodes
    least = nodes[worst].score if held == keep else -np.inf
    for node in range(1, counts.nodes):
        if as_good(nodes[node].score, node, least, worst):
            index[node] = count
            nodes[count] = nodes[node]
            parent = nodes[count].parent
            nodes[count].parent = index[parent] if parent else 0
            count += 1
    counts.nodes = count
