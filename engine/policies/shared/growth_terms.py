"""What policies differ in when trees are grown as tensors: data by policy, in `TERMS`. `growing_gpu` grows by it; one line a policy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.contracts import Policy
from engine.policies import best_first, rank_guided, talon
from engine.policies.beam import Beam
from engine.policies.best_first import BestFirst
from engine.policies.chain import Chain
from engine.policies.expand_rerank import ExpandRerank
from engine.policies.kary import FullKaryTree
from engine.policies.rank_guided import RankHeadGuidedTree
from engine.policies.sparse import CalibratedSparseTree
from engine.policies.talon import TalonNearBestPerLevel


@dataclass(frozen=True)
class TreeGrowthTerms:
    """What a policy grows a tree by. Lists go by level, or by generation of blocks.

    - `depth`: levels at most
    - `max_added_per_level`: how many of a level's candidates enter at most, and `max_expanded_per_level`: how many of those the
      drafter is asked about
    - `max_kept_nodes`: how many are kept in the end, the root included
    - `min_path_score`: what a path's score must reach; `min_share_of_level_best`: the share of the level's best that it must
      reach, from the second level on
    - `best_first_within_level`: whether a level's likeliest come first. Else nodes keep the order of their parents
    - `scores_by_q`: whether q is the score of a guess
    - `block_size`: positions of a block, where a rank head says how many guesses a position gets. `max_expanded_per_level` then
      counts positions
    - `fixed_levels`: of a fixed tree, by level the ranks that enter (row of the frontier times width plus rank), their scores, and
      those asked
    """

    width: int
    depth: int
    max_added_per_level: tuple[int, ...]
    max_expanded_per_level: tuple[int, ...]
    max_kept_nodes: int
    min_path_score: float = 0.0
    min_share_of_level_best: float = 0.0
    best_first_within_level: bool = False
    scores_by_q: bool = False
    block_size: int = 0
    fixed_levels: tuple[tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]], ...] = ()

    @classmethod
    def of_policy(cls, policy: Policy, vocab_size: int, drafter_depth: int) -> "TreeGrowthTerms | None":
        """Those of a policy, for a drafter that guesses so many levels of so many tokens. None for one that needs the host."""
        terms, levels = TERMS.get(type(policy)), min(policy.depth, drafter_depth)
        if not levels:
            return cls(1, 0, (), (), 1)
        return terms(policy, min(policy.width, vocab_size), levels) if terms else None

    @property
    def expanded_node_count(self) -> int:
        """Nodes that a drafter is asked about, the root included."""
        return 1 + sum(self.max_expanded_per_level)


def terms_of_level_by_level_policy(
    policy: Any,
    width: int,
    depth: int,
    count_entering: Callable[[Any, int, int], int] | None = None,
    count_expanded: Callable[[Any, int], int] | None = None,
    ignores_budget: bool = False,
    **other_terms: Any,
) -> TreeGrowthTerms:
    """`count_entering(policy, level, candidates)` of a level enter, and the drafter is asked about `count_expanded(policy, entered)`.

    Without them it is all. The budget of nodes does not count with `ignores_budget`.
    """
    entered, asked, frontier = [], [], 1
    for level in range(depth):
        entered.append(count_entering(policy, level, frontier * width) if count_entering else frontier * width)
        frontier = count_expanded(policy, entered[-1]) if count_expanded else entered[-1]
        asked.append(frontier if level + 1 < depth else 0)
    nodes = 1 + sum(entered) if ignores_budget else policy.nodes
    return TreeGrowthTerms(width, depth, tuple(entered), tuple(asked), nodes, **other_terms)


def cap_level_at_whole_node_budget(policy: Policy, level: int, candidate_count: int) -> int:
    """Caps a level at `policy.nodes - 1` nodes, because the root is one node of the budget."""
    return min(policy.nodes - 1, candidate_count)


def terms_of_rank_guided(policy: RankHeadGuidedTree, width: int, depth: int) -> TreeGrowthTerms:
    """The root's block, then generations of as many blocks as the tree is wide, until it is deep enough."""
    generations = min(rank_guided.MOST_BLOCKS, -(-policy.depth // depth))
    asking = depth, *[depth * min(width, policy.nodes - 1)] * (generations - 1)
    width, depths = min(width, max(rank_guided.WIDTHS)), min(policy.depth, generations * depth)
    entering = tuple(width * each for each in asking)
    return TreeGrowthTerms(width, depths, entering, asking, policy.nodes, rank_guided.LEAST_SCORE, block_size=depth)


def terms_of_sparse(policy: CalibratedSparseTree, width: int, depth: int) -> TreeGrowthTerms:
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
    return TreeGrowthTerms(width, len(fixed), entering, (*asking[:-1], 0), 1 + sum(entering), fixed_levels=tuple(fixed))


TERMS: dict[type[Policy], Callable[[Any, int, int], TreeGrowthTerms | None]] = {
    BestFirst: partial(
        terms_of_level_by_level_policy,
        count_entering=cap_level_at_whole_node_budget,
        min_path_score=best_first.LEAST_SCORE,
    ),
    ExpandRerank: partial(
        terms_of_level_by_level_policy, count_expanded=lambda policy, entered: min(policy.width, entered)
    ),
    Beam: partial(
        terms_of_level_by_level_policy,
        count_entering=lambda policy, level, most: min(policy.beams[level], most),
        best_first_within_level=True,
    ),
    TalonNearBestPerLevel: partial(
        terms_of_level_by_level_policy,
        count_entering=cap_level_at_whole_node_budget,
        min_share_of_level_best=talon.NEAR,
        best_first_within_level=True,
    ),
    FullKaryTree: partial(terms_of_level_by_level_policy, ignores_budget=True),
    Chain: lambda policy, _, depth: terms_of_level_by_level_policy(
        policy, 1, depth, ignores_budget=True, scores_by_q=True
    ),
    RankHeadGuidedTree: terms_of_rank_guided,
    CalibratedSparseTree: terms_of_sparse,
}
