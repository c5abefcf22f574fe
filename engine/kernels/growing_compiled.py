"""`engine.policies.shared.growing` in one compiled call; held equal by tests/fast/test_equal_to_reference.py[kernels.growing_compiled].

It serves drafters that are compiled, each of which hands over the addresses of two loops: for the root, and for the levels below.
Asking such a drafter from Python once a level takes 1.4 to 1.9 times as long, and asking it so for the root alone 5 to 30 % longer.
"""

import numpy as np
from numba import types

from engine.kernels.by_address import make_call_by_address
from engine.kernels.compiling import compile_for, compiled
from engine.kernels.expansion import (
    Expansion,
    ExpansionArrays,
    add_level,
    prune_to_best_nodes,
    start_tree,
)
from engine.kernels.named_arrays import Cube, Ids, Mask, Matrix, Table, numba_type_of, unpack_nest
from engine.kernels.ranking_compiled import compiled_top_tokens_scores_q

# A drafter's loop `root(parts, tokens, features, position, start, rows)` returns the log-probabilities `[1, V]` behind the last of the
# `tokens [N]`, of which the first stands at `position`. `parts` is the drafter's own table, and `features [n, taps + 1, H]` are the
# target's, if it reads any. The rows of its entries are written behind the first `rows`.
ROOT = numba_type_of(Matrix)(*map(numba_type_of, (Table, Ids, Cube, types.int64, types.int64, types.int64)))
# Its loop `below(parts, ids, above, positions, visible, start, rows, asked)` returns the log-probabilities `[n, V]` behind a level's
# nodes. `ids [n]` and `positions [n]` are the nodes'. `above [n]` holds the places of their parents, and `asked` is the place of the
# first node. The nodes' rows are written behind the first `rows`. `visible` bool `[n, M]` says which of the last M rows each may see.
# Neither sees a row before `start`.
BELOW = numba_type_of(Matrix)(*map(numba_type_of, (Table, Ids, Ids, Ids, Mask, types.int64, types.int64, types.int64)))
call_root, call_below = make_call_by_address(ROOT), make_call_by_address(BELOW)


@compiled
def grow_tree(root, below, parts, tokens, features, position, start, rows, capacity, free, expansion, noise):
    """Grow a tree behind the last of `tokens [N]`. It ends early when the cache is full.

    `root` and `below` are the addresses of a drafter's loops, which are given `parts`, `start` and what `ROOT` says. With `free` 1
    levels take neither a forward nor any of the `capacity` rows, else 0. `noise [levels, V]` is that of the positions behind the root,
    `[levels, 0]` when greedy.
    """
    arrays = unpack_nest(ExpansionArrays, expansion, 0)
    nodes, frontier, terms, counts = arrays.nodes, arrays.frontier, arrays.terms[0], arrays.counts[0]
    start_tree(expansion, tokens[-1])
    log_q = call_root(root, parts, tokens, features, position, start, rows)
    rows, position = rows + len(tokens), position + len(tokens) - 1
    asked, temperature = 1, np.float32(terms.temperature)
    counts.asked = 1
    for level in range(terms.levels):
        promised = add_level(expansion, *compiled_top_tokens_scores_q(log_q, noise[level], temperature, terms.width))
        count, written = counts.asking, counts.asking * (1 - free)
        enough = terms.free_promise if level + 1 > counts.asked else terms.promise
        if promised <= enough or level == terms.levels - 1 or rows + written > capacity:
            break
        ids, above, positions = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
        visible = np.zeros((count, asked - 1 + count), np.bool_)
        for row in range(count):
            node, place = nodes[frontier[row]], asked + row
            node.place, ids[row], above[row] = place, node.token, nodes[node.parent].place
            positions[row] = position + node.depth
            each = frontier[row]
            while each:  # up to the root, whose row is committed
                visible[row, nodes[each].place - 1] = True
                each = nodes[each].parent
        log_q = call_below(below, parts, ids, above, positions, visible, start, rows, asked)
        counts.asked += 1 - free
        rows, asked = rows + written, asked + count
    prune_to_best_nodes(expansion)


def compile_growing() -> None:
    """Compiles `grow`, or finds its compiled code."""
    table, ids, features = Expansion(1, 1, 1).table, np.zeros(1, np.int64), np.zeros((1, 1, 1), np.float32)
    compile_for(grow_tree, 0, 0, table, ids, features, 0, 0, 0, 0, 0, table, features[0])
