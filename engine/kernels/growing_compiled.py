"""`engine.policies.growing` in one compiled call a tree; held equal by tests/fast/test_equal_to_reference.py[kernels.growing_compiled].

It serves drafters that are compiled. Each overloads `below` for its own named tuple, computes the root's answer and calls `grow`.
"""

from typing import NamedTuple

import numpy as np

from engine.kernels.compiling import compiled
from engine.kernels.expansion import Arrays, admit, harvest, plant
from engine.kernels.intrinsics import ticks
from engine.kernels.named_arrays import unpacked
from engine.kernels.ranking_compiled import ranked_on_cpu


class Root(NamedTuple):
    """What a tree grows from: the root's `token` and `position`.

    `rows` is how many rows of the drafter's cache are written, the root's included; `capacity` is how many there are.
    """

    token: int
    position: int
    rows: int
    capacity: int


def below(at_work, ids, above, positions, visible, rows, asked):
    """Log-probabilities `[n, V]` behind a level's nodes, for `grow`; compiled drafters overload it.

    `ids [n]` and `positions [n]` are the nodes'. `above [n]` holds the places of their parents, and `asked` is the place of the first
    node. The nodes' rows are written behind the first `rows`. `visible` bool `[n, M]` says which of the last M rows each may see.
    """
    raise NotImplementedError


@compiled
def grow(begun, at_work, root, log_q, expansion, noise):
    """Grow a tree from its `Root` and the drafter's `log_q [1, V]` behind it. It ends early when the cache is full.

    `noise [levels, V]` is that of the positions behind the root, `[levels, 0]` when greedy. `begun` is the tick at which the root's
    forward began.
    """
    arrays = unpacked(Arrays, expansion, 0)
    nodes, frontier, terms, counts = arrays.nodes, arrays.frontier, arrays.terms[0], arrays.counts[0]
    plant(expansion, root.token)
    asked, rows, temperature = 1, root.rows, np.float32(terms.temperature)
    counts.ticks_in_forwards = ticks() - begun
    most = 1 + (terms.levels - 1) * min(terms.beams, len(nodes))
    lineage = np.zeros((most, most), np.bool_)
    counts.asked = 1
    for level in range(terms.levels):
        promised = admit(expansion, *ranked_on_cpu(log_q, noise[level], temperature, terms.width))
        count = counts.asking
        if promised <= terms.promise or level == terms.levels - 1 or rows + count > root.capacity:
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
        start = ticks()
        log_q = below(at_work, ids, above, positions, visible, rows, asked)
        counts.ticks_in_forwards += ticks() - start
        counts.asked += 1
        rows, asked = rows + count, asked + count
    harvest(expansion)
    counts.ticks = ticks() - begun
