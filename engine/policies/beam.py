"""Beam policy: each level keeps its best nodes by joint probability (the parallel-tree drafter).

A level's candidates are the top tokens behind every survivor of the level above. The tree holds the survivors of all levels, within
the node budget. The drafter is asked once per level; one that guesses all depths at once answers from one forward.
"""

from engine.contracts import Counterpart, Drafter, Policy
from engine.policies.shared.asking import candidates
from engine.record.calibration import Calibration
from engine.sampling import Sampling
from engine.tree import DraftTree


class Beam(Policy):
    title = "beam"
    about = "The best few paths survive each level."
    source = "the feature-conditioned parallel-tree drafter"
    counterpart = Counterpart("tree of guesses")
    proposals = frozenset({"ranked"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        """A node budget too small for `depth` levels of `width` nodes is split evenly, upper levels first."""
        self.width = width
        levels = min(depth, nodes - 1)
        share, extra = divmod(nodes - 1, levels)
        self.beams = [min(width, share + (level < extra)) for level in range(levels)]

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, frontier = DraftTree.rooted(root), [0]
        for level, beam in enumerate(self.beams[: max(0, room)], 1):
            found = candidates(drafter, tree, frontier, position + level, self.width, sampling)
            if found is None:
                break
            frontier = [tree.add(node, token, score, q) for score, _, node, token, q in found[:beam]]
        return tree
