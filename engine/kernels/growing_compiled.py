"""`engine.policies.growing` in one compiled call a tree; held equal by tests/fast/test_equal_to_reference.py[kernels.growing_compiled].

For drafters whose answers are compiled. Each says `below` for its own named tuple, answers its root and calls `grow`.
"""

from typing import NamedTuple

import numpy as np

from engine.kernels.compiling import compiled
from engine.kernels.expansion import Arrays, admit, harvest, plant
from engine.kernels.intrinsics import ticks
from engine.kernels.named_arrays import unpacked
from engine.kernels.ranking_compiled import ranked_on_cpu


class Root(NamedTuple):
    """What a tree grows behind: the last entry's `token`, its `position`, and the `rows` of the drafter's cache up to and with its own,
    of `capacity`."""

    token: int
    position: int
    rows: int
    capacity: int


def below(drafter, ids, above, positions, visible, rows, asked):
    """Log-probabilities `[n, V]` behind a level's nodes, for `grow`; compiled drafters overload it. `ids` and `positions` `[n]` are the
    nodes', `above` the places of their parents, and `asked` is the first node's own. Their rows are written behind the first `rows`,
    and `visible` bool `[n, M]` says which of the last M rows each may see."""
    raise NotImplementedError


@compiled
def grow(begun, drafter, root, log_q, expansion, noise):
    """Grow a tree from `log_q [1, V]` behind its `Root`. `noise [levels, V]` is that of the positions behind it, `[levels, 0]` when
    greedy. Ends where the capacity for rows does. The root's forward began at tick `begun`."""
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
        log_q = below(drafter, ids, above, positions, visible, rows, asked)
        counts.ticks_in_forwards += ticks() - start
        counts.asked += 1
        rows, asked = rows + count, asked + count
    harvest(expansion)
    counts.ticks = ticks() - begun
