"""Lookahead: the window's steps and the pool by hand, the mask of the paper, and a text against a plain computation."""

import pytest
import torch

from engine.drafters.lookahead import GRAM, KEPT, LookaheadDrafter
from engine.race import Race, Settings
from engine.tree import DraftTree
from helpers.pairs import tiny_pair

PAIR = tiny_pair()
TEXT = [11, 12, 13, 14, 5]


def drafter(text: list[int] = TEXT) -> LookaheadDrafter:
    made = LookaheadDrafter(PAIR, 160)
    made.begin(text)
    return made


def saying(tokens: list[int]) -> torch.Tensor:
    """Logits `[N, 256]` whose favourites these are."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), 256).float()


def paths(tree: DraftTree, nodes: list[int]) -> list[list[int]]:
    return [[tree.tokens[each] for each in tree.path_below_root(node)] for node in nodes]


def turn(made: LookaheadDrafter, root: int, first: int, path: tuple[int, ...] = (), bonus: int = 5) -> DraftTree:
    """A round of a window of two columns. Behind node n the target says `first` + n."""
    tree = made.build_own_tree(root, GRAM - 1, 3, 13)
    made.observe_target_logits(tree, saying([first + node for node in range(len(tree))]), list(path))
    made.commit(tree, list(path), bonus)
    return tree


def test_the_window_fills_level_by_level_and_then_moves_on():
    """Two columns, n-grams of four tokens; every favourite is its node's number and a hundred for the round."""
    made = drafter()
    first = turn(made, 5, 0)
    assert first.tokens == [5, 11, 12, 13] and first.parents == [-1, 0, 1, 2]  # the text's first tokens, a chain
    assert made.levels == [[12, 13], [1, 2, 3]] and made.pool == {}
    second = turn(made, 5, 100)
    assert paths(second, [3, 4, 5]) == [[1], [12, 2], [12, 13, 3]]
    assert made.levels == [[13], [2, 3], [104, 105]] and made.pool == {}
    third = turn(made, 5, 200)
    assert paths(third, range(1, 6)) == [[13], [2], [13, 3], [2, 104], [13, 3, 105]]
    assert made.pool == {5: [(2, 104, 204)], 13: [(3, 105, 205)]}  # root or chain, two levels, and the newest
    assert made.levels == [[3], [104, 105], [204, 205]]
    fourth = turn(made, 13, 0)
    assert [3, 105, 205] in paths(fourth, range(len(fourth)))  # the n-gram of the root


def test_a_window_moves_on_by_what_was_accepted_and_is_filled_up_with_copies():
    made = drafter()
    for first in (0, 100):
        turn(made, 5, first)
    assert made.levels == [[13], [2, 3], [104, 105]] and made.copied == 3
    tree = turn(made, 5, 200, path=(2,), bonus=9)
    assert tree.tokens[2] == 2 and made.text == [*TEXT, 5, 5, 2, 9]
    assert made.levels == [[14], [105, 5], [205, 5]]  # 14, 5, 5 are the text's next tokens
    assert made.copied == 6


def test_a_node_of_the_window_sees_what_the_papers_mask_shows():
    """A level's i-th token sees the first i tokens of root and chain, and the i-th token of every level between."""
    made = drafter()
    made.levels = [[20, 21, 22], [30, 31, 32, 33], [40, 41, 42, 43]]
    tree = made.build_own_tree(5, 6, 4, 64)
    assert paths(tree, made.columns[0]) == [[], [30], [30, 40]]
    assert [each[-1] for each in paths(tree, [column[-1] for column in made.columns])] == [40, 41, 42, 43]
    for place, column in enumerate(made.columns):
        assert paths(tree, column[1:]) == [
            [*[20, 21, 22][:place], 30 + place],
            [*[20, 21, 22][:place], 30 + place, 40 + place],
        ]


def test_equal_paths_of_window_and_pool_are_one_node():
    made = drafter()
    made.levels = [[20], [30, 31], [40, 41]]
    made.pool = {5: [(30, 40, 50), (20, 31, 51)]}
    tree = made.build_own_tree(5, 3, 4, 64)
    assert len(tree) == 1 + 5 + 2
    assert all(
        len({tree.tokens[child] for child in kids}) == len(kids) for kids in map(tree.children, range(len(tree)))
    )


