"""Rules that judge whole paths, and every lawful rule where drafting is awkward: exact laws by enumeration.

`test_laws.py` proves them on random tables; here tables have zeros, the draft equals the target or is sharper, and texts end early.
"""

import random
from statistics import mean

import pytest
import torch

from engine.acceptance import ACCEPTANCES, gbv
from engine.acceptance.block import BlockVerification
from engine.acceptance.gbv import GreedyMultiPathBlockVerification
from engine.acceptance.speculative import ChainSpeculativeSampling
from engine.acceptance.traversal import TraversalVerification
from engine.acceptance.without_replacement import MultiRoundWithoutReplacement
from engine.policies import POLICIES
from engine.policies.chain import Chain
from engine.policies.chains import MergedChains
from engine.policies.dyspec import DySpec
from engine.policies.widths import FixedWidths
from engine.record.calibration import Calibration
from engine.sampling import Sampling
from engine.systems import is_sound_policy_for_acceptance
from engine.tree import DraftTree
from helpers.enumeration import Branching, Tables, distance, law_of, one_round, target_law

CALIBRATION = Calibration(acceptance=[0.7, 0.2, 0.1])
LAWFUL = [
    (policy, rule)
    for rule in ACCEPTANCES
    for policy in POLICIES
    if ACCEPTANCES[rule].guarantee == "law" and is_sound_policy_for_acceptance(policy, rule)
]
JUDGED_ELSEWHERE = ("with_replacement", "without_replacement", "k_seq")  # where p is q: test_acceptance.py


class Zeros(Tables):
    """A third of all tokens is impossible, and not the same ones for target and draft."""

    def logits(self, kind: str, context: tuple[int, ...]) -> torch.Tensor:
        if (kind, context) not in self.rows:
            row, rng = super().logits(kind, context), random.Random(f"zeros {self.seed} {kind} {context}")
            kept = rng.randrange(self.vocab)
            for token in range(self.vocab):
                if token != kept and rng.random() < 0.5:
                    row[token] = -torch.inf
        return self.rows[kind, context]


class SameDraft(Tables):
    def logits(self, kind: str, context: tuple[int, ...]) -> torch.Tensor:
        return super().logits("p", context)


class SharperDraft(Tables):
    """The draft is the target at less than half of the temperature."""

    def logits(self, kind: str, context: tuple[int, ...]) -> torch.Tensor:
        return super().logits("p", context) * (1 if kind == "p" else 2.5)


class Silent(Tables):
    silent = frozenset({0, 2})


AWKWARD = [
    (policy, rule, tables)
    for policy, rule in LAWFUL
    for tables in ((Zeros, Silent) if rule in JUDGED_ELSEWHERE else (Zeros, Silent, SameDraft, SharperDraft))
]


@pytest.mark.parametrize(("policy", "rule", "tables"), AWKWARD)
def test_a_lawful_rule_keeps_the_law_on_awkward_tables(policy, rule, tables):
    """Three tokens at most, over several rounds: the second has room for one guess, the third for none. Token 1 ends a text."""
    parts = POLICIES[policy](2, 2, 5, ACCEPTANCES[rule].required_proposal_mode, CALIBRATION), ACCEPTANCES[rule]()
    law, wanted = law_of(tables(0), *parts, 0.8, 3, stop=1), target_law(tables(0), 0.8, 3, stop=1)
    assert (1,) in wanted and max(map(len, law)) == 3
    assert sum(law.values()) == pytest.approx(1) and distance(law, wanted) < 1e-9


# ---- how much they accept


def expected(tables: Tables, policy, rule, temperature: float = 1.0, room: int = 9) -> float:
    """Expected guesses that a first round accepts."""
    rounds, scripts, found = Branching(temperature=temperature), [[]], 0.0
    while scripts:
        rounds.start(scripts.pop(), position=0)
        found += (len(one_round(tables, (), policy, rule, rounds, room)) - 1) * rounds.weight
        scripts += rounds.open
    return found


