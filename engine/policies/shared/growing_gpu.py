"""`engine.policies.shared.growing` as tensors; held equal by tests/fast/test_equal_to_reference.py[policies.shared.growing_gpu].

A tree of any policy in `TERMS` over any drafter of `engine.drafters.on_device`, in fixed shapes and without waiting for the host. What
policies differ in is data. Dead nodes fill the shapes and have no living descendants.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.contracts import Policy
from engine.forward.devices import widest_float_dtype
from engine.policies import best_first, rank_guided, talon
from engine.policies.beam import Beam
from engine.policies.best_first import BestFirst
from engine.policies.chain import Chain
from engine.policies.expand_rerank import ExpandRerank
from engine.policies.kary import Kary
from engine.policies.rank_guided import RankGuided
from engine.policies.shared.ranking import top_tokens_and_scores
from engine.policies.sparse import Sparse
from engine.policies.talon import Talon

DEAD = -1.0  # the score of a node that only fills a shape


@dataclass(frozen=True)
class TreeTerms:
    """What a policy grows a tree by. Lists go by level, or by generation of blocks.

    - `depth`: levels at most
    - `entering`: how many of a level's candidates enter at most, and `asking`: how many of those the drafter is asked about
    - `nodes`: how many are kept in the end, the root included
    - `least`: what a path's score must reach; `near`: the share of the level's best that it must reach, from the second level on
    - `ordered`: whether a level's likeliest come first. Else nodes keep the order of their parents
    - `by_q`: whether q is the score of a guess
    - `block`: positions of a block, where a rank head says how many guesses a position gets. `asking` then counts positions
    - `fixed`: of a fixed tree, by level the ranks that enter (row of the frontier times width plus rank), their scores, and those asked
    """

    width: int
    depth: int
    entering: tuple[int, ...]
    asking: tuple[int, ...]
    nodes: int
    least: float = 0.0
    near: float = 0.0
    ordered: bool = False
    by_q: bool = False
    block: int = 0
    fixed: tuple[tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]], ...] = ()

    @classmethod
    def of_policy(cls, policy: Policy, vocab_size: int, drafter_depth: int) -> "TreeTerms | None":
        """Those of a policy, for a drafter that guesses so many levels of so many tokens. None for one that needs the host."""
        terms, levels = TERMS.get(type(policy)), min(policy.depth, drafter_depth)
        if not levels:
            return cls(1, 0, (), (), 1)
        return terms(policy, min(policy.width, vocab_size), levels) if terms else None

    @property
    def expanded_node_count(self) -> int:
        """Nodes that a drafter is asked about, the root included."""
        return 1 + sum(self.asking)


def level_terms(
    policy: Any,
    width: int,
    depth: int,
    count_entering: Callable[[Any, int, int], int] | None = None,
    count_expanded: Callable[[Any, int], int] | None = None,
    ignores_budget: bool = False,
    **others: Any,
) -> TreeTerms:
    """`entering(policy, level, candidates)` counts what enters a level, and `asking(policy, entered)` what of that is asked about.

    Without them it is all. The budget of nodes does not count where the tree is kept `ignores_budget`.
    """
    entered, asked, frontier = [], [], 1
    for level in range(depth):
        entered.append(count_entering(policy, level, frontier * width) if count_entering else frontier * width)
        frontier = count_expanded(policy, entered[-1]) if count_expanded else entered[-1]
        asked.append(frontier if level + 1 < depth else 0)
    nodes = 1 + sum(entered) if ignores_budget else policy.nodes
    return TreeTerms(width, depth, tuple(entered), tuple(asked), nodes, **others)


def cap_at_node_budget(policy: Policy, level: int, candidates: int) -> int:
    """Caps a level at `nodes - 1` nodes, because the root is one node of the budget."""
    return min(policy.nodes - 1, candidates)


def terms_of_rank_guided(policy: RankGuided, width: int, depth: int) -> TreeTerms:
    """The root's block, then generations of as many blocks as the tree is wide, until it is deep enough."""
    generations = min(rank_guided.MOST_BLOCKS, -(-policy.depth // depth))
    asking = depth, *[depth * min(width, policy.nodes - 1)] * (generations - 1)
    width, depths = min(width, max(rank_guided.WIDTHS)), min(policy.depth, generations * depth)
    entering = tuple(width * each for each in asking)
    return TreeTerms(width, depths, entering, asking, policy.nodes, rank_guided.LEAST_SCORE, block=depth)


def terms_of_sparse(policy: Sparse, width: int, depth: int) -> TreeTerms:
    frontier: list[tuple[int, ...]] = [()]
    fixed = []
    for level in range(1, 1 + min(depth, max(map(len, policy.ranks)))):
        here = [ranks for ranks in policy.ranks if len(ranks) == level and ranks[:-1] in frontier and ranks[-1] < width]
        above = {ranks[:-1] for ranks in policy.ranks}
        asked = tuple(at for at, ranks in enumerate(here) if ranks in above)
        places = tuple(frontier.index(ranks[:-1]) * width + ranks[-1] for ranks in here)
        fixed.append((places, tuple(policy.ranks[ranks] for ranks in here), asked))
        frontier = [here[at] for at in asked]
        if not frontier:
            break
    entering, asking = (tuple(len(level[part]) for level in fixed) for part in (0, 2))
    return TreeTerms(width, len(fixed), entering, (*asking[:-1], 0), 1 + sum(entering), fixed=tuple(fixed))


TERMS: dict[type[Policy], Callable[[Any, int, int], TreeTerms | None]] = {
    BestFirst: partial(level_terms, count_entering=cap_at_node_budget, least=best_first.LEAST_SCORE),
    ExpandRerank: partial(level_terms, count_expanded=lambda policy, entered: min(policy.width, entered)),
    Beam: partial(level_terms, count_entering=lambda policy, level, most: min(policy.beams[level], most), ordered=True),
    Talon: partial(level_terms, count_entering=cap_at_node_budget, near=talon.NEAR, ordered=True),
    Kary: partial(level_terms, ignores_budget=True),
    Chain: lambda policy, _, depth: level_terms(policy, 1, depth, ignores_budget=True, by_q=True),
    RankGuided: terms_of_rank_guided,
    Sparse: terms_of_sparse,
}


@dataclass(frozen=True)
class DeviceTree:
    """A `DraftTree` as tensors `[N]`; dead nodes come last.

    - `tokens`, `parents`, `depth`: int64; the root's parent is -1
    - `score`: float64, `DEAD` for dead nodes
    - `q`: float32
    - `places`: int64, numbers of the nodes that the drafter was asked about, in the order of asking; 0 for the root and all others
    - `ancestor_places`: bool `[N, R]`, which of these numbers are a node's ancestors
    """

    tokens: Tensor
    parents: Tensor
    depth: Tensor
    score: Tensor
    q: Tensor
    places: Tensor
    ancestor_places: Tensor

    @classmethod
    def from_root(cls, root: Tensor, place_count: int = 1) -> "DeviceTree":
        """The tree of the token `root [1]` alone."""
        zero, one = torch.zeros_like(root), torch.ones_like(root)
        none = torch.zeros(1, place_count, dtype=torch.bool, device=root.device)
        return cls(root, zero - 1, zero, one.to(widest_float_dtype(root.device)), one.float(), zero, none)

    @classmethod
    def join_levels(cls, levels: list["DeviceTree"]) -> "DeviceTree":
        """The tree of all nodes of the parts, whose parents are counted from the first part's root."""
        return cls(*map(torch.cat, zip(*(vars(each).values() for each in levels), strict=True)))

    def gather_node_rows(self, nodes: Tensor) -> "DeviceTree":
        """What is known of these nodes. Their parents are nodes of this tree."""
        return DeviceTree(*(value.index_select(0, nodes) for value in vars(self).values()))

    def root_and_best_nodes(self, count: int) -> Tensor:
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
        rows = self.gather_node_rows(nodes)
        return replace(rows, parents=torch.cat([rows.parents[:1], place.index_select(0, rows.parents[1:])]))

    @property
    def ancestor_mask(self) -> Tensor:
        """bool `[N, N]`: which nodes each may attend to, its ancestors and itself."""
        own = torch.eye(len(self.tokens), dtype=torch.bool, device=self.tokens.device)
        asked = (self.places > 0) | (self.parents < 0)
        return (self.ancestor_places.index_select(1, self.places) & asked) | own


@dataclass(frozen=True)
class NodesOfLevel:
    """Nodes of one `depth` that a drafter is asked about together, as tensors `[n]`.

    `places` number them among all that are asked about, and `parents` are the places of their parents; the root's is 0.
    `visible_places` bool `[n, R]` says which places each may attend to, its own included.
    """

    depth: int
    tokens: Tensor
    positions: Tensor
    places: Tensor
    parents: Tensor
    visible_places: Tensor


def top_indices(scores: Tensor, count: int, best_first: bool = False) -> Tensor:
    """The indices of the `count` highest of `scores [n]`, in ascending order or the best first. A tie goes to the earlier one."""
    found = scores.sort(descending=True, stable=True).indices[:count]
    return found if best_first else found.sort().values


class DeviceTreeGrower:
    """Trees by the `terms` of a policy over a `drafter` of `engine.drafters.on_device`. Nothing grows below `stop_ids`."""

    def __init__(self, terms: TreeTerms, drafter: Any, stop_ids: frozenset[int], device: torch.device):
        self.terms, self.drafter, self.depth = terms, drafter, terms.depth
        self.numbers = torch.arange(max(1 + sum(terms.entering), terms.expanded_node_count), device=device)
        kinds = torch.long, widest_float_dtype(device), torch.long
        self.fixed = [
            [torch.tensor(each, dtype=kind, device=device) for each, kind in zip(level, kinds, strict=True)]
            for level in terms.fixed
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
        grow = self.grow_block_by_block if self.terms.block else self.grow_level_by_level
        return grow(root, root_position, max_levels, temperature, noise)

    def grow_level_by_level(
        self, root: Tensor, root_position: Tensor, max_levels: Tensor, temperature: Tensor, noise: Tensor | None
    ) -> DeviceTree:
        terms, numbers = self.terms, self.numbers
        levels = [DeviceTree.from_root(root, terms.expanded_node_count)]
        parents, scores, start, asked = numbers[:1], levels[0].score, 1, 1
        places, lineage = numbers[:1], (numbers[: terms.expanded_node_count] == 0)[None]
        log_q = self.drafter.log_q_of_root(root, root_position)
        for level, (enter, ask) in enumerate(zip(terms.entering, terms.asking, strict=True), 1):
            scaled = log_q if noise is None else log_q / temperature
            tokens, shares, q = top_tokens_and_scores(scaled, None if noise is None else noise[level - 1], terms.width)
            paths = scores[:, None] * (q if terms.by_q else shares).to(scores.dtype)
            dead = (paths <= 0) | (paths < terms.least) | (max_levels < level)
            paths = paths.masked_fill(dead, DEAD).flatten()
            if terms.fixed:
                chosen, values, picked = self.fixed[level - 1]
                paths = torch.where(paths.index_select(0, chosen) > 0, values, DEAD)
            else:
                if terms.near and level > 1:
                    paths = paths.masked_fill(paths < terms.near * paths.max(), DEAD)
                chosen = top_indices(paths, enter, terms.ordered)
                paths = paths.index_select(0, chosen)
                if terms.near:  # a level that exceeds the budget ends with it
                    spent = sum((each.score > 0).sum() for each in levels)
                    paths = paths.masked_fill(numbers[:enter] >= terms.nodes - spent, DEAD)
            entering = tokens.flatten().index_select(0, chosen)
            going_on = paths.masked_fill((entering[:, None] == self.stop_ids).any(-1), DEAD)
            if not terms.fixed:
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
            frontier = NodesOfLevel(level, entering.index_select(0, picked), positions, places, above, lineage)
            log_q, start, asked = self.drafter.log_q_of_level(frontier, root_position), start + enter, asked + ask
        tree = DeviceTree.join_levels(levels)
        return tree.subtree_of_nodes(tree.root_and_best_nodes(terms.nodes))

    def grow_block_by_block(
        self, root: Tensor, root_position: Tensor, max_levels: Tensor, temperature: Tensor, noise: Tensor | None
    ) -> DeviceTree:
        """As `RankGuided.grow`: a generation of blocks is guessed at once, and the next one starts among the nodes that are kept.

        What a block guesses does not depend on what is chosen of it. A start's place is its own block's first one, and a favourite's is
        the next position's, which guesses what follows it.
        """
        terms, numbers, size, end = self.terms, self.numbers, self.terms.block, 0
        tree, limit = DeviceTree.from_root(root, terms.expanded_node_count), max_levels.clamp(max=terms.depth)
        priority = tree.score  # of a block that starts at a node
        for generation, ask in enumerate(terms.asking):
            nodes = top_indices(priority, ask // size)
            starts, scores = tree.gather_node_rows(nodes), tree.score.where(priority > 0, DEAD).index_select(0, nodes)
            places = numbers[end : end + len(nodes) * size].view(-1, size)
            end, rows = end + places.numel(), numbers[: terms.expanded_node_count]
            lineage = starts.ancestor_places[:, None] | ((rows >= places[:, :1, None]) & (rows <= places[..., None]))
            levels = starts.depth[:, None] + numbers[1 : size + 1]
            if generation:
                parents = tree.places.index_select(0, starts.parents.clamp(min=0))
                positions = root_position + (levels - 1).where(scores[:, None] > 0, 0)  # the dead stay in the context
                by_position = positions.flatten(), places.flatten(), lineage.flatten(0, 1)
                self.drafter.start_blocks(starts.tokens, parents, *by_position, root_position)
            else:
                self.drafter.log_q_of_root(root, root_position)
            tokens, shares, q, widths, buckets = self.rank_guesses_of_blocks(levels, temperature, noise)
            levels = levels[..., None]
            is_end, shares = (tokens[..., None] == self.stop_ids).any(-1), shares.to(scores.dtype)
            chain = scores, *shares[:, :-1, 0].masked_fill(is_end[:, :-1, 0], 0).unbind(1)
            paths = torch.stack([*accumulate(chain, torch.mul)], 1)[..., None] * shares
            dead = (paths < terms.least) | (self.ranks >= widths) | (levels > limit) | (limit <= generation * size)
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
            at_starts = places[:, 0].where(scores > 0, starts.places)
            old = replace(tree, places=tree.places.index_copy(0, nodes, at_starts))
            tree = DeviceTree.join_levels([old, DeviceTree(*columns)])
            priority = pad(urgency, (len(priority), 0), value=DEAD)
            chosen = tree.root_and_best_nodes(terms.nodes)
            tree, priority = tree.subtree_of_nodes(chosen), priority.index_select(0, chosen)
        return tree

    def rank_guesses_of_blocks(self, levels: Tensor, temperature: Tensor, noise: Tensor | None) -> list[Tensor]:
        """Tokens, shares and q `[n, K, width]` of the drafter's last n blocks, whose positions guess at these `levels [n, K]`.

        Also how many guesses each position offers, and its bucket, `[n, K, 1]`.
        """
        log_q, buckets = (each[: levels.numel()] for each in (self.drafter.levels, self.drafter.buckets))
        widths = self.widths.index_select(0, buckets)
        if noise is not None:
            log_q = log_q / temperature
            noise = noise.index_select(0, (levels.flatten() - 1).clamp(max=self.depth - 1))
        guesses = *top_tokens_and_scores(log_q, noise, self.terms.width, widths), widths, buckets
        return [each.view(*levels.shape, -1) for each in guesses]