def test_the_pool_keeps_the_latest_of_each_first_token():
    made = drafter()
    for token in range(KEPT + 3):
        made.store_full_length_ngram_as_latest([5, token, 0, 0])
    made.store_full_length_ngram_as_latest([5, 4, 0, 0])
    made.store_full_length_ngram_as_latest([5, 1])  # no n-gram
    assert [gram[0] for gram in made.pool[5]] == [3, *range(5, KEPT + 3), 4]
    tree = made.build_own_tree(5, 3, 2, 13)
    assert {tree.tokens[child] for child in tree.children(0)} >= {4, KEPT + 2}
    assert not {tree.tokens[child] for child in tree.children(0)} & {KEPT + 1, 3}


@pytest.mark.parametrize("shape", [(1, 4, 64), (2, 1, 7), (3, 2, 6), (6, 16, 32), (12, 16, 64), (5, 3, 12)])
def test_trees_keep_to_their_limits_in_every_round(shape):
    levels, width, nodes = shape
    made, windows = drafter(), 0
    for round_ in range(12):
        tree = made.build_own_tree(made.text[-1], levels, width, nodes)
        windows += made.window is tree
        assert len(tree) <= nodes and max(tree.depth) <= levels
        made.observe_target_logits(tree, saying([(7 * round_ + node) % 9 for node in range(len(tree))]), [])
        made.commit(tree, [], 7 * round_ % 9)
    assert windows == (12 if levels > 1 and nodes >= 2 * GRAM - 1 else 0)


def test_where_the_text_must_end_soon_no_window_is_left():
    made = drafter()
    for _ in range(4):
        turn(made, 5, 0)
    made.pool = {5: [(1, 2, 3)]}
    levels = made.levels
    tree = made.build_own_tree(5, 2, 3, 13)
    assert tree.tokens == [5, 1, 2] and made.window is None and made.levels is levels


def test_begin_forgets_the_last_text():
    made = drafter()
    for _ in range(4):
        turn(made, 5, 0)
    assert made.pool and made.levels
    made.begin([1])
    assert made.pool == {} and made.levels == [] and made.text == [1]
    assert made.log_q(DraftTree.from_root_token(5), [0]) is None


def test_other_policies_fill_the_pool_from_every_node_and_ask_it():
    made = drafter()
    tree = DraftTree.from_root_token(5)
    tree.add(tree.add(0, 6, 1.0, 1.0), 7, 1.0, 1.0)
    made.observe_target_logits(tree, saying([1, 2, 3]), [])
    assert made.pool == {13: [(14, 5, 1)], 14: [(5, 6, 2)], 5: [(6, 7, 3)]}
    made.store_full_length_ngram_as_latest([5, 8, 0, 0])
    behind_root, behind_two, nowhere = made.log_q(tree, [0, 2, 1]).exp()[:, :10]
    assert behind_root[[8, 6]].tolist() == pytest.approx([2 / 3, 1 / 3])  # the latest first
    assert float(behind_two[3]) == pytest.approx(1) and float(nowhere[7]) == pytest.approx(1)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_n_gram_is_what_the_target_says_behind_its_tokens(temperature):
    """The pool of a whole race against plain forwards: the last token is the target's favourite behind the window's column."""
    pair = tiny_pair(same=True)
    race = Race(pair, Settings("Once", ("vanilla", "lookahead"), temperature=temperature, max_new_tokens=50))
    lane, text, found = race.lanes[1], [], []
    text = list(lane.trace.prompt_tokens)
    inner = lane.rounds.run_round

    def watched():
        drafter, before = lane.rounds.drafter, list(text)
        kept = drafter.store_full_length_ngram_as_latest
        grams = []
        drafter.store_full_length_ngram_as_latest = lambda gram: grams.append(gram) or kept(gram)
        done = inner()
        del drafter.store_full_length_ngram_as_latest
        if drafter.window is done.tree:
            for gram, column in zip(grams, drafter.columns, strict=False):
                path = [done.tree.tokens[node] for node in done.tree.path_below_root(column[-1])]
                session = pair.target.open_session(300)
                session.prefill([*before, *path][:-1])
                logits, _ = session.forward([path[-1]], [len(before) + len(path) - 1])
                assert gram == [*[done.tree.tokens[node] for node in column], int(logits.argmax())]
                found.append(gram)
        text.extend([*(done.tree.tokens[node] for node in done.verdict.path), done.verdict.bonus])
        return done

    lane.rounds.run_round = watched
    list(race.run())
    assert race.result()["identical"] is True and len(found) > 20
    assert all(len(gram) == GRAM for gram in found)
