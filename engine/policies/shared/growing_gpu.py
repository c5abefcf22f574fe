"""`engine.policies.shared.growing` as tensors; held equal by tests/fast/test_equal_to_reference.py[policies.shared.growing_gpu].

A tree of any policy in `growth_terms.TERMS` over any drafter of `engine.drafters.on_device`, in fixed shapes and without waiting for
the host. What policies differ in is data. Dead nodes fill the shapes and have no living descendants.
"""

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.forward.devices import widest_float_dtype
from engine.policies import rank_guided
from engine.policies.shared.growth_terms import TreeGrowthTerms
from engine.policies.shared.ranking import top_tokens_scores_and_q

DEAD = -1.0  # the score of a node that only fills a shape


@dataclass(frozen=True)
class DeviceTree:
    """A `DraftTree` as tensors `[N]`; dead nodes come last.

    - `tokens`, `parents`, `depth`: int64; the root's parent is -1
    - `score`: float64, `DEAD` for dead nodes
    - `q`: float32
    - `expansion_index`: int64, numbers of the nodes that the drafter was asked about, in the order of asking; 0 for the root and
      all others
    - `ancestor_expansion_mask`: bool `[N, R]`, which of these numbers are a node's ancestors
    """

    tokens: Tensor
    parents: Tensor
    depth: Tensor
    score: Tensor
    q: Tensor
    expansion_index: Tensor
    ancestor_expansion_mask: Tensor

    @classmethod
    def from_root_token(cls, root: Tensor, expanded_node_count: int = 1) -> "DeviceTree":
        """The tree of the token `root [1]` alone."""
        zero, one = torch.zeros_like(root), torch.ones_like(root)
        none = torch.zeros(1, expanded_node_count, dtype=torch.bool, device=root.device)
        return cls(root, zero - 1, zero, one.to(widest_float_dtype(root.device)), one.float(), zero, none)

    @classmethod
    def join_levels(cls, levels: list["DeviceTree"]) -> "DeviceTree":
        """The tree of all nodes of the parts, whose parents are counted from the first part's root."""
        return cls(*map(torch.cat, zip(*(vars(each).values() for each in levels), strict=True)))

    def gather_nodes_keeping_parents(self, nodes: Tensor) -> "DeviceTree":
        """What is known of these nodes. Their parents are nodes of this tree."""
        return DeviceTree(*(value.index_select(0, nodes) for value in vars(self).values()))

    def root_and_best_node_indices(self, count: int) -> Tensor:
        """The root and the `count` - 1 best nodes, in their order, dead ones last.

        Every one's parent is among them, because scores do not grow along a path and ties go to the earlier node.
        """
        order = self.score[1:].sort(descending=True, stable=True).indices[: count - 1] + 1
        size = len(self.tokens)
        behind = torch.where(self.score.index_select(0, order) > 0, order, order + size).sort().values % size
        return torch.cat([torch.zeros_like(order[:1]), behind])

    def subtree_of_nodes(self, nodes: Tensor) -> "DeviceTree":
        """The subtree of these nodes, the root first."""
        place = torch.zeros_like(self.parents).scatter(0, nodes, torch.arange(len(nodes), device=nodes.device))
        rows = self.gather_nodes_keeping_parents(nodes)
        return replace(rows, parents=torch.cat([rows.parents[:1], place.index_select(0, rows.parents[1:])]))

    @property
    def ancestor_mask(self) -> Tensor:
        """bool `[N, N]`: which nodes each may attend to, its ancestors and itself."""
        own = torch.eye(len(self.tokens), dtype=torch.bool, device=self.tokens.device)
        asked = (self.expansion_index > 0) | (self.parents < 0)
        return (self.ancestor_expansion_mask.index_select(1, self.expansion_index) & asked) | own


@dataclass(frozen=True)
class ExpandedLevelNodes:
    """Nodes of one `depth` that a drafter is asked about together, as tensors `[n]`.

    `expansion_index` numbers them among all that are asked about, and `parent_expansion_index` are the numbers of their parents;
    the root's is 0. `visible_expansion_mask` bool `[n, R]` says which of these each may attend to, its own included.
    """

    depth: int
    tokens: Tensor
    positions: Tensor
    expansion_index: Tensor
    parent_expansion_index: Tensor
    visible_expansion_mask: Tensor


def top_indices(scores: Tensor, count: int, best_first: bool = False) -> Tensor:
    """The indices of the `count` highest of `scores [n]`, in ascending order or the best first. A tie goes to the earlier one."""
    found = scores.sort(descending=True, stable=True).indices[:count]
    return found if best_first else found.sort().values


