"""Rank-guided policy (SpecBlock): a rank head says at each position how many guesses to attach and where to draft on.

In a block, every position of the favourites' chain gets as many siblings as its bucket asks for. Then new blocks start, in one forward
for all of them. One starts at the chain's end. Others start at the most probable siblings where the head does not trust the favourite;
these are our own choice. A start that the node budget would cut off is left out. A depth of up to K costs one forward, up to 2 K two,
beyond that three. In the end the nodes with the best joint scores are kept. The width caps the guesses at a position and the number of
new blocks in a forward.
"""

from typing import Any, cast

from engine.contracts import RANK_HEAD, Drafter, Policy
from engine.policies.shared.asking import GrowingTree
from engine.sampling import Sampling
from engine.tree import DraftTree

WIDTHS = (2, 4, 6, 4)  # guesses at a position by bucket: rank 1, 2-4, 5-10, beyond
MOST_BLOCKS = 3
LEAST_SCORE = 0.01  # a node less likely than this to be accepted costs more to verify than it wins


class RankHeadGuidedTree(Policy):
    title = "rank-guided"
    about = "The drafter itself says where to branch and from where to draft on."
    source = "SpecBlock, rank-guided tree"
    unused_budget_reason = "its drafter says where a branch would be worth it"
    required_capability = RANK_HEAD

    def grow(
        self, drafter: Drafter, root_token: int, root_position: int, sampling: Sampling, max_levels: int
    ) -> DraftTree:
        """Raises `ValueError` for a drafter without a rank head."""
        if self.required_capability not in drafter.capabilities:
            raise ValueError(
                "The policy rank_guided asks the drafter's rank head, and only specblock and specblock-adapt have one. "
                "Choose one of them, or the policy best_first with this drafter."
            )
        head: Any = drafter  # a rank head offers blocks: `depth`, `predict_rank_buckets` and `draft_blocks_from_nodes`
        growth, starts, limit = (
            GrowingTree(drafter, root_token, root_position, sampling),
            [0],
            min(self.depth, max_levels),
        )
        tree = growth.tree
        for number in range(min(MOST_BLOCKS, -(-limit // head.depth))):
            if number:
                head.draft_blocks_from_nodes(tree, starts)
            ends, doubtful = [], []
            for start in starts:
                end = self.grow_block_to_chain_end(growth, start, limit, doubtful)
                ends += [end] if end != start and tree.depth[end] < limit and not growth.is_stop_node(end) else []
            starts = self.select_next_block_starts(tree, ends, doubtful, limit)
            if not starts:
                break
        return tree.subtree([0, *sorted(tree.select_highest_scored_nodes(self.nodes - 1))])

    def grow_block_to_chain_end(
        self, growth: GrowingTree, node: int, max_depth: int, doubtful_siblings: list[int]
    ) -> int:
        """Attach a block's guesses below `node`. Siblings of a doubtful favourite join `doubtful_siblings`. Returns the chain's end.

        That is the `node` itself where no guess is likely enough, and no block starts there again.
        """
        tree, head = growth.tree, cast(Any, growth.drafter)
        for _ in range(min(head.depth, max_depth - tree.depth[node])):
            expected = validated_rank_bucket(head, tree, node)
            found = growth.rank_candidates([node], min(WIDTHS[expected], self.width))
            first = len(tree)
            growth.add_candidate_nodes([each for each in found if each[0] >= LEAST_SCORE])
            if len(tree) == first:
                break
            node = first
            others = range(first + 1, len(tree)) if expected else ()
            doubtful_siblings += [other for other in others if not growth.is_stop_node(other)]
            if growth.is_stop_node(node):
                break
        return node

    def select_next_block_starts(
        self, tree: DraftTree, chain_ends: list[int], doubtful_siblings: list[int], max_depth: int
    ) -> list[int]:
        """Where the next blocks start: at the chains' ends and the best doubtful siblings, among the nodes that the budget keeps."""
        kept = set(tree.select_highest_scored_nodes(self.nodes - 1))
        chain_ends = [node for node in chain_ends if node in kept]
        others = [node for node in doubtful_siblings if node in kept and tree.depth[node] < max_depth]
        others = tree.select_highest_scored_nodes(max(0, self.width - len(chain_ends)), others)
        return sorted(chain_ends[: self.width] + others)


def validated_rank_bucket(drafter: Drafter, tree: DraftTree, node: int) -> int:
    """The rank head's bucket behind the node. Raises `ValueError` when it is none of `WIDTHS`."""
    offering: Any = drafter  # what the policy requires names a method
    found = offering.predict_rank_buckets(tree, [node])
    if not isinstance(found, list) or len(found) != 1 or found[0] not in range(len(WIDTHS)):
        raise ValueError(
            f"The {drafter.title} drafter answered {found!r} when it was asked for the bucket behind one node. "
            f"Its `predict_rank_buckets` must return a list with one whole number from 0 to {len(WIDTHS) - 1}."
        )
    return found[0]
