"""`engine.policies.shared.growing` as tensors; held equal by tests/fast/test_equal_to_reference.py[policies.shared.growing_gpu].

A tree of any policy in `TERMS` over any drafter of `engine.drafters.on_device`, in fixed shapes and without waiting for the host. What
policies differ in is data. Dead nodes fill the shapes and have no living descendants.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine.contracts import Policy
from engine.forward.devices import widest
from engine.policies import best_first, rank_guided, talon
from engine.policies.beam import Beam
from engine.policies.best_first import BestFirst
from engine.policies.chain import Chain
from engine.policies.expand_rerank import ExpandRerank
from engine.policies.kary import Kary
from engine.policies.rank_guided import RankGuided
from engine.policies.shared.ranking import ranked
from engine.policies.sparse import Sparse
from engine.policies.talon import Talon

DEAD = -1.0  # the score of a node that only fills a shape


@dataclass(frozen=True)
class Terms:
    """What a policy grows a tree by. Lists go by level.

    - `entering`: how many of a level's candidates enter at most, and `asking`: how many of those the drafter is asked about
    - `nodes`: how many are kept in the end, the root included
    - `least`: what a path's score must reach; `near`: the share of the level's best that it must reach, from the second level on
    - `ordered`: whether a level's likeliest come first. Else nodes keep the order of their parents
    - `by_q`: whether q is the score of a guess
    - `widths`: guesses at a position by the drafter's bucket, where it has a rank head; the level goes on from its favourite alone
    - `fixed`: of a fixed tree, by level the ranks that enter (row of the frontier times width plus rank), their scores, and those asked
    """

    width: int
    entering: tuple[int, ...]
    asking: tuple[int, ...]
    nodes: int
    least: float = 0.0
    near: float = 0.0
    ordered: bool = False
    by_q: bool = False
    widths: tuple[int, ...] = ()
    fixed: tuple[tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]], ...] = ()

    @classmethod
    def of(cls, policy: Policy, vocab: int, depth: int) -> "Terms | None":
        """Those of a policy, for a drafter that guesses `depth` levels of `vocab` tokens. None for one that needs the host."""
        terms, levels = TERMS.get(type(policy)), min(policy.depth, depth)
        if not levels:
            return cls(1, (), (), 1)
        return terms(policy, min(policy.width, vocab), levels) if terms else None

    @property
    def rows(self) -> int:
        """Nodes that a drafter is asked about, the root included."""
        return 1 + sum(self.asking)


def of_levels(
    policy: Any,
    width: int,
    depth: int,
    entering: Callable[[Any, int, int], int] | None = None,
    asking: Callable[[Any, int], int] | None = None,
    whole: bool = False,
    **others: Any,
) -> Terms:
    """`entering(policy, level, candidates)` counts what enters a level, and `asking(policy, entered)` what of that is asked about.

    Without them it is all. The budget of nodes does not count where the tree is kept `whole`.
    """
    entered, asked, frontier = [], [], 1
    for level in range(depth):
        entered.append(entering(policy, level, frontier * width) if entering else frontier * width)
        frontier = asking(policy, entered[-1]) if asking else entered[-1]
        asked.append(frontier if level + 1 < depth else 0)
    nodes = 1 + sum(entered) if whole else policy.nodes
    return Terms(width, tuple(entered), tuple(asked), nodes, **others)


def within_budget(policy: Policy, level: int, found: int) -> int:
    """A tree of `nodes` nodes has at most `nodes - 1` on a level, so every level asks about that many at once."""
    return min(policy.nodes - 1, found)


def of_rank_guided(policy: RankGuided, width: int, depth: int) -> Terms | None:
    """One block: every position offers what its bucket allows, and the chain goes on from the favourite. None for deeper trees."""
    if policy.depth > depth:
        return None
    least, widths = rank_guided.LEAST_SCORE, rank_guided.WIDTHS
    return of_levels(policy, width, depth, asking=lambda *_: 1, least=least, widths=widths)


def of_sparse(policy: Sparse, width: int, depth: int) -> Terms:
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
    return Terms(width, entering, (*asking[:-1], 0), 1 + sum(entering), fixed=tuple(fixed))


TERMS: dict[type[Policy], Callable[[Any, int, int], Terms | None]] = {
    BestFirst: partial(of_levels, entering=within_budget, least=best_first.LEAST_SCORE),
    ExpandRerank: partial(of_levels, asking=lambda policy, entered: min(policy.width, entered)),
    Beam: partial(of_levels, entering=lambda policy, level, found: min(policy.beams[level], found), ordered=True),
    Talon: partial(of_levels, entering=within_budget, near=talon.NEAR, ordered=True),
    Kary: partial(of_levels, whole=True),
    Chain: lambda policy, _, depth: of_levels(policy, 1, depth, whole=True, by_q=True),
    RankGuided: of_rank_guided,
    Sparse: of_sparse,
}


@dataclass(frozen=True)
class DeviceTree:
    """A `DraftTree` as tensors `[N]`; dead nodes come last.

    - `tokens`, `parents`, `depth`: int64; the root's parent is -1
    - `score`: float64, `DEAD` for dead nodes
    - `q`: float32
    - `places`: int64, numbers of the nodes that the drafter was asked about, in the order of asking; 0 for the root and all others
    - `above`: bool `[N, R]`, which of these numbers are a node's ancestors
    """

    tokens: Tensor
    parents: Tensor
    depth: Tensor
    score: Tensor
    q: Tensor
    places: Tensor
    above: Tensor

    @classmethod
    def rooted(cls, root: Tensor, rows: int = 1) -> "DeviceTree":
        """The tree of the token `root [1]` alone."""
        zero, one = torch.zeros_like(root), torch.ones_like(root)
        none = torch.zeros(1, rows, dtype=torch.bool, device=root.device)
        return cls(root, zero - 1, zero, one.to(widest(root.device)), one.float(), zero, none)

    def kept(self, nodes: int) -> "DeviceTree":
        """The subtree of the `nodes` best nodes, in their order, dead ones last.

        It holds every kept node's parent, because scores do not grow along a path and ties go to the earlier node.
        """
        order = self.score[1:].sort(descending=True, stable=True).indices[: nodes - 1] + 1
        size = len(self.tokens)
        behind = torch.where(self.score.index_select(0, order) > 0, order, order + size).sort().values % size
        chosen = torch.cat([torch.zeros_like(order[:1]), behind])
        place = torch.zeros_like(self.parents).scatter(0, chosen, torch.arange(len(chosen), device=order.device))
        rows = {name: value.index_select(0, chosen) for name, value in vars(self).items()}
        parents = torch.cat([self.parents[:1], place.index_select(0, rows["parents"][1:])])
        return DeviceTree(**rows | {"parents": parents})

    @property
    def lineage(self) -> Tensor:
        """bool `[N, N]`: which nodes each may attend to, its ancestors and itself."""
        own = torch.eye(len(self.tokens), dtype=torch.bool, device=self.tokens.device)
        asked = (self.places > 0) | (self.parents < 0)
        return (self.above.index_select(1, self.places) & asked) | own


@dataclass(frozen=True)
class Frontier:
    """Nodes of one `depth` that a drafter is asked about together, as tensors `[n]`.

    `places` number them among all that are asked about, and `parents` are the places of their parents; the root's is 0. `lineage` bool
    `[n, R]` says which places each may attend to, its own included.
    """

    depth: int
    tokens: Tensor
    positions: Tensor
    places: Tensor
    parents: Tensor
    lineage: Tensor


def best(scores: Tensor, count: int, ordered: bool = False) -> Tensor:
    """The indices of the `count` highest of `scores [n]`, in ascending order or the best first. A tie goes to the earlier one."""
    found = scores.sort(descending=True, stable=True).indices[:count]
    return found if ordered else found.sort().values


class DeviceGrower:
    """Trees by the `terms` of a policy over a `drafter` of `engine.drafters.on_device`. Nothing grows below `stop_ids`."""

    def __init__(self, terms: Terms, drafter: Any, stop_ids: frozenset[int], device: torch.device):
        self.terms, self.drafter, self.depth = terms, drafter, len(terms.entering)
        self.numbers = torch.arange(max(1 + sum(terms.entering), terms.rows), device=device)
        kinds = torch.long, widest(device), torch.long
        self.fixed = [
            [torch.tensor(each, dtype=kind, device=device) for each, kind in zip(level, kinds, strict=True)]
            for level in terms.fixed
        ]
        self.stop_ids = torch.tensor(sorted(stop_ids), dtype=torch.long, device=device)
        self.widths = torch.tensor(terms.widths, dtype=torch.long, device=device)
        self.ranks = torch.arange(terms.width, device=device)

    def grow(self, root: Tensor, base: Tensor, room: Tensor, temperature: Tensor, noise: Tensor | None) -> DeviceTree:
        """A tree of at most `room` levels below the token `root`, which stands at position `base`.

        All four are tensors of one number. `noise [>= depth, V]` is that of the positions behind the root, None when greedy.
        """
        terms, numbers = self.terms, self.numbers
        levels = [DeviceTree.rooted(root, terms.rows)]
        parents, scores, start, asked = numbers[:1], levels[0].score, 1, 1
        places, lineage = numbers[:1], (numbers[: terms.rows] == 0)[None]
        log_q = self.drafter.first(root, base)
        for level, (enter, ask) in enumerate(zip(terms.entering, terms.asking, strict=True), 1):
            scaled = log_q if noise is None else log_q / temperature
            tokens, shares, q = ranked(scaled, None if noise is None else noise[level - 1], terms.width)
            paths = scores[:, None] * (q if terms.by_q else shares).to(scores.dtype)
            dead = (paths <= 0) | (paths < terms.least) | (room < level)
            if terms.widths:
                dead = dead | (self.ranks >= self.widths.index_select(0, self.drafter.buckets[level - 1 : level]))
            paths = paths.masked_fill(dead, DEAD).flatten()
            if terms.fixed:
                chosen, values, picked = self.fixed[level - 1]
                paths = torch.where(paths.index_select(0, chosen) > 0, values, DEAD)
            else:
                if terms.near and level > 1:
                    paths = paths.masked_fill(paths < terms.near * paths.max(), DEAD)
                chosen = best(paths, enter, terms.ordered)
                paths = paths.index_select(0, chosen)
                if terms.near:  # a level that exceeds the budget ends with it
                    spent = sum((each.score > 0).sum() for each in levels)
                    paths = paths.masked_fill(numbers[:enter] >= terms.nodes - spent, DEAD)
            entering = tokens.flatten().index_select(0, chosen)
            going_on = paths.masked_fill((entering[:, None] == self.stop_ids).any(-1), DEAD)
            if not terms.fixed:
                picked = numbers[:ask] if ask == enter or terms.widths else best(going_on, ask)
            above = chosen // terms.width
            seen, zeros = lineage.index_select(0, above), torch.zeros_like(chosen)
            own = zeros.index_copy(0, picked, numbers[asked : asked + ask]) if ask else zeros
            entered = parents.index_select(0, above), zeros + level
            levels.append(DeviceTree(entering, *entered, paths, q.flatten().index_select(0, chosen), own, seen))
            if not ask:
                break
            above, scores = places.index_select(0, above.index_select(0, picked)), going_on.index_select(0, picked)
            places, parents = numbers[asked : asked + ask], start + picked
            lineage = seen.index_select(0, picked) | (numbers[: terms.rows] == places[:, None])
            positions = torch.where(scores > 0, base + level, base)  # dead ones stay within the context
            frontier = Frontier(level, entering.index_select(0, picked), positions, places, above, lineage)
            log_q, start, asked = self.drafter.level(frontier, base), start + enter, asked + ask
        grown = {name: torch.cat([getattr(each, name) for each in levels]) for name in vars(levels[0])}
        return DeviceTree(**grown).kept(min(terms.nodes, len(grown["tokens"])))