class DeviceTreeGrower:
    """Trees by the `terms` of a policy over a `drafter` of `engine.drafters.on_device`. Nothing grows below `stop_ids`."""

    def __init__(self, terms: TreeGrowthTerms, drafter: Any, stop_ids: frozenset[int], device: torch.device):
        self.terms, self.drafter, self.depth = terms, drafter, terms.depth
        self.numbers = torch.arange(max(1 + sum(terms.max_added_per_level), terms.expanded_node_count), device=device)
        kinds = torch.long, widest_float_dtype(device), torch.long
        self.fixed = [
            [torch.tensor(each, dtype=kind, device=device) for each, kind in zip(level, kinds, strict=True)]
            for level in terms.fixed_levels
        ]
        self.stop_ids = torch.tensor(sorted(stop_ids), dtype=torch.long, device=device)
        self.widths = torch.tensor(rank_guided.WIDTHS, device=device).clamp(max=terms.width)
        self.ranks = torch.arange(terms.width, device=device)

    def grow(
        self, root: Tensor, root_position: Tensor, max_levels: Tensor, temperature: Tensor, noise: Tensor | None
    ) -> DeviceTree:
        """A tree of at most `max_levels` levels below the token `root`, which stands at position `root_position`.

        All four are tensors of one number. `noise [>= depth, V]` is that of the positions behind the root, None when greedy.
        """
        grow = self.grow_block_by_block if self.terms.block_size else self.grow_level_by_level
        return grow(root, root_position, max_levels, temperature, noise)

    def grow_level_by_level(
        self, root: Tensor, root_position: Tensor, max_levels: Tensor, temperature: Tensor, noise: Tensor | None
    ) -> DeviceTree:
        terms, numbers = self.terms, self.numbers
        levels = [DeviceTree.from_root_token(root, terms.expanded_node_count)]
        parents, scores, start, asked = numbers[:1], levels[0].score, 1, 1
        places, lineage = numbers[:1], (numbers[: terms.expanded_node_count] == 0)[None]
        log_q = self.drafter.start_round_and_get_root_log_q(root, root_position)
        for level, (enter, ask) in enumerate(
            zip(terms.max_added_per_level, terms.max_expanded_per_level, strict=True), 1
        ):
            scaled = log_q if noise is None else log_q / temperature
            tokens, shares, q = top_tokens_scores_and_q(
                scaled, None if noise is None else noise[level - 1], terms.width
            )
            paths = scores[:, None] * (q if terms.scores_by_q else shares).to(scores.dtype)
            dead = (paths <= 0) | (paths < terms.min_path_score) | (max_levels < level)
            paths = paths.masked_fill(dead, DEAD).flatten()
            if terms.fixed_levels:
                chosen, values, picked = self.fixed[level - 1]
                paths = torch.where(paths.index_select(0, chosen) > 0, values, DEAD)
            else:
                if terms.min_share_of_level_best and level > 1:
                    paths = paths.masked_fill(paths < terms.min_share_of_level_best * paths.max(), DEAD)
                chosen = top_indices(paths, enter, terms.best_first_within_level)
                paths = paths.index_select(0, chosen)
                if terms.min_share_of_level_best:  # a level that exceeds the budget ends with it
                    spent = sum((each.score > 0).sum() for each in levels)
                    paths = paths.masked_fill(numbers[:enter] >= terms.max_kept_nodes - spent, DEAD)
            entering = tokens.flatten().index_select(0, chosen)
            going_on = paths.masked_fill((entering[:, None] == self.stop_ids).any(-1), DEAD)
            if not terms.fixed_levels:
                picked = numbers[:ask] if ask == enter else top_indices(going_on, ask)
            above = chosen // terms.width
            seen, zeros = lineage.index_select(0, above), torch.zeros_like(chosen)
            own = zeros.index_copy(0, picked, numbers[asked : asked + ask]) if ask else zeros
            entered = parents.index_select(0, above), zeros + level
            levels.append(DeviceTree(entering, *entered, paths, q.flatten().index_select(0, chosen), own, seen))
            if not ask:
                break
            above, scores = places.index_select(0, above.index_select(0, picked)), going_on.index_select(0, picked)
            places, parents = numbers[asked : asked + ask], start + picked
            lineage = seen.index_select(0, picked) | (numbers[: terms.expanded_node_count] == places[:, None])
            positions = torch.where(scores > 0, root_position + level, root_position)  # the dead stay in the context
            frontier = ExpandedLevelNodes(level, entering.index_select(0, picked), positions, places, above, lineage)
            log_q, start, asked = self.drafter.log_q_of_level(frontier, root_position), start + enter, asked + ask
        tree = DeviceTree.join_levels(levels)
        return tree.subtree_of_nodes(tree.root_and_best_node_indices(terms.max_kept_nodes))

    def grow_block_by_block(
        self, root: Tensor, root_position: Tensor, max_levels: Tensor, temperature: Tensor, noise: Tensor | None
    ) -> DeviceTree:
        """As `RankHeadGuidedTree.grow`: a generation of blocks is guessed at once, and the next one starts among the nodes that are
        kept.

        What a block guesses does not depend on what is chosen of it. A start's place is its own block's first one, and a favourite's is
        the next position's, which guesses what follows it.
        """
        terms, numbers, size, end = self.terms, self.numbers, self.terms.block_size, 0
        tree, limit = DeviceTree.from_root_token(root, terms.expanded_node_count), max_levels.clamp(max=terms.depth)
        priority = tree.score  # of a block that starts at a node
        for generation, ask in enumerate(terms.max_expanded_per_level):
            nodes = top_indices(priority, ask // size)
            starts, scores = (
                tree.gather_nodes_keeping_parents(nodes),
                tree.score.where(priority > 0, DEAD).index_select(0, nodes),
            )
            places = numbers[end : end + len(nodes) * size].view(-1, size)
            end, rows = end + places.numel(), numbers[: terms.expanded_node_count]
            lineage = starts.ancestor_expansion_mask[:, None] | (
                (rows >= places[:, :1, None]) & (rows <= places[..., None])
            )
            levels = starts.depth[:, None] + numbers[1 : size + 1]
            if generation:
                parents = tree.expansion_index.index_select(0, starts.parents.clamp(min=0))
                positions = root_position + (levels - 1).where(scores[:, None] > 0, 0)  # the dead stay in the context
                by_position = positions.flatten(), places.flatten(), lineage.flatten(0, 1)
                self.drafter.draft_blocks_from_nodes(starts.tokens, parents, *by_position, root_position)
            else:
                self.drafter.start_round_and_get_root_log_q(root, root_position)
            tokens, shares, q, widths, buckets = self.rank_block_guesses_with_widths_and_buckets(
                levels, temperature, noise
            )
            levels = levels[..., None]
            is_end, shares = (tokens[..., None] == self.stop_ids).any(-1), shares.to(scores.dtype)
            chain = scores, *shares[:, :-1, 0].masked_fill(is_end[:, :-1, 0], 0).unbind(1)
            paths = torch.stack([*accumulate(chain, torch.mul)], 1)[..., None] * shares
            dead = (
                (paths < terms.min_path_score)
                | (self.ranks >= widths)
                | (levels > limit)
                | (limit <= generation * size)
            )
            paths = paths.masked_fill(dead, DEAD)
            # The next blocks start where chains end, and after these at the best siblings of doubtful favourites
            deeper = pad(paths[:, 1:, :1], (0, 0, 0, 1), value=DEAD)
            starting = torch.where(self.ranks > 0, buckets > 0, deeper < 0) & (paths > 0) & ~is_end
            urgency = (paths + (self.ranks < 1)).where(starting, DEAD).flatten()
            # Only favourites have guesses below them in their block. The position after them makes these
            favourites = len(tree.tokens) + terms.width * numbers[: places.numel()].view(places.shape)
            parents = torch.cat([nodes[:, None], favourites[:, :-1]], 1)[..., None]
            places_below = pad(places[:, 1:], (0, 1))[..., None].where(self.ranks < 1, 0)
            guesses = tokens, parents, levels, paths, q, places_below
            above = lineage[:, :, None].expand(-1, -1, terms.width, -1).flatten(0, 2)
            columns = [*(each.expand_as(paths).flatten() for each in guesses), above]
            at_starts = places[:, 0].where(scores > 0, starts.expansion_index)
            old = replace(tree, expansion_index=tree.expansion_index.index_copy(0, nodes, at_starts))
            tree = DeviceTree.join_levels([old, DeviceTree(*columns)])
            priority = pad(urgency, (len(priority), 0), value=DEAD)
            chosen = tree.root_and_best_node_indices(terms.max_kept_nodes)
            tree, priority = tree.subtree_of_nodes(chosen), priority.index_select(0, chosen)
        return tree

    def rank_block_guesses_with_widths_and_buckets(
        self, levels: Tensor, temperature: Tensor, noise: Tensor | None
    ) -> list[Tensor]:
        """Tokens, shares and q `[n, K, width]` of the drafter's last n blocks, whose positions guess at these `levels [n, K]`.

        Also how many guesses each position offers, and its bucket, `[n, K, 1]`.
        """
        log_q, buckets = (each[: levels.numel()] for each in (self.drafter.log_q_by_depth, self.drafter.rank_buckets))
        widths = self.widths.index_select(0, buckets)
        if noise is not None:
            log_q = log_q / temperature
            noise = noise.index_select(0, (levels.flatten() - 1).clamp(max=self.depth - 1))
        guesses = *top_tokens_scores_and_q(log_q, noise, self.terms.width, widths), widths, buckets
        return [each.view(*levels.shape, -1) for each in guesses]
