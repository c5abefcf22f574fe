"""Own-tree policy: takes the tree that the drafter lays out by itself. The width says how far it may branch, in the drafter's sense."""

from typing import Any

from engine.contracts import OWN_TREE, Drafter, Policy
from engine.sampling import Sampling
from engine.tree import DraftTree


class DrafterOwnTree(Policy):
    title = "drafter's own tree"
    about = "The tree that the drafter lays out by itself."
    source = "SuffixDecoding, Token Recycling and Lookahead, each with its own"
    required_capability = OWN_TREE

    def grow(
        self, drafter: Drafter, root_token: int, root_position: int, sampling: Sampling, max_levels: int
    ) -> DraftTree:
        """Raises `ValueError` for a drafter that lays out no tree, and for a tree that breaks these limits."""
        if self.required_capability not in drafter.capabilities:
            raise ValueError(
                f"The {drafter.title} drafter lays out no tree of its own. Choose a drafter that does, or the policy best_first."
            )
        levels = min(self.depth, max_levels)
        if levels < 1:
            return DraftTree.from_root_token(root_token)
        offering: Any = drafter  # what it requires names a method
        tree = offering.build_own_tree(root_token, levels, self.width, self.nodes)
        if tree.tokens[0] != root_token or len(tree) > self.nodes or max(tree.depth) > levels:
            raise ValueError(
                f"The {drafter.title} drafter laid out a tree of {len(tree)} nodes and {max(tree.depth)} levels below token "
                f"{tree.tokens[0]:,}. Its `build_own_tree` must return one of at most {self.nodes} nodes and {levels} levels "
                f"below token {root_token:,}."
            )
        going_on = [0]  # a parent comes before its children
        for node in range(1, len(tree)):
            above = tree.parents[node]
            if above == 0 or (above in going_on and tree.tokens[above] not in drafter.stop_ids):
                going_on.append(node)
        return tree if len(going_on) == len(tree) else tree.subtree(going_on)
