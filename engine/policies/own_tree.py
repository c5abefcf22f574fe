"""Own-tree policy: takes the tree that the drafter lays out by itself, because the drafter's method is a tree and no distribution.

The width says how far the tree may branch, in the drafter's own sense.
"""

from engine.contracts import OWN_TREE, Counterpart, Drafter, Policy
from engine.policies.shared import asking
from engine.sampling import Sampling
from engine.tree import DraftTree


class OwnTree(Policy):
    title = "drafter's own tree"
    about = "The tree that the drafter lays out by itself."
    source = "SuffixDecoding, Token Recycling and Lookahead, each with its own"
    counterpart = Counterpart("tree of guesses")
    proposals = frozenset({"ranked"})
    needs = OWN_TREE

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        """Raises `ValueError` for a drafter that lays out no tree."""
        if self.needs not in drafter.offers:
            raise ValueError(
                f"The {drafter.title} drafter lays out no tree of its own. Choose a drafter that does, or the policy best_first."
            )
        levels = min(self.depth, room)
        return asking.own_tree(drafter, root, levels, self.width, self.nodes) if levels > 0 else DraftTree.rooted(root)
