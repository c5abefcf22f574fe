"""Output laws by exact enumeration, through the real policies and rules: the joint law of several tokens over several rounds.

Every sound pair of a policy and a rule that promises the target's distribution is within 1e-9 of it in total variation, on three
random pairs of models with laws of their own behind every text, one for each shape of static trees, and at every size tried. The
planted bugs of `test_a_planted_bug_is_seen` shift it by 0.01 to 0.5 on the same models, and by a thousand times 1e-9 on each of them.
"""

import math
from itertools import pairwise
from statistics import mean

import pytest
import torch

from engine.acceptance import ACCEPTANCES
from engine.acceptance.independent import LossyIndependentNodes
from engine.acceptance.speculative import ChainSpeculativeSampling
from engine.acceptance.typical import LossyTypicalAcceptance
from engine.acceptance.walk import normalised_residual
from engine.acceptance.with_replacement import MultiRoundWithReplacement
from engine.acceptance.without_replacement import MultiRoundWithoutReplacement
from engine.policies import POLICIES
from engine.policies.chain import Chain
from engine.policies.dyspec import DySpec
from engine.policies.kary import FullKaryTree
from engine.policies.widths import FixedWidths
from engine.record.calibration import Calibration
from engine.rounds.guiding import mask_forbidden_logits_only_at_leaves
from engine.sampling import Sampling
from engine.systems import SYSTEMS, is_sound_policy_for_acceptance
from engine.tree import DraftTree
from helpers.enumeration import Bound, Branching, Tables, distance, joint_law_of, law_of, target_law

TABLES, GUESSES = range(3), ("masked", "forced", "free")
LAWFUL = [
    (policy, rule)
    for rule in ACCEPTANCES
    for policy in POLICIES
    if ACCEPTANCES[rule].guarantee == "law" and is_sound_policy_for_acceptance(policy, rule)
]


def distance_of(tables: Tables, policy, rule, length: int, temperature: float = 0.8, **how) -> float:
    return distance(law_of(tables, policy, rule, temperature, length, **how), target_law(tables, temperature, length))


def made(policy: str, rule: str, shape: tuple[int, int, int], seed: int = 0):
    """Fresh parts; the acceptance vector of static trees changes with the seed, and with it their shape."""
    acceptance = [[0.7, 0.2, 0.1], [0.5, 0.4, 0.3], [0.4, 0.05, 0.05]][seed % 3]
    needed = ACCEPTANCES[rule].required_proposal_mode
    return POLICIES[policy](*shape, needed, Calibration(acceptance=acceptance)), ACCEPTANCES[rule]()


def test_every_lawful_system_is_among_the_enumerated():
    assert {(each.policy, each.acceptance) for each in SYSTEMS.values() if each.guarantee == "law"} <= set(LAWFUL)


@pytest.mark.no_cover  # counting lines would take half as long again
@pytest.mark.parametrize(("policy", "rule"), LAWFUL)
def test_a_lawful_rule_keeps_the_targets_joint_law(policy, rule):
    """Three tokens of three, up to four draws over two levels in a round; two tokens of four, three draws behind one node."""
    for seed in TABLES:
        assert distance_of(Tables(seed), *made(policy, rule, (2, 2, 5), seed), length=3) < 1e-9
        assert distance_of(Tables(seed, vocab=4), *made(policy, rule, (1, 3, 4), seed), length=2) < 1e-9


@pytest.mark.no_cover  # counting lines would take half as long again
@pytest.mark.parametrize(("policy", "rule"), LAWFUL)
def test_a_lawful_rule_writes_the_targets_own_tokens_at_temperature_0(policy, rule):
    """Drafts of branching policies are drawn at 0.6 then, so there is still something to enumerate."""
    for seed in TABLES:
        law = law_of(Tables(seed), *made(policy, rule, (2, 2, 5), seed), temperature=0.0, length=3)
        assert distance(law, target_law(Tables(seed), 0.0, 3)) < 1e-9


@pytest.mark.no_cover  # counting lines would take half as long again
@pytest.mark.parametrize(("policy", "rule"), LAWFUL)
def test_trees_that_end_at_stop_tokens_keep_the_law_of_texts_that_end_there(policy, rule):
    for seed in TABLES:
        tables = Tables(seed)
        tables.stop_ids = frozenset({1})
        law = law_of(tables, *made(policy, rule, (2, 2, 5), seed), temperature=0.8, length=3, stop=1)
        assert distance(law, target_law(tables, 0.8, 3, stop=1)) < 1e-9


@pytest.mark.no_cover  # counting lines would take half as long again
@pytest.mark.parametrize(("policy", "rule"), LAWFUL)
def test_under_a_constraint_a_lawful_rule_keeps_the_masked_joint_law(policy, rule):
    """The law is the target's with forbidden tokens left out behind every text, however drafts are guided."""
    for seed, guesses in enumerate(GUESSES):
        tables = Bound(seed, guesses=guesses)
        assert distance_of(tables, *made(policy, rule, (2, 2, 5), seed), length=3) < 1e-9
    assert distance_of(Bound(3, vocab=4), *made(policy, rule, (1, 3, 4)), length=2) < 1e-9
    assert distance_of(Bound(1), *made(policy, rule, (2, 2, 5)), length=3, temperature=0.0) < 1e-9


