"""Expansion: a tree of favourites, grown level by level for as long as it promises enough, as compiled loops. Knows arrays and numbers.

`engine.policies.shared.growing` drives it with any drafter, one call a level. `engine.kernels.growing_compiled` drives it with compiled
drafters, all levels in one call. That saves the Python between levels, which is slow because each level's weights evict it from caches.
"""

from typing import Annotated, NamedTuple

import numpy as np

from engine.kernels.compiling import compiled_assuming_no_nan, compiled_no_nan_without_python_entry
from engine.kernels.elementwise import insert_into_best_indices
from engine.kernels.named_arrays import Ids, NamedArrays, SharedRecord, unpack_named_arrays

INTEGER, REAL = np.int64, np.float64
# A node of the tree. `place` numbers the nodes that the drafter was asked about, from 1; it is 0 for the root and for all others.
# `score` is the chance of the whole path. `cell` is the column of `chances` that corrected the node's own chance.
NODE = np.dtype(
    [(name, INTEGER) for name in ("token", "parent", "depth", "key", "cell", "place")] + [("score", REAL), ("q", REAL)],
    align=True,
)
# A policy's terms, see `TreeExpansion`, and this round's `levels` and sampling: guesses are drawn with the noise of their positions,
# which follow the `root_position`, unless it is `greedy`.
TERMS = np.dtype(
    [(name, INTEGER) for name in ("width", "beams", "keep", "only_best", "reach", "levels")]
    + [(name, INTEGER) for name in ("greedy", "seed", "root_position")]
    + [(name, REAL) for name in ("least", "promise", "free_promise", "temperature")],
    align=True,
)
# `nodes` is the size of the tree, `held` that of the order of the best, `asking` that of the frontier. `tip` is the best node of the
# last frontier, -1 when all nodes of a level are stop tokens. `asked` counts the levels that took a forward.
COUNTS = np.dtype([(name, INTEGER) for name in ("nodes", "held", "asking", "tip", "asked")], align=True)
BINS = 10  # ranges of scores, each a cell of every kind of guess
FAVOURITE, OTHER, COPY, KINDS = 0, 1, 2, 3  # a drafter's first guess, its others, and what was copied
TRUST = 6.0  # the score itself counts as much as this many observed guesses
NO_CHANCES = np.zeros((2, 0))
MOST_LEVELS = 99


class TreeExpansionArrays(NamedTuple):
    """An `TreeExpansion` as loops see it. `index` maps a node to its number after a harvest; `order` is room to sort in.

    Nodes that carry one of `stop_ids` join no frontier.
    """

    nodes: Annotated[np.ndarray, NODE, 1]
    best: Ids
    frontier: Ids
    order: Ids
    index: Ids
    terms: Annotated[np.ndarray, TERMS, 1]
    counts: Annotated[np.ndarray, COUNTS, 1]
    chances: Annotated[np.ndarray, REAL, 2]
    stop_ids: Ids


class TreeExpansion:
    """A tree that grows, the room for it and a policy's terms; the room is filled anew every round.

    Every level offers `width` favourites of each of the frontier's nodes, which are the `beams` best of the level before. A node enters
    when its score exceeds `least`. With `only_best` it must also be among the best of all so far.

    The next level is asked for while the frontier's scores sum to more than `promise`. There are at most `reach` such levels. A level
    that takes no draft forward needs only a sum above `free_promise`.

    `chances [2, cells]` corrects scores: how many guesses of a cell came true, and how many there were. Without cells scores stay as
    they are.

    `nodes` are records `NODE`; `columns` looks into them by field. `best` holds the best nodes, the best first; `frontier` holds its
    nodes in order of their numbers. `terms` is the record `TERMS`, `counts` the record `COUNTS`. Compiled loops take `table`.
    """

    def __init__(
        self,
        max_levels: int,
        children_per_node: int,
        beam_width: int,
        max_kept: int | None = None,
        only_best: bool = False,
        least_score: float = -1.0,
        chances: np.ndarray = NO_CHANCES,
    ):
        """Room for trees of `max_levels` levels. The `max_kept` best nodes below the root stay; None keeps all of them."""
        most = 1 + children_per_node + (max_levels - 1) * beam_width * children_per_node
        room = max(most, beam_width, max_kept or 0)
        self.nodes, self.terms, self.counts = np.zeros(room, NODE), SharedRecord(TERMS), SharedRecord(COUNTS)
        self.columns = {name: self.nodes[name] for name in NODE.names or ()}
        self.chances = chances
        self.best, self.frontier, self.order, self.index = np.zeros((4, room), np.int64)
        asked = {
            "width": children_per_node,
            "beams": beam_width,
            "keep": most if max_kept is None else max_kept,
            "only_best": only_best,
        }
        for name, value in {
            **asked,
            "least": least_score,
            "promise": -1,
            "free_promise": -1,
            "reach": MOST_LEVELS,
        }.items():
            self.terms[name] = value
        self.set_stop_ids(frozenset())

    def set_stop_ids(self, stop_ids: frozenset[int]) -> None:
        """From now on nothing grows below these tokens, because nothing behind them can be emitted. The root is no such node."""
        self.stop_ids = stop_ids
        rows, records = (self.best, self.frontier, self.order, self.index), (self.terms.array, self.counts.array)
        stops = np.array(sorted(stop_ids), np.int64)
        self.named = NamedArrays(TreeExpansionArrays(self.nodes, *rows, *records, self.chances, stops))
        self.table = self.named.table


