"""`engine.policies.shared.growing` in one compiled call; held equal by tests/fast/test_equal_to_reference.py[kernels.growing_compiled].

It serves drafters that are compiled. Each computes the root's answer and calls `grow` by its address. It hands over the address of its
own loop for the levels below, see `BELOW`.
"""

from typing import NamedTuple

import numpy as np
from numba import types

from engine.kernels.by_address import make_call_by_address
from engine.kernels.compiling import within
from engine.kernels.expansion import ExpansionArrays, add_level, keep_best_nodes, start_tree
from engine.kernels.intrinsics import ticks
from engine.kernels.named_arrays import Ids, Mask, Matrix, Table, numba_type_of, unpack_nest
from engine.kernels.ranking_compiled import ranked_on_cpu


class GrowthRoot(NamedTuple):
    """What a tree grows from: the root's `token` and `position`.

    `rows` of `capacity` are written, the root's included. `free` is 1 where other levels take neither a forward nor rows, else 0.
    """

    token: int
    position: int
    rows: int
    capacity: int
    free: int


# A drafter's loop `below(parts, ids, above, positions, visible, start, rows, asked)`. It returns the log-probabilities `[n, V]` behind
# a level's nodes. `parts` is the drafter's own table. `ids [n]` and `positions [n]` are the nodes'. `above [n]` holds the places of
# their parents, and `asked` is the place of the first node. The nodes' rows are written behind the first `rows`. `visible`
# bool `[n, M]` says which of the last M rows each may see. No node sees a row before `start`.
BELOW = numba_type_of(Matrix)(*map(numba_type_of, (Table, Ids, Ids, Ids, Mask, types.int64, types.int64, types.int64)))
ROOT = types.NamedUniTuple(types.int64, len(GrowthRoot._fields), GrowthRoot)
TAKES = types.int64, types.int64, Table, types.int64, ROOT, Matrix, Table, Matrix
GROW = types.void(*map(numba_type_of, TAKES))
call_below, call_grow = make_call_by_address(BELOW), make_call_by_address(GROW)


@within
def grow(draft_start_ticks, level_function, parts, start, root, log_q, expansion, noise):
    """Grow a tree from its `GrowthRoot` and the drafter's `log_q [1, V]` behind it. It ends early when the cache is full.

    `noise [levels, V]` is that of the positions behind the root, `[levels, 0]` when greedy. `draft_start_ticks` is the tick at which
    the root's forward began. `level_function` is the address of the drafter's loop, whose `parts` and `start` it is given.
    """
    arrays = unpack_nest(ExpansionArrays, expansion, 0)
    nodes, frontier, terms, counts = arrays.nodes, arrays.frontier, arrays.terms[0], arrays.counts[0]
    start_tree(expansion, root.token)
    asked, rows, temperature = 1, root.rows, np.float32(terms.temperature)
    counts.ticks_in_forwards = ticks() - draft_start_ticks
    most = 1 + (terms.levels - 1) * min(terms.beams, len(nodes))
    lineage = np.zeros((most, most), np.bool_)
    counts.asked = 1
    for level in range(terms.levels):
        promised = add_level(expansion, *ranked_on_cpu(log_q, noise[level], temperature, terms.width))
        count = counts.asking
        enough = terms.free_promise if level + 1 > counts.asked else terms.promise
        if promised <= enough or level == terms.levels - 1 or rows + count > root.capacity:
            break
        ids, above, positions = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
        visible = np.empty((count, asked - 1 + count), np.bool_)
        for row in range(count):
            node, place = nodes[frontier[row]], asked + row
            parent = nodes[node.parent].place
            node.place, ids[row], above[row] = place, node.token, parent
            positions[row] = root.position + node.depth
            for index in range(1, asked):
                lineage[place, index] = lineage[parent, index]
            lineage[place, place] = True
            for index in range(visible.shape[1]):
                visible[row, index] = lineage[place, 1 + index]
        then = ticks()
        log_q = call_below(level_function, parts, ids, above, positions, visible, start, rows, asked)
        counts.ticks_in_forwards += ticks() - then
        counts.asked += 1 - root.free
        rows, asked = rows + count * (1 - root.free), asked + count
    keep_best_nodes(expansion)
    counts.ticks = ticks() - draft_start_ticks