class TwoTokens(Tables):
    """p = (1/3, 2/3) and q = (2/3, 1/3) everywhere."""

    def logits(self, kind: str, context: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor([1.0, 2.0] if kind == "p" else [2.0, 1.0], dtype=torch.float64).log()


def test_the_papers_example_of_two_guesses():
    """Sun et al. 2024, section 2: guesses judged one by one give 10/9 accepted, judged as a block 11/9."""
    tables = TwoTokens(0, vocab=2)
    assert expected(tables, Chain(2, 1, 3, "one draw"), ChainSpeculativeSampling()) == pytest.approx(10 / 9)
    for rule in (BlockVerification(), TraversalVerification(), GreedyMultiPathBlockVerification()):
        assert expected(tables, Chain(2, 1, 3, "one draw"), rule) == pytest.approx(11 / 9)


def test_on_one_chain_all_three_are_block_verification_which_never_accepts_less():
    gains = []
    for seed in range(8):
        chain, tables = Chain(3, 1, 4, "one draw"), Tables(seed)
        one_by_one, block = (
            expected(tables, chain, ChainSpeculativeSampling()),
            expected(tables, chain, BlockVerification()),
        )
        assert expected(tables, chain, TraversalVerification()) == pytest.approx(block)
        assert expected(tables, MergedChains(3, 1, 4, ""), GreedyMultiPathBlockVerification()) == pytest.approx(block)
        gains.append(block - one_by_one)
    assert min(gains) > -1e-9 and mean(gains) > 0.01


def test_traversal_accepts_more_of_the_same_trees_and_more_chains_let_the_best_reach_further():
    for seed in range(2):
        tables, policy = Tables(seed), DySpec(2, 2, 5, "")
        assert (
            expected(tables, policy, TraversalVerification())
            > expected(tables, policy, MultiRoundWithoutReplacement()) - 1e-9
        )
    reached = [
        mean(
            expected(Tables(seed), MergedChains(2, k, 1 + 2 * k, ""), GreedyMultiPathBlockVerification())
            for seed in range(2)
        )
        for k in (1, 2)
    ]
    assert reached[0] + 0.05 < reached[1]


def test_the_law_of_the_best_chain_is_that_of_all_chains():
    """Every pair of chains of two tokens, drawn from three: the best one's first and second token against the products of the laws."""
    torch.manual_seed(3)
    q, p = torch.rand(4, 3, dtype=torch.float64).softmax(-1), torch.rand(4, 3, dtype=torch.float64).softmax(-1)
    ranks = [gbv.rank_tokens_by_likelihood_ratio(p[row], q[row]) for row in range(4)]
    wanted = torch.zeros(3, 3, dtype=torch.float64)
    chains = [(a, b) for a in range(3) for b in range(3)]
    for one in chains:
        for other in chains:
            best = max(one, other, key=lambda chain: (int(ranks[0][chain[0]]), int(ranks[chain[0] + 1][chain[1]])))
            wanted[best] += torch.stack([q[0, a] * q[a + 1, b] for a, b in (one, other)]).prod()
    first, low, high = gbv.best_chain_token_distribution_and_bounds(q[0], ranks[0], 0.0, 2)
    for token in range(3):
        second, _, _ = gbv.best_chain_token_distribution_and_bounds(
            q[token + 1], ranks[token + 1], float(low[token] / high[token]), 2
        )
        assert torch.allclose(first[token] * second, wanted[token])


# ---- planted bugs


class StopsAtTheFirst(Branching):
    """Once a guess failed, no later one is tried."""

    def start(self, script: list[int], position: int | None) -> None:
        super().start(script, position)
        self.__dict__["failed"] = False

    def draw_acceptance(self, probability: float, *key) -> bool:
        passed = not self.failed and super().draw_acceptance(probability, *key)
        self.__dict__["failed"] = not passed
        return passed


class LeafTwice(Branching):
    """Every leaf is tried twice."""

    def draw_acceptance(self, probability: float, *key) -> bool:
        return super().draw_acceptance(1 - (1 - min(1.0, probability)) ** 2, *key)


class Sorted(DySpec):
    """Siblings are tried by their q, the greatest first, not in the order of their draws."""

    def grow(self, *args) -> DraftTree:
        tree = super().grow(*args)
        tree.draws = {node: sorted(drawn, key=lambda child: -tree.q[child]) for node, drawn in tree.draws.items()}
        return tree


def without_reach(reach: float, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (p - q).clamp(min=0)


def only_left(left: float, lost: float) -> float:
    return min(1.0, left)


def plain_q(q: torch.Tensor, rank: torch.Tensor, worse: float, chains: int):
    return q, torch.zeros_like(q), torch.ones_like(q)


CHAIN, TREE, CHAINS = Chain(2, 1, 3, "one draw"), DySpec(2, 2, 5, ""), MergedChains(2, 2, 5, "")
BUGS = {
    "block: residual not scaled": (
        CHAIN,
        BlockVerification(),
        Branching,
        ("block.unnormalised_block_residual", without_reach),
        0.01,
    ),
    "block: share of the residual alone": (
        CHAIN,
        BlockVerification(),
        Branching,
        ("block.share_of_passing_mass", only_left),
        0.01,
    ),
    "block: stops at the first failure": (CHAIN, BlockVerification(), StopsAtTheFirst, None, 0.01),
    "block: the last guess tried twice": (CHAIN, BlockVerification(), LeafTwice, None, 0.01),
    "traversal: residual not scaled": (
        TREE,
        TraversalVerification(),
        Branching,
        ("traversal.unnormalised_block_residual", without_reach),
        0.005,
    ),
    "traversal: share of the residual alone": (
        TREE,
        TraversalVerification(),
        Branching,
        ("traversal.share_of_passing_mass", only_left),
        0.01,
    ),
    "traversal: siblings sorted": (Sorted(2, 2, 5, ""), TraversalVerification(), Branching, None, 0.01),
    "traversal: a leaf counted twice": (TREE, TraversalVerification(), LeafTwice, None, 0.01),
    "gbv: q of a single chain": (
        CHAINS,
        GreedyMultiPathBlockVerification(),
        Branching,
        ("gbv.best_chain_token_distribution_and_bounds", plain_q),
        0.01,
    ),
    "gbv: draws that are no chains": (
        FixedWidths(2, 2, 5, ""),
        GreedyMultiPathBlockVerification(),
        Branching,
        None,
        0.005,
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(name, monkeypatch):
    policy, rule, sampling, patch, least = BUGS[name]
    if patch:
        monkeypatch.setattr(f"engine.acceptance.{patch[0]}", patch[1])
    found = [
        distance(law_of(Tables(seed), policy, rule, 0.8, 3, sampling), target_law(Tables(seed), 0.8, 3))
        for seed in range(2)
    ]
    assert mean(found) > least, found


def test_where_draft_and_target_are_the_same_every_guess_passes_in_float32_too():
    row = torch.randn(50, generator=torch.Generator().manual_seed(1))
    for rule in (BlockVerification(), TraversalVerification(), GreedyMultiPathBlockVerification()):
        for seed in range(20):
            assert len(one_round(Constant(row), (), CHAIN, rule, Sampling(temperature=0.7, seed=seed), 9)) == 3


class Constant(Tables):
    def __init__(self, row: torch.Tensor):
        super().__init__(0, len(row))
        self.row = row

    def logits(self, kind: str, context: tuple[int, ...]) -> torch.Tensor:
        return self.row
