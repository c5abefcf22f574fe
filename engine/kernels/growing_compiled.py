"""A whole tree of favourites grown in one compiled call: `engine.policies.growing.ask` for drafters that are compiled."""

import numpy as np

from engine.kernels.compiling import compiled
from engine.kernels.expansion import (
    ASKED,
    ASKING,
    BEAMS,
    DEPTH,
    FRONTIER,
    IN_ALL,
    IN_FORWARDS,
    PARENT,
    PLACE,
    PROMISE,
    TOKEN,
    WIDTH,
    admit,
    harvest,
    plant,
)
from engine.kernels.intrinsics import ticks
from engine.kernels.ranking_compiled import ranked_here


def below(net, ids, above, positions, visible, rows, asked):
    """Log-probabilities `[n, V]` behind a level's nodes, for `grow`; compiled nets overload it. `ids` and `positions` `[n]` are the
    nodes', `above` the places of their parents, and `asked` is the first node's own. Their rows are written behind the first `rows`,
    and `visible` bool `[n, M]` says which of the last M rows each may see."""
    raise NotImplementedError


@compiled
def grow(begun, net, log_q, nodes, worth, counts, root, base, rows, capacity, noise, temperature, levels, terms, table):
    """Grow a tree from `log_q [1, V]` behind its root, which stands at `base` and whose row is the last of the first `rows`.
    `noise [levels, V]` is that of the positions behind the root, `[levels, 0]` when greedy. Ends where the `capacity` for rows does.
    The root's forward began at tick `begun`."""
    plant(nodes, worth, counts, root)
    asked, counts[IN_FORWARDS] = 1, ticks() - begun
    most = 1 + (levels - 1) * min(int(terms[BEAMS]), nodes.shape[1])
    lineage = np.zeros((most, most), np.bool_)
    counts[ASKED] += 1
    for level in range(levels):
        tokens, scores, q = ranked_here(log_q, noise[level], temperature, int(terms[WIDTH]))
        promised = admit(nodes, worth, counts, tokens, scores, q, terms, table)
        count = counts[ASKING]
        if promised <= terms[PROMISE] or level == levels - 1 or rows + count > capacity:
            break
        ids, above, positions = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
        visible = np.empty((count, asked - 1 + count), np.bool_)
        for row in range(count):
            node, place = nodes[FRONTIER, row], asked + row
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
    harvest(nodes, worth, counts)
    counts[IN_ALL] = ticks() - begun
