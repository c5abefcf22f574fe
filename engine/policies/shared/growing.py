"""Growing: grows a tree of favourites on an `Expansion`'s terms, with any drafter."""

import numpy as np

from engine.contracts import Drafter, Policy
from engine.kernels.expansion import MOST_LEVELS, Expansion, admit, harvest, plant
from engine.policies.shared.asking import Growth
from engine.sampling import Sampling
from engine.tree import DraftTree

SILENCE = np.zeros((MOST_LEVELS, 0), np.float32)  # noise when greedy
TREE = "token", "parent", "depth", "key", "score", "q"  # what a `DraftTree` has of a node


class Expanding(Policy):
    """A policy whose terms are those of an `Expansion`."""

    expansion: Expansion

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        return grow(self.expansion, drafter, root, position, sampling, min(self.depth, room))


def grow(
    expansion: Expansion, drafter: Drafter, root: int, position: int, sampling: Sampling, levels: int
) -> DraftTree:
    """A tree of at most `levels` levels below the token `root`, which stands at `position`. `expansion` keeps its counts."""
    if expansion.stop_ids != drafter.stop_ids:
        expansion.end_at(drafter.stop_ids)
    if levels < 1:
        plant(expansion.table, root)
    elif drafter.grow and sampling.open_ended:
        levels = min(levels, max(1, expansion.terms["reach"]))
        expansion.terms["levels"], expansion.terms["temperature"] = levels, sampling.temperature or 1
        noise = SILENCE if sampling.greedy else sampling.noise.span(position + 1, levels, drafter.vocab)
        drafter.grow(expansion, noise)
    else:
        ask(expansion, drafter, root, position, sampling, levels)
    return grown(expansion)


def ask(expansion: Expansion, drafter: Drafter, root: int, position: int, sampling: Sampling, levels: int) -> None:
    """Grow the tree with any drafter, asking it once a level. `engine.kernels.growing_compiled` is the fast version."""
    growth, terms, counts, promised = Growth(drafter, root, position, sampling), expansion.terms, expansion.counts, 0.0
    plant(expansion.table, root)
    width, reach, promise, free_promise = (terms[name] for name in ("width", "reach", "promise", "free_promise"))
    for level in range(1, levels + 1):
        asked = counts["asked"]
        free = level > asked + 1  # a drafter that answered one level without a forward answers all later ones so
        enough = promised > (free_promise if free else promise)
        if level > 1 and (not enough or (asked and level > reach)):
            break
        before, frontier = drafter.forwards, expansion.frontier[: counts["asking"]].tolist()
        growth.tree = grown(expansion)
        found = growth.shortlists(frontier, width)
        if found is None:
            break
        counts["asked"] += drafter.forwards > before
        promised = admit(expansion.table, *found)
        if promised < 0:
            break
    harvest(expansion.table)


def grown(expansion: Expansion) -> DraftTree:
    """The tree so far."""
    count, columns = expansion.counts["nodes"], expansion.columns
    tokens, parents, depth, keys, score, q = [columns[name][:count].tolist() for name in TREE]
    return DraftTree(tokens, parents, depth, score, q, keys)
