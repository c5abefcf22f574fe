"""Growing: grows a tree of favourites on an `Expansion`'s terms, with any drafter."""

from functools import partial

import numpy as np

from engine.contracts import Drafter
from engine.kernels.expansion import MOST_LEVELS, Expansion, admit, harvest, plant
from engine.policies.shared.ahead import Reach
from engine.policies.shared.asking import shortlists
from engine.sampling import Sampling
from engine.tree import DraftTree

SILENCE = np.zeros((MOST_LEVELS, 0), np.float32)  # noise when greedy
TREE = "token", "parent", "depth", "key", "score", "q"  # what a `DraftTree` has of a node


def grow(
    expansion: Expansion, drafter: Drafter, root: int, position: int, sampling: Sampling, levels: int
) -> DraftTree:
    """A tree of at most `levels` levels below the token `root`, which stands at `position`. `expansion` keeps its counts."""
    if levels < 1:
        plant(expansion.table, root)
    elif drafter.grows and sampling.open_ended:
        levels = min(levels, max(1, expansion.terms["reach"]))
        expansion.terms["levels"], expansion.terms["temperature"] = levels, sampling.temperature or 1
        noise = SILENCE if sampling.greedy else sampling.noise.span(position + 1, levels, drafter.vocab)
        drafter.grow(expansion, noise)
    else:
        ask(expansion, drafter, root, position, sampling, levels)
    return grown(expansion)


def ask(expansion: Expansion, drafter: Drafter, root: int, position: int, sampling: Sampling, levels: int) -> None:
    """Grow the tree with any drafter, asking it once a level. `engine.kernels.growing_compiled` is the fast version."""
    terms, counts, promised = expansion.terms, expansion.counts, 0.0
    last = counts["nodes"]
    plant(expansion.table, root)
    width, reach, promise, free_promise = (terms[name] for name in ("width", "reach", "promise", "free_promise"))
    for level in range(1, levels + 1):
        asked = counts["asked"]
        free = level > asked + 1  # a drafter that answered one level without a forward answers all later ones so
        enough = promised > (free_promise if free else promise)
        if level > 1 and (not enough or (asked and level > reach)):
            break
        before, frontier = drafter.forwards, expansion.frontier[: counts["asking"]].tolist()
        most = partial(foreseen, expansion, last, level, levels)
        found = shortlists(drafter, grown(expansion), frontier, position + level, width, sampling, most)
        if found is None:
            break
        counts["asked"] += drafter.forwards > before
        promised = admit(expansion.table, *found)
        if promised < 0:
            break
    harvest(expansion.table)


def foreseen(expansion: Expansion, last: int, level: int, levels: int) -> Reach:
    """What may be asked about from this level on. Each level costs a forward that may be in vain.

    The first level expects a tree as deep as the last one, which had `last` nodes. Their depths stay until the level is admitted.
    """
    depth, reach = expansion.columns["depth"][:last], max(expansion.terms["reach"], 1)
    expected = 1 + int(depth.max()) if level == 1 and last else levels
    return Reach(min(levels, reach, expected) - level + 1, expansion.terms["beams"], expansion.chances)


def grown(expansion: Expansion) -> DraftTree:
    """The tree so far."""
    count, columns = expansion.counts["nodes"], expansion.columns
    tokens, parents, depth, keys, score, q = [columns[name][:count].tolist() for name in TREE]
    return DraftTree(tokens, parents, depth, score, q, keys)