@compiled_assuming_no_nan
def start_tree(expansion, root_token):
    """Start anew with a tree of the token `root_token` alone, which is also the frontier."""
    arrays = unpack_named_arrays(TreeExpansionArrays, expansion, 0)
    node, counts = arrays.nodes[0], arrays.counts[0]
    node.token, node.parent, node.score, node.q = root_token, -1, 1.0, 1.0
    node.depth = node.key = node.cell = node.place = 0
    arrays.frontier[0] = 0
    counts.nodes = counts.asking = 1
    counts.held = counts.tip = counts.asked = 0


@compiled_assuming_no_nan
def cell_of_score(score, guess_kind):
    """The cell of guesses of this kind with such scores, which are counted together."""
    return guess_kind * BINS + min(int(score * BINS), BINS - 1)


@compiled_assuming_no_nan
def calibrated_chance_and_cell(chances, score, guess_kind):
    """The chance that a guess comes true, and its cell: its score, corrected by what became of the cell's guesses so far."""
    cell = cell_of_score(score, guess_kind)
    if chances.shape[1] == 0:
        return score, cell
    return (chances[0, cell] + TRUST * score) / (chances[1, cell] + TRUST), cell


@compiled_no_nan_without_python_entry
def ranks_at_or_before(score, node, worst_score, worst_node):
    """Whether a node of this `score` is the node `worst_node`, whose score is `worst_score`, or comes before it."""
    return score > worst_score or (score == worst_score and node <= worst_node)


@compiled_no_nan_without_python_entry
def is_among_best_nodes(nodes, best, count, node):
    """Whether `best`, the order of the `count` best nodes, holds the node. It holds all nodes until it is full."""
    return count < len(best) or ranks_at_or_before(
        nodes[node].score, node, nodes[best[count - 1]].score, best[count - 1]
    )


@compiled_no_nan_without_python_entry
def is_stop_token(stop_ids, token):
    """Whether a text ends with this token."""
    found = False
    for each in stop_ids:
        found |= each == token
    return found


@compiled_assuming_no_nan
def add_level_and_sum_frontier_scores(expansion, tokens, scores, q):
    """Add a level: row i of `tokens`, `scores` and `q`, each `[n, width]`, follows the frontier's node i.

    The best added nodes become the frontier. Returns the sum of their scores, or -1 when there are none.
    """
    arrays = unpack_named_arrays(TreeExpansionArrays, expansion, 0)
    nodes, frontier, terms, counts = arrays.nodes, arrays.frontier, arrays.terms[0], arrays.counts[0]
    best, only_best = arrays.best[: terms.keep], terms.only_best > 0
    first, node, held = counts.nodes, counts.nodes, counts.held
    for row in range(counts.asking):
        parent = frontier[row]
        for rank in range(tokens.shape[1]):
            likely, cell = calibrated_chance_and_cell(arrays.chances, scores[row, rank], min(rank, OTHER))
            score = nodes[parent].score * likely
            if score <= terms.least or (only_best and held == len(best) and score <= nodes[best[held - 1]].score):
                continue
            new = nodes[node]
            new.token, new.parent, new.depth, new.key = tokens[row, rank], parent, nodes[parent].depth + 1, node
            new.cell, new.place, new.score, new.q = cell, 0, score, q[row, rank]
            held = insert_into_best_indices(nodes.score, best, held, node)
            node += 1
    counts.nodes, counts.held = node, held
    order, chosen = arrays.order[: terms.beams], 0
    for node in range(first, counts.nodes):
        if (not only_best or is_among_best_nodes(nodes, best, held, node)) and not is_stop_token(
            arrays.stop_ids, nodes[node].token
        ):
            chosen = insert_into_best_indices(nodes.score, order, chosen, node)
    if chosen == 0:
        counts.tip = -1 if node > first else counts.tip
        return -1.0
    count, promised = 0, 0.0
    for node in range(first, counts.nodes):
        if is_stop_token(arrays.stop_ids, nodes[node].token):
            continue
        if (not only_best or is_among_best_nodes(nodes, best, held, node)) and is_among_best_nodes(
            nodes, order, chosen, node
        ):
            frontier[count] = node
            count += 1
            promised += nodes[node].score
    counts.asking, counts.tip = count, order[0]
    return promised


@compiled_assuming_no_nan
def ancestor_mask_of(parents):
    """bool `[N, N]`: whether a column is the row's node or one of its ancestors. The root's parent in `parents [N]` is -1."""
    seen = np.zeros((len(parents), len(parents)), np.bool_)
    for node in range(len(parents)):
        for above in range(node):
            seen[node, above] = seen[parents[node], above]
        seen[node, node] = True
    return seen


@compiled_assuming_no_nan
def prune_to_best_nodes(expansion):
    """Keep the best nodes and drop the others. A kept node's parent stays, because it is earlier and scores at least as high."""
    arrays = unpack_named_arrays(TreeExpansionArrays, expansion, 0)
    nodes, index, counts, keep = arrays.nodes, arrays.index, arrays.counts[0], arrays.terms[0].keep
    held, count = counts.held, 1
    worst = arrays.best[held - 1] if held == keep else counts.nodes
    least = nodes[worst].score if held == keep else -np.inf
    for node in range(1, counts.nodes):
        if ranks_at_or_before(nodes[node].score, node, least, worst):
            index[node] = count
            nodes[count] = nodes[node]
            parent = nodes[count].parent
            nodes[count].parent = index[parent] if parent else 0
            count += 1
    counts.nodes = count
