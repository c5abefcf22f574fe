"""Token recycling: the table after verifications made by hand, the tree that it fills, and a whole text against a plain table."""

import math
from itertools import product

import pytest
import torch

from engine.drafters.recycling import SHARES, TokenRecyclingDrafter
from engine.race import Race, Settings
from engine.tree import DraftTree
from helpers.pairs import tiny_pair

PAIR = tiny_pair()


def drafter() -> TokenRecyclingDrafter:
    made = TokenRecyclingDrafter(PAIR, 160)
    made.begin([1, 2])
    return made


def ranking(*tokens: int) -> torch.Tensor:
    """Logits `[256]` that rank the tokens first, in this order, and all others in the order of their ids."""
    logits = -torch.arange(256.0)
    for place, token in enumerate(reversed(tokens), 1):
        logits[token] = place
    return logits


def tree_of(*nodes: tuple[int, int]) -> DraftTree:
    """A tree of (parent, token) below the token 5."""
    tree = DraftTree.from_root_token(5)
    for parent, token in nodes:
        tree.add(parent, token, 1.0, 1.0)
    return tree


def test_every_row_of_a_verification_is_kept_rejected_ones_too():
    made = drafter()
    tree = tree_of((0, 6), (0, 7), (1, 8))
    logits = torch.stack([ranking(60, 61), ranking(70), ranking(80, 81, 82), ranking(90)])
    made.observe_target_logits(tree, logits, [1])
    assert {token: entries[:3] for token, entries in made.table.items()} == {
        5: [60, 61, 0],
        6: [70, 0, 1],
        7: [80, 81, 82],
        8: [90, 0, 1],
    }
    assert all(len(entries) == 8 == len(set(entries)) for entries in made.table.values())


def test_of_equal_tokens_the_accepted_node_counts_and_then_the_latest():
    made = drafter()
    tree = tree_of((0, 6), (0, 7), (1, 7), (2, 6), (3, 9), (4, 9))
    logits = torch.stack([ranking(100 + node) for node in range(7)])
    made.observe_target_logits(tree, logits, [2])
    assert {token: entries[0] for token, entries in made.table.items()} == {5: 100, 6: 104, 7: 102, 9: 106}
    made.observe_target_logits(tree_of(), ranking(200)[None], [])
    assert made.table[5][0] == 200 and made.table[6][0] == 104  # the rest stays


def test_begin_forgets_the_last_text():
    made = drafter()
    made.observe_target_logits(tree_of(), ranking(60)[None], [])
    made.begin([1, 2])
    assert made.table == {} and len(made.build_own_tree(5, 4, 4, 12)) == 1 and made.log_q(tree_of(), [0]) is None


def test_with_every_entry_there_the_tree_is_always_the_same_and_the_best_one():
    made = drafter()
    for levels, width, nodes in ((3, 3, 12), (2, 8, 30), (4, 2, 9), (1, 8, 40), (3, 1, 12)):
        shapes = []
        for shift in (0, 50):
            made.table = {token: [(8 * token + rank + shift) % 256 for rank in range(8)] for token in range(256)}
            tree = made.build_own_tree(5, levels, width, nodes)
            shapes.append((tree.parents, tree.score))
            assert len(tree) <= nodes and max(tree.depth) <= levels
            for node in range(1, len(tree)):
                assert tree.tokens[node] in made.table[tree.tokens[tree.parents[node]]][:width]
        assert shapes[0] == shapes[1]
        every = [math.prod(ranks) for depth in range(1, levels + 1) for ranks in product(SHARES[:width], repeat=depth)]
        assert sorted(shapes[0][1][1:], reverse=True) == pytest.approx(sorted(every, reverse=True)[: nodes - 1])


def test_what_a_token_without_entries_leaves_goes_to_others():
    made = drafter()
    made.table = {5: [6, 7, 8], 7: [5]}
    tree = made.build_own_tree(5, 3, 8, 12)
    assert sorted(zip(tree.parents[1:], tree.tokens[1:], strict=True))[:3] == [(0, 6), (0, 7), (0, 8)]
    assert sorted(tree.tokens) == sorted([5, 6, 7, 8, 5, 6, 7, 8]) and tree.children(1) == []


def test_log_q_is_the_shares_of_the_entries_and_rules_nothing_out_where_there_are_none():
    made, tree = drafter(), tree_of((0, 6))
    made.table = {5: [9, 4]}
    known, unknown = made.log_q(tree, [0, 1]).exp()
    assert known[[9, 4]].tolist() == pytest.approx(SHARES[:2]) and float(known.sum()) == pytest.approx(sum(SHARES[:2]))
    assert unknown.tolist() == pytest.approx([1 / 256] * 256)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_races_table_is_that_of_its_verifications(temperature):
    """A plain table, filled from the race's own rounds, holds what the drafter's holds; and every race begins with none."""
    race = Race(
        tiny_pair(same=True), Settings("Once", ("vanilla", "recycling"), temperature=temperature, max_new_tokens=60)
    )
    lane, plain = race.lanes[1], {}
    inner, drafters = lane.rounds.run_round, []

    def watched():
        drafters[:] = [lane.rounds.drafter]
        done = inner()
        kept = {0, *done.verdict.path}
        for accepted in (False, True):
            for node in range(len(done.tree)):
                if (node in kept) == accepted:
                    plain[done.tree.tokens[node]] = done.logits[node].argsort(descending=True)[:8].tolist()
        assert drafters[0].table == plain
        return done

    lane.rounds.run_round = watched
    list(race.run())
    assert race.result()["identical"] is True and len(plain) > 10
    assert lane.trace.steps[0].parents == [-1] and max(len(step.tokens) for step in lane.trace.steps) > 4