def free(guide, tree, logits):
    """Wrong: the draft alone is masked."""
    return logits


@pytest.mark.parametrize("mask", [mask_forbidden_logits_only_at_leaves, free])
def test_a_constraint_that_is_left_out_at_a_node_shifts_the_law(mask):
    """Masking only the draft, or only what follows the last tokens: measured 0.69, and 0.49 to 0.60, on average over six tables."""
    for parts in (
        (Chain(2, 1, 3, "one draw"), ChainSpeculativeSampling()),
        (DySpec(2, 2, 5, ""), MultiRoundWithoutReplacement()),
    ):
        distances = [distance_of(Bound(seed, mask=mask), *parts, length=3) for seed in range(6)]
        assert mean(distances) > 0.3, distances


def test_the_naive_rule_is_biased_and_typical_acceptance_is_lossy():
    """The naive rule is off by more than 0.05 on every table. Both are exact at temperature 0."""
    naive, typical = FullKaryTree(2, 2, 7, "top"), FullKaryTree(2, 2, 7, "top")
    distances = [distance_of(Tables(seed), naive, LossyIndependentNodes(), length=3) for seed in TABLES]
    assert min(distances) > 0.05
    assert mean(distance_of(Tables(seed), typical, LossyTypicalAcceptance(), length=3) for seed in TABLES) > 0.05
    for rule in (LossyIndependentNodes(), LossyTypicalAcceptance()):
        assert distance_of(Tables(0), naive, rule, length=3, temperature=0.0) < 1e-9


# ---- planted bugs: each is a small change to the real code


class AsIfDrawn(FullKaryTree):
    """p/q on a deterministic tree: the most probable tokens pass for drawn ones."""

    def grow(self, *args) -> DraftTree:
        tree = super().grow(*args)
        tree.draws = {node: tree.children(node) for node in range(len(tree)) if tree.children(node)}
        return tree


class NormalNoise(Branching):
    """c ~ N(0, 1), as Algorithm 3 is printed, for the uniform number: accepts with the probability that c is below the ratio."""

    def draw_acceptance(self, probability: float, *key) -> bool:
        return super().draw_acceptance((1 + math.erf(probability / math.sqrt(2))) / 2, *key)


class ZeroedFirst(MultiRoundWithoutReplacement):
    """D[y] is zeroed before the residual is taken."""

    def select_child_or_bonus_weights(self, tree, node, p, sampling, root_position):
        r, d = p, tree.q_rows[node]
        for number, child in enumerate(tree.draws[node]):
            token = tree.tokens[child]
            if sampling.draw_acceptance(float(r[token] / d[token]), "accept", root_position, node, number):
                return child, r
            d = self.distribution_of_next_draw(d, token)
            if d is None:
                break
            r = normalised_residual(r, d, p)
        return None, r


class BonusFromTarget(MultiRoundWithoutReplacement):
    """The bonus after a rejection is drawn from p, not from the residual."""

    def select_child_or_bonus_weights(self, tree, node, p, sampling, root_position):
        child, _ = super().select_child_or_bonus_weights(tree, node, p, sampling, root_position)
        return child, p


class Pruned(DySpec):
    """More is drawn than the budget holds, and the best are kept."""

    def grow(self, *args) -> DraftTree:
        tree = super().grow(*args)
        kept = sorted(range(len(tree)), key=lambda node: -tree.score[node])[:2]
        tree.draws = {node: [child for child in drawn if child in kept] for node, drawn in tree.draws.items()}
        tree.draws = {node: drawn for node, drawn in tree.draws.items() if node in kept and drawn}
        return tree.subtree(sorted(kept))


class OffByOne(MultiRoundWithoutReplacement):
    """Each node's logits are taken from the row before."""

    def decide(self, tree, logits, sampling, root_position):
        return super().decide(tree, logits[[0, *range(len(tree) - 1)]], sampling, root_position)


class BonusFromRootsRow(MultiRoundWithoutReplacement):
    """The bonus behind an accepted leaf comes from the root's row."""

    def decide(self, tree, logits, sampling, root_position):
        rows = [node if node in tree.draws else 0 for node in range(len(tree))]
        return super().decide(tree, logits[rows], sampling, root_position)


class OtherTemperature(DySpec):
    """Drawn at one temperature, verified with q of another (0.8 and 1)."""

    def grow(self, *args) -> DraftTree:
        tree = super().grow(*args)
        tree.q_rows = {node: (row.log() * 0.8).softmax(-1) for node, row in tree.q_rows.items()}
        return tree


class DuplicatesDropped(FixedWidths):
    """Draws with replacement, of which a second of the same token is forgotten."""

    def grow(self, *args) -> DraftTree:
        tree = super().grow(*args)
        tree.draws = {node: list(dict.fromkeys(drawn)) for node, drawn in tree.draws.items()}
        return tree


