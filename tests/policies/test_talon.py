"""Talon beside a plain statement of its rule: the first level by number, deeper ones by nearness to the level's best, all by budget."""

import itertools

import pytest

from engine.policies.best_first import BestFirst
from engine.policies.shared.ranking import shortlist_by_shared_gumbel
from engine.policies.talon import NEAR, TalonNearBestPerLevel
from engine.sampling import Sampling
from helpers.enumeration import TableDrafter, Tables, tokens_to


def stated(tables: Tables, sampling: Sampling, depth: int, width: int, nodes: int) -> dict[tuple[int, ...], float]:
    """The paths of the tree, with their chances."""
    level, tree = {(): 1.0}, {}
    for number in range(1, depth + 1):
        behind = {}
        for path, chance in level.items():
            log_q = tables.logits("q", path).log_softmax(-1)[None]
            [tokens], [scores], _ = (
                each.tolist() for each in shortlist_by_shared_gumbel(log_q, number, width, sampling)
            )
            behind |= {(*path, token): chance * each for token, each in zip(tokens, scores, strict=True)}
        likeliest = sorted(behind, key=lambda path: -behind[path])
        near = [path for path in likeliest if number == 1 or behind[path] >= NEAR * behind[likeliest[0]]]
        level = {path: behind[path] for path in near[: nodes - 1 - len(tree)]}
        tree |= level
        if len(tree) == nodes - 1:
            break
    return tree


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_tree_is_what_the_rule_says(temperature):
    grown_past_a_gate = 0
    for seed, (depth, width, nodes) in itertools.product(range(12), ((4, 3, 12), (6, 2, 9), (3, 4, 60))):
        tables, sampling = Tables(seed, vocab=6), Sampling(temperature=temperature, seed=seed)
        tree = TalonNearBestPerLevel(depth, width, nodes, "ranked").grow(TableDrafter(tables, ()), 0, 0, sampling, 9)
        expected = stated(tables, sampling, depth, width, nodes)
        found = {tuple(tokens_to(tree, node)): tree.score[node] for node in range(1, len(tree))}
        assert found == pytest.approx(expected)
        grown_past_a_gate += nodes > len(tree) > 1
    assert grown_past_a_gate  # somewhere a guess was too unlikely beside its level's best


def grown_by(policy, sharpness: float):
    """The tree of a drafter that is as sure as that."""
    tables = Tables(3, vocab=6)
    plain = tables.logits
    tables.logits = lambda kind, path: plain(kind, path) * sharpness
    return policy(6, 3, 9, "ranked").grow(TableDrafter(tables, ()), 0, 0, Sampling(temperature=0.0), 9)


def test_sure_guesses_make_a_deep_tree_and_doubtful_ones_a_wide_one():
    sure, doubtful = grown_by(TalonNearBestPerLevel, 8), grown_by(TalonNearBestPerLevel, 0.5)
    assert max(sure.depth) > max(doubtful.depth) and sure.depth.count(2) < doubtful.depth.count(2)
    assert len(sure) == len(doubtful) == 9  # both spend the whole budget
    best = grown_by(BestFirst, 8)
    assert sure.depth.count(1) == 3 > best.depth.count(1)  # best first leaves what is hardly possible
