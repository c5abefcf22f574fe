"""Growing: grows a tree of favourites on an `TreeExpansion`'s terms, with any drafter."""

from engine.contracts import Drafter, Policy
from engine.kernels.expansion import (
    TreeExpansion,
    add_level_and_sum_frontier_scores,
    prune_to_best_nodes,
    start_tree,
)
from engine.policies.shared.asking import GrowingTree
from engine.sampling import Sampling
from engine.tree import DraftTree

TREE = "token", "parent", "depth", "key", "score", "q"  # what a `DraftTree` has of a node


class ExpansionPolicy(Policy):
    """A policy whose terms are those of an `TreeExpansion`."""

    expansion: TreeExpansion

    def grow(
        self, drafter: Drafter, root_token: int, root_position: int, sampling: Sampling, max_levels: int
    ) -> DraftTree:
        return grow_tree_of_favourites(
            self.expansion, drafter, root_token, root_position, sampling, min(self.depth, max_levels)
        )


def grow_tree_of_favourites(
    expansion: TreeExpansion, drafter: Drafter, root_token: int, root_position: int, sampling: Sampling, max_levels: int
) -> DraftTree:
    """A tree of at most `max_levels` levels below the token `root_token`, which stands at `root_position`. `expansion` keeps its
    counts.
    """
    if expansion.stop_ids != drafter.stop_ids:
        expansion.set_stop_ids(drafter.stop_ids)
    if max_levels < 1:
        start_tree(expansion.table, root_token)
    elif drafter.compiled_tree_grower and sampling.keeps_all_tokens:
        max_levels = min(max_levels, max(1, expansion.terms["reach"]))
        terms = expansion.terms
        terms["levels"], terms["temperature"], terms["greedy"] = (
            max_levels,
            sampling.temperature or 1,
            int(sampling.greedy),
        )
        terms["seed"], terms["root_position"] = sampling.seed, root_position
        drafter.compiled_tree_grower(expansion)
    else:
        grow_level_by_level(expansion, drafter, root_token, root_position, sampling, max_levels)
    return draft_tree_from_expansion(expansion)


def grow_level_by_level(
    expansion: TreeExpansion, drafter: Drafter, root_token: int, root_position: int, sampling: Sampling, max_levels: int
) -> None:
    """Grow the tree with any drafter, asking it once a level. `engine.kernels.growing_compiled` is the fast version."""
    growth, terms, counts, promised = (
        GrowingTree(drafter, root_token, root_position, sampling),
        expansion.terms,
        expansion.counts,
        0.0,
    )
    start_tree(expansion.table, root_token)
    width, reach, promise, free_promise = (terms[name] for name in ("width", "reach", "promise", "free_promise"))
    for level in range(1, max_levels + 1):
        asked = counts["asked"]
        free = level > asked + 1  # a drafter that answered one level without a forward answers all later ones so
        enough = promised > (free_promise if free else promise)
        if level > 1 and (not enough or (asked and level > reach)):
            break
        before, frontier = drafter.draft_forward_count, expansion.frontier[: counts["asking"]].tolist()
        growth.tree = draft_tree_from_expansion(expansion)
        found = growth.shortlist_tokens_after(frontier, width)
        if found is None:
            break
        counts["asked"] += drafter.draft_forward_count > before
        promised = add_level_and_sum_frontier_scores(expansion.table, *found)
        if promised < 0:
            break
    prune_to_best_nodes(expansion.table)


def draft_tree_from_expansion(expansion: TreeExpansion) -> DraftTree:
    """The tree so far."""
    count, columns = expansion.counts["nodes"], expansion.columns
    tokens, parents, depth, keys, score, q = [columns[name][:count].tolist() for name in TREE]
    return DraftTree(tokens, parents, depth, score, q, keys)