BUGS = {
    "p/q on a top-k tree, one after another": (
        AsIfDrawn(2, 2, 7, "top"),
        MultiRoundWithoutReplacement(),
        Branching,
        0.1,
    ),
    "p/q on a top-1 chain": (AsIfDrawn(2, 1, 3, "top"), ChainSpeculativeSampling(), Branching, 0.1),
    "normal noise": (DySpec(2, 2, 5, ""), MultiRoundWithoutReplacement(), NormalNoise, 0.05),
    "q zeroed before the residual": (DySpec(2, 2, 5, ""), ZeroedFirst(), Branching, 0.05),
    "bonus from p": (DySpec(2, 2, 5, ""), BonusFromTarget(), Branching, 0.01),
    "pruned after drawing": (Pruned(1, 2, 3, ""), MultiRoundWithoutReplacement(), Branching, 0.02),
    "logits off by one row": (DySpec(2, 2, 5, ""), OffByOne(), Branching, 0.05),
    "bonus from the root's row": (DySpec(2, 2, 5, ""), BonusFromRootsRow(), Branching, 0.05),
    "another draft temperature": (OtherTemperature(2, 2, 5, ""), MultiRoundWithoutReplacement(), Branching, 0.01),
    "duplicates dropped": (DuplicatesDropped(1, 3, 4, ""), MultiRoundWithReplacement(), Branching, 0.005),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(name):
    policy, rule, sampling, least = BUGS[name]
    distances = [distance_of(Tables(seed), policy, rule, length=3, sampling=sampling) for seed in TABLES]
    assert mean(distances) > least and min(distances) > 1e-6, distances


class KeptNoise(Branching):
    """Draft tokens by inversion of a uniform number, of which only the interval that it must lie in is known."""

    forgets_position = False

    def start(self, script: list[int], position: int | None) -> None:
        super().start(script, position)
        self.__dict__["known"] = {}

    def draw_index_by_weight(self, weights: torch.Tensor, purpose: str, position: int, *key) -> int:
        if purpose != "draft":
            return super().draw_index_by_weight(weights, purpose, position, *key)
        name = key if self.forgets_position else (position, *key)
        low, high = self.known.get(name, (0.0, 1.0))
        edges = [0.0, *weights.cumsum(-1).tolist()]
        parts = [(max(low, a), min(high, b)) for a, b in pairwise(edges)]
        token = self.decide([max(0.0, b - a) for a, b in parts])
        self.known[name] = parts[token]
        return token


class ReusedNoise(KeptNoise):
    """Draft noise is drawn once for the prompt and used again in every round."""

    forgets_position = True


def test_draft_noise_that_is_reused_is_seen():
    """The first round alone is clean, and so is every marginal: only the joint law over rounds shows it."""
    clean, reused = [], []
    for seed in TABLES:
        tables, parts = Tables(seed), (Chain(1, 1, 2, "one draw"), ChainSpeculativeSampling())
        wanted = target_law(tables, 0.8, 4)
        clean.append(distance(joint_law_of(tables, *parts, 0.8, 4, KeptNoise), wanted))
        reused.append(distance(joint_law_of(tables, *parts, 0.8, 4, ReusedNoise), wanted))
    assert max(clean) < 1e-9
    assert mean(reused) > 0.02, reused


# ---- the draws themselves, which the enumeration replaces


def test_independent_draws_follow_q():
    """40,000 draws of 4 tokens: a standard error of at most 0.0025, so 0.0125 is five of them. Impossible tokens never come."""
    q = torch.tensor([0.5, 0.0, 0.3, 0.2])
    rows = Sampling(seed=3).draw_with_replacement(q.expand(20_000, 4), [2] * 20_000, "draft", 0, 0)
    counts = torch.bincount(torch.tensor([token for row in rows for token, _ in row]), minlength=4) / 40_000
    assert counts[1] == 0 and torch.allclose(counts, q, atol=0.0125)
    assert all(share == q[token] for row in rows[:100] for token, share in row)


def test_draws_without_replacement_follow_the_law_of_successive_draws():
    """40,000 rows, 24 orders of 4 tokens: five standard errors are at most 0.011."""
    q = torch.tensor([0.5, 0.05, 0.3, 0.15], dtype=torch.float64)
    orders: dict[tuple[int, ...], int] = {}
    for row in Sampling(seed=4).draw_without_replacement(q.expand(40_000, 4), 4, "draft", 0, 0):
        order = tuple(token for token, _ in row)
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == 24 and all(len(set(order)) == 4 for order in orders)
    for order, count in orders.items():
        chance, left = 1.0, 1.0
        for token in order:
            chance, left = chance * float(q[token]) / left, left - float(q[token])
        assert count / 40_000 == pytest.approx(chance, abs=0.011)


def test_draws_without_replacement_end_with_the_support():
    [row] = Sampling(seed=5).draw_without_replacement(torch.tensor([[0.0, 0.25, 0.0, 0.75]]), 4, "draft", 0, 0)
    assert sorted(row) == [(1, 0.25), (3, 0.75)]
