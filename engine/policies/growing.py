"""Expanding: how policies have a tree of favourites grown on `engine.kernels.expansion`'s terms, with any drafter."""

import numpy as np

from engine.contracts import Drafter
from engine.kernels.expansion import (
    ASKED,
    ASKING,
    CELL,
    FRONTIER,
    MOST_LEVELS,
    NODES,
    REACH,
    Expansion,
    Terms,
    admit,
    harvest,
    plant,
)
from engine.policies.ranking import shortlist
from engine.sampling import Sampling
from engine.tree import DraftTree

SILENCE = np.zeros((MOST_LEVELS, 0), np.float32)  # noise when greedy


def expand(
    expansion: Expansion, drafter: Drafter, root: int, position: int, sampling: Sampling, levels: int, terms: Terms
) -> DraftTree:
    """A tree of at most `levels` levels below the token `root`, which stands at `position`; what `expansion` counted stays in it."""
    if levels < 1:
        plant(*expansion.arrays, root)
    elif drafter.expands and sampling.open_ended:
        levels = min(levels, max(1, int(terms.numbers[REACH])))
        noise = SILENCE if sampling.greedy else sampling.noise.span(position + 1, levels, drafter.vocab)
        drafter.expand(expansion, levels, noise, np.float32(sampling.temperature or 1), terms)
    else:
        ask(expansion, drafter, root, position, sampling, levels, terms)
    return grown(expansion)


def ask(
    expansion: Expansion, drafter: Drafter, root: int, position: int, sampling: Sampling, levels: int, terms: Terms
) -> None:
    """`engine.kernels.growing_compiled.grow` for any drafter, a question a level."""
    plant(*expansion.arrays, root)
    counts, promised = expansion.counts, 0.0
    width, _, _, _, promise, free_promise, reach = terms.numbers.tolist()
    for level in range(1, levels + 1):
        asked = counts[ASKED]
        free = level > asked + 1  # a table answered so far, and will do so below
        enough = promised > (free_promise if free else promise)
        if level > 1 and (not enough or (asked and level > reach)):
            break
        before, frontier = drafter.forwards, expansion.nodes[FRONTIER, : counts[ASKING]].tolist()
        log_q = drafter.log_q(grown(expansion), frontier)
        if log_q is None:
            break
        counts[ASKED] += drafter.forwards > before
        ranked = shortlist(log_q, position + level, int(width), sampling)
        promised = admit(*expansion.arrays, *ranked, terms.numbers, terms.table)
        if promised < 0:
            break
    harvest(*expansion.arrays)


def grown(expansion: Expansion) -> DraftTree:
    """The tree so far."""
    count = expansion.counts[NODES]
    tokens, parents, depth, keys = expansion.nodes[:CELL, :count].tolist()
    score, q = expansion.worth[:, :count].tolist()
    return DraftTree(tokens, parents, depth, score, q, keys)
