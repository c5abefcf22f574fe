"""Expansion: what enters a tree and what stays, and where compiled growing ends."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.contracts import Drafter
from engine.drafters import DRAFTERS
from engine.drafters.shared import grows_at_once
from engine.forward.llama_eight_bit import forward_logits
from engine.forward.runner import Runner
from engine.kernels import growing_compiled
from engine.kernels.compiling import compiled_assuming_no_nan
from engine.kernels.elementwise import log_softmax_in_place
from engine.kernels.expansion import (
    BINS,
    FAVOURITE,
    KINDS,
    OTHER,
    TRUST,
    TreeExpansion,
    add_level_and_sum_frontier_scores,
    prune_to_best_nodes,
    start_tree,
)
from engine.nets.eagle_compiled import log_q_of_root
from engine.policies.expand_rerank import ExpandRerank
from engine.policies.shared.growing import draft_tree_from_expansion, grow_tree_of_favourites
from engine.sampling import Sampling
from engine.target import Target
from helpers.enumeration import TableDrafter, Tables
from helpers.learned import TEXT, pair_with
from helpers.pairs import tiny_llama


@pytest.fixture(scope="module")
def pair():
    """A random pair whose draft and EAGLE are compiled."""
    made = pair_with("eagle")
    made.net("eagle").pack_compiled_on_cpu()
    return replace(made, draft=Runner(tiny_llama(1, layers=2), eight_bit=True))


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


def test_every_level_of_a_tree_takes_a_forward(pair):
    drafter = DRAFTERS["model"](pair, 90)
    drafter.begin(TEXT[:3])
    room = TreeExpansion(3, 2, beam_width=2)
    grow_tree_of_favourites(room, drafter, TEXT[2], 2, Sampling(), 3)
    assert room.counts["asked"] == drafter.draft_forward_count == 3


def level(*rows: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, scores and q of a level of these scores."""
    scores = np.array(rows)
    return np.arange(scores.size).reshape(scores.shape), scores, scores.copy()


def test_levels_enter_by_the_terms_and_the_best_are_kept():
    room = TreeExpansion(3, 3, beam_width=2, max_kept=3, least_score=0.1)
    start_tree(room.table, 7)
    assert add_level_and_sum_frontier_scores(room.table, *level([0.6, 0.3, 0.1])) == pytest.approx(
        0.9
    )  # a tenth does not exceed one
    assert room.counts["nodes"] == 3
    # Of equals the first.
    assert add_level_and_sum_frontier_scores(room.table, *level([0.5, 0.5, 0.1], [0.9, 0.2, 0.2])) == pytest.approx(0.6)
    prune_to_best_nodes(room.table)
    tree = draft_tree_from_expansion(room)
    assert tree.score == pytest.approx([1.0, 0.6, 0.3, 0.3]) and tree.parents == [-1, 0, 0, 1]
    assert tree.creation_indices == [0, 1, 2, 3] and tree.tokens[0] == 7
    assert add_level_and_sum_frontier_scores(room.table, *level([0.01, 0.0, 0.0], [0.0, 0.0, 0.0])) == -1


@pytest.mark.parametrize("keep", [1, 3, 7, 40])
def test_the_kept_are_the_best_of_all(keep):
    for seed in range(25):
        found = []
        for kept in (keep, None):
            drafter, sampling = TableDrafter(Tables(seed, vocab=12), ()), Sampling(0.8 * (seed % 2), seed=seed)
            found.append(grow_tree_of_favourites(TreeExpansion(4, 3, 3, kept), drafter, 0, 0, sampling, 4))
        assert found[0] == found[1].subtree([0, *sorted(found[1].select_highest_scored_nodes(keep))])


def test_only_the_best_enter_where_that_is_asked_for():
    room = TreeExpansion(2, 3, beam_width=2, max_kept=2, only_best=True)
    start_tree(room.table, 0)
    add_level_and_sum_frontier_scores(room.table, *level([0.5, 0.3, 0.2]))
    assert room.counts["nodes"] == 3
    add_level_and_sum_frontier_scores(room.table, *level([0.9, 0.7, 0.1], [0.9, 0.9, 0.1]))
    prune_to_best_nodes(room.table)
    assert room.nodes["score"][: room.counts["nodes"]] == pytest.approx([1.0, 0.5, 0.45]) and room.terms["keep"] == 2


def test_without_levels_there_is_a_root_and_no_question():
    class Mute(Drafter):
        def __init__(self):
            pass

    tree = grow_tree_of_favourites(TreeExpansion(2, 2, beam_width=2), Mute(), 5, 0, Sampling(), 0)
    assert tree.tokens == [5] and torch.equal(tree.ancestor_mask(), torch.ones(1, 1, dtype=torch.bool))


@pytest.mark.parametrize("name", ["model", "eagle"])
def test_nothing_is_compiled_when_a_tree_is_grown_for_the_drafter_brought_it(pair, name, monkeypatch):
    """A clock runs then. The drafter meets a loop that nobody has called yet."""
    fresh = compiled_assuming_no_nan(growing_compiled.grow_tree_with_compiled_drafter.py_func)
    for module in (growing_compiled, grows_at_once):
        monkeypatch.setattr(module, "grow_tree_with_compiled_drafter", fresh)
    drafter = DRAFTERS[name](pair, 90)
    assert drafter.compiled_tree_grower and len(fresh.signatures) == 1
    known = [len(loop.signatures) for loop in (log_softmax_in_place, forward_logits, log_q_of_root)]
    features = Target(pair.target, 90, features=True).prefill_and_return_features(TEXT[:2])
    for sampling in (Sampling(), Sampling(0.8, seed=3)):
        drafter.begin(TEXT[:3], features)
        assert len(grow_tree_of_favourites(TreeExpansion(4, 3, beam_width=3), drafter, TEXT[2], 2, sampling, 4)) > 4
    assert len(fresh.signatures) == 1
    assert known == [len(loop.signatures) for loop in (log_softmax_in_place, forward_logits, log_q_of_root)]


def test_favourites_and_others_are_corrected_by_what_became_of_their_own_kind():
    """Of ten favourites in this range all came true, of ten others none."""
    chances = np.zeros((2, KINDS * BINS))
    chances[:, FAVOURITE * BINS + 4] = 10, 10
    chances[:, OTHER * BINS + 4] = 0, 10
    room = TreeExpansion(2, 3, beam_width=3, chances=chances)
    start_tree(room.table, 7)
    add_level_and_sum_frontier_scores(room.table, *level([0.45, 0.45, 0.45]))
    trusted, doubted = (10 + TRUST * 0.45) / (10 + TRUST), TRUST * 0.45 / (10 + TRUST)
    assert room.nodes["score"][1:4] == pytest.approx([trusted, doubted, doubted])
    assert room.nodes["cell"][1:4].tolist() == [FAVOURITE * BINS + 4, OTHER * BINS + 4, OTHER * BINS + 4]


def test_the_tip_of_a_frontier_is_its_best_node():
    """Behind it copies go on. The frontier stands in the order of its nodes' numbers."""
    room = TreeExpansion(2, 3, beam_width=3)
    start_tree(room.table, 7)
    add_level_and_sum_frontier_scores(room.table, *level([0.2, 0.3, 0.5]))
    assert room.frontier[: room.counts["asking"]].tolist() == [1, 2, 3] and room.counts["tip"] == 3
