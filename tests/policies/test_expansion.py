"""Expansion: what a compiled drafter grows in one call is what it grows when it is asked level by level, round after round."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.contracts import Drafter
from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.kernels.expansion import Expansion, admit, harvest, plant
from engine.policies.auto import Auto
from engine.policies.best_first import BestFirst
from engine.policies.expand_rerank import ExpandRerank
from engine.policies.growing import grow, grown
from engine.record.costs import Costs
from engine.sampling import Sampling
from engine.target import Target
from helpers.enumeration import TableDrafter, Tables
from helpers.learned import TEXT, pair_with
from helpers.pairs import tiny_llama

COSTS = Costs({1: 5.0, 2: 5.1, 8: 5.8, 16: 7.0, 32: 10.0}, first_ms=0.4, level_ms=0.2)
POLICIES = {
    "best_first": lambda: BestFirst(4, 3, 9, "ranked"),
    "expand_rerank": lambda: ExpandRerank(4, 3, 9, "ranked"),
    "auto": lambda: Auto(6, 3, 12, "ranked", None, COSTS),
}


@pytest.fixture(scope="module")
def pair():
    """A random pair whose draft and EAGLE are compiled."""
    made = pair_with("eagle")
    made.net("eagle").pack()
    return replace(made, draft=Runner(tiny_llama(1, layers=2), eight_bit=True))


def trees(pair, name: str, policy, sampling: Sampling, at_once: bool) -> list:
    """The trees of a few rounds along TEXT, with accepted paths of several lengths, and how many forwards drafted each."""
    target, drafter = Target(pair.target, 90, features=name == "eagle"), DRAFTERS[name](pair, 90)
    assert drafter.grows
    drafter.grows, root, found = at_once, 2, []
    drafter.begin(TEXT[:3], target.prefill(TEXT[:2]))
    for accepted in (0, 2, 1, 3, 0, 2):
        before = drafter.forwards
        tree = policy.grow(drafter, TEXT[root], target.length, sampling, 9)
        found.append((tree, drafter.forwards - before))
        _, features = target.verify(tree)
        deepest = max(range(len(tree)), key=lambda node: tree.depth[node])
        path = tree.path(deepest)[:accepted]
        target.commit(path)
        root += 1
        policy.learn(tree, path)
        drafter.commit(tree, path, TEXT[root], features)
    return found


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, seed=3)])
@pytest.mark.parametrize("name", ["model", "eagle"])
@pytest.mark.parametrize("policy", POLICIES)
def test_one_call_grows_the_tree_of_a_question_a_level(pair, policy, name, sampling):
    at_once, asked = (trees(pair, name, POLICIES[policy](), sampling, flag) for flag in (True, False))
    sizes = set()
    for (tree, forwards), (other, others) in zip(at_once, asked, strict=True):
        assert (tree.tokens, tree.parents, tree.depth, tree.keys) == (
            other.tokens,
            other.parents,
            other.depth,
            other.keys,
        )
        assert tree.score == pytest.approx(other.score, rel=1e-3) and tree.q == pytest.approx(other.q, rel=1e-3)
        assert forwards == others >= 1
        sizes.add(len(tree))
    assert max(sizes) > 4


def test_what_top_k_excludes_stays_out_of_the_tree(pair):
    """The compiled loop knows no top-k, so the drafter is asked level by level."""
    sampling = Sampling(1.0, top_k=2, seed=1)
    drafter = DRAFTERS["model"](pair, 90)
    drafter.begin(TEXT[:3])
    tree = ExpandRerank(2, 4, 20, "ranked").grow(drafter, TEXT[2], 2, sampling, 9)
    assert sum(q > 0 for q, depth in zip(tree.q, tree.depth, strict=True) if depth == 1) == 2


def test_a_cache_that_is_full_ends_the_tree(pair):
    depths = []
    for capacity in (90, 8):
        drafter = DRAFTERS["model"](pair, capacity)
        drafter.begin(TEXT[:3])
        depths.append(max(ExpandRerank(6, 3, 30, "ranked").grow(drafter, TEXT[2], 2, Sampling(), 9).depth))
    assert depths == [6, 2]  # three rows of the text and three of a level fit into eight


def test_forwards_are_part_of_the_time_that_growing_takes(pair):
    drafter = DRAFTERS["model"](pair, 90)
    drafter.begin(TEXT[:3])
    room = Expansion(3, 2, beams=2)
    grow(room, drafter, TEXT[2], 2, Sampling(), 3)
    assert room.counts["asked"] == drafter.forwards == 3
    assert 0 < room.counts["ticks_in_forwards"] < room.counts["ticks"] or room.counts["ticks"] == 0


def level(*rows: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, scores and q of a level of these scores."""
    scores = np.array(rows)
    return np.arange(scores.size).reshape(scores.shape), scores, scores.copy()


def test_levels_enter_by_the_terms_and_the_best_are_kept():
    room = Expansion(3, 3, beams=2, keep=3, least=0.1)
    plant(room.table, 7)
    assert admit(room.table, *level([0.6, 0.3, 0.1])) == pytest.approx(0.9)  # a tenth does not exceed one
    assert room.counts["nodes"] == 3
    # Of equals the first.
    assert admit(room.table, *level([0.5, 0.5, 0.1], [0.9, 0.2, 0.2])) == pytest.approx(0.6)
    harvest(room.table)
    tree = grown(room)
    assert tree.score == pytest.approx([1.0, 0.6, 0.3, 0.3]) and tree.parents == [-1, 0, 0, 1]
    assert tree.keys == [0, 1, 2, 3] and tree.tokens[0] == 7
    assert admit(room.table, *level([0.01, 0.0, 0.0], [0.0, 0.0, 0.0])) == -1


@pytest.mark.parametrize("keep", [1, 3, 7, 40])
def test_the_kept_are_the_best_of_all(keep):
    for seed in range(25):
        found = []
        for kept in (keep, None):
            drafter, sampling = TableDrafter(Tables(seed, vocab=12), ()), Sampling(0.8 * (seed % 2), seed=seed)
            found.append(grow(Expansion(4, 3, 3, kept), drafter, 0, 0, sampling, 4))
        assert found[0] == found[1].kept([0, *sorted(found[1].best(keep))])


def test_only_the_best_enter_where_that_is_asked_for():
    room = Expansion(2, 3, beams=2, keep=2, only_best=True)
    plant(room.table, 0)
    admit(room.table, *level([0.5, 0.3, 0.2]))
    assert room.counts["nodes"] == 3
    admit(room.table, *level([0.9, 0.7, 0.1], [0.9, 0.9, 0.1]))
    harvest(room.table)
    assert room.nodes["score"][: room.counts["nodes"]] == pytest.approx([1.0, 0.5, 0.45]) and room.terms["keep"] == 2


def test_without_levels_there_is_a_root_and_no_question():
    class Mute(Drafter):
        def __init__(self):
            pass

    tree = grow(Expansion(2, 2, beams=2), Mute(), 5, 0, Sampling(), 0)
    assert tree.tokens == [5] and torch.equal(tree.ancestor_mask(), torch.ones(1, 1, dtype=torch.bool))
