"""The suffix drafter against plain counts of substrings, and what it may know of other texts."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafters.suffix import LEAST_CHANCE, SEPARATOR, SuffixDrafter
from engine.lab.bench import command as bench
from engine.models.earlier_texts import AnswerMemory
from engine.race import Race, Settings
from engine.rounds.pair_costs import PairCosts
from engine.tree import DraftTree
from helpers.commands import SMALL, run
from helpers.pairs import tiny_pair

PAIR = tiny_pair()
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=40)


def drafter(prompt: list[int], memory: AnswerMemory | None = None) -> SuffixDrafter:
    made = SuffixDrafter(replace(PAIR, memory=memory), 160)
    made.begin(prompt)
    return made


def occurrences(texts: list[list[int]], run: list[int]) -> int:
    return sum(text[at : at + len(run)] == run for text in texts for at in range(len(text) - len(run) + 1))


def plain_trees(texts: list[list[int]], ending: list[int], levels: int, most: int) -> dict[int, list[float]]:
    """By length of the match: the best paths' chances, from counts of substrings alone."""
    found = {}
    for length in range(1, len(ending) + 1):
        match = ending[-length:]
        if not occurrences(texts, match):
            break
        chances, paths = [], [([], 1.0)]
        while paths:
            run, chance = paths.pop()
            above = occurrences(texts, match + run)
            for token in range(3):
                each = chance * occurrences(texts, [*match, *run, token]) / above
                if each >= LEAST_CHANCE and len(run) < levels:
                    chances.append(each)
                    paths.append(([*run, token], each))
        found[length] = sorted(chances, reverse=True)[: min(length, most)]
    return found


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(TEXTS, st.lists(TEXTS, max_size=3), st.integers(1, 5), st.integers(2, 12))
def test_the_tree_is_the_one_that_plain_counts_promise_the_most_of(text, others, levels, nodes):
    memory = AnswerMemory()
    for number, other in enumerate(others):
        memory.remember_newest_answer([9, number], other)
    tree = drafter(text, memory).build_own_tree(text[-1], levels, 3, nodes)
    by_source = [plain_trees(texts, text, levels, nodes - 1) for texts in ([text], others)]
    best = max((sum(chances) for found in by_source for chances in found.values()), default=0.0)
    assert sum(tree.score[1:]) == pytest.approx(best)
    assert len(tree) <= nodes and max(tree.depth) <= levels
    assert all(
        len({tree.tokens[child] for child in kids}) == len(kids) for kids in map(tree.children, range(len(tree)))
    )
    promised = [tuple(chances) for found in by_source for chances in found.values()]
    assert any(sorted(tree.score[1:], reverse=True) == pytest.approx(chances) for chances in [*promised, ()])


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(TEXTS, st.lists(st.integers(0, 2), max_size=3))
def test_log_q_is_the_share_behind_the_longest_match(text, drafted):
    tree = DraftTree.from_root_token(text[-1])
    for token in drafted:
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    row = drafter(text).log_q(tree, [len(tree) - 1])
    ending = [*text, *drafted]
    matches = [ending[-length:] for length in range(len(ending), 0, -1)]
    followed = [match for match in matches if any(occurrences([text], [*match, token]) for token in range(3))]
    if not followed:
        assert row is None
        return
    shares = [occurrences([text], [*followed[0], token]) / occurrences([text], followed[0]) for token in range(3)]
    rest = (1 - sum(shares)) / 256
    assert row[0].exp()[:4].tolist() == pytest.approx([*(share + rest for share in shares), rest], abs=1e-6)


def test_one_earlier_place_is_worth_a_half_because_the_texts_end_counts_too():
    tree = drafter([5, 6, 7, 5, 6]).build_own_tree(6, 8, 4, 12)
    assert tree.tokens == [6, 7, 5] and tree.score == [1.0, 0.5, 0.5]  # a match of two tokens allows two guesses


def test_the_most_promising_match_wins_and_of_equal_ones_the_own_text():
    assert drafter([1, 2, 8, 3, 2, 4, 1, 2]).build_own_tree(2, 1, 4, 12).tokens == [
        2,
        8,
    ]  # 1/2 behind 1 2, 1/3 behind 2 alone
    memory = AnswerMemory()
    memory.remember_newest_answer([0], [7, 9, 7])
    assert drafter([7, 3, 7], memory).build_own_tree(7, 4, 4, 12).tokens == [7, 3]
    assert drafter([7, 3, 7], memory).others.token_ids.tolist() == [7, 9, 7, SEPARATOR]


def test_texts_of_a_memory_do_not_run_into_each_other():
    memory = AnswerMemory()
    memory.remember_newest_answer([0], [1, 2])
    memory.remember_newest_answer([1], [3, 4])
    made = drafter([8, 2], memory)
    assert len(made.build_own_tree(2, 4, 4, 12)) == 1 and made.log_q(DraftTree.from_root_token(2), [0]) is None


def test_committed_tokens_are_searched_and_begin_forgets_them():
    made = drafter([5])
    tree = DraftTree.from_root_token(5)
    made.commit(tree, [tree.add(0, 6, 1.0, 1.0)], 5)
    assert made.own.token_ids.tolist() == [5, 6, 5] and made.build_own_tree(5, 4, 4, 12).tokens == [5, 6]
    made.begin([5])
    assert made.own.token_ids.tolist() == [5] and len(made.build_own_tree(5, 4, 4, 12)) == 1


def test_a_text_may_be_long():
    made = drafter([7] * 1000)
    for token in range(600):
        made.commit(DraftTree.from_root_token(7), [], token % 50)
    assert made.own.length == 1600 and made.build_own_tree(49, 8, 2, 12).tokens[1:4] == [0, 1, 2]


# ---- what is kept from race to race


def test_a_memory_is_bounded_and_drops_the_oldest_answers():
    memory = AnswerMemory(max_tokens=20)
    for number in range(5):
        memory.remember_newest_answer([number], [number] * 5)
    assert list(memory.answers) == [(2,), (3,), (4,)] and memory.held == 18
    memory.remember_newest_answer([2], [9] * 5)  # anew, so it is the newest
    memory.remember_newest_answer([5], [5] * 5)
    assert list(memory.answers) == [(4,), (2,), (5,)] and memory.answers_to_other_prompts([2]) == [[4] * 5, [5] * 5]
    memory.remember_newest_answer([6], [6] * 30)  # larger than the memory
    assert memory.answers == {} and memory.held == 0
    with pytest.raises(ValueError, match="at least one token, got 0"):
        AnswerMemory(0)


def test_a_memory_never_hands_an_answer_to_its_own_prompt():
    memory = AnswerMemory()
    made = drafter([1, 2], memory)
    made.commit(DraftTree.from_root_token(2), [], 3)
    made.commit(DraftTree.from_root_token(3), [], 4)
    assert memory.answers == {(1, 2): [3, 4]}
    assert drafter([1, 2], memory).others.length == 0
    assert drafter([1, 3], memory).others.token_ids.tolist() == [3, 4, SEPARATOR]


TEXTS_TO_WRITE = ["Story: Once upon a time", "Story: A fox", "Question: how many?"]


def raced(pair, prompts: list[str], temperature: float) -> dict[str, list[list[list[int]]]]:
    """By prompt the trees of `suffix`, whose text must be that of plain decoding."""
    trees = {}
    for prompt in prompts:
        race = Race(pair, Settings(prompt, ("vanilla", "suffix"), temperature=temperature, max_new_tokens=40, seed=1))
        list(race.run())
        assert race.result()["identical"] is True
        trees[prompt] = [step.tokens for step in race.lanes[1].trace.steps]
    return trees


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_with_a_memory_races_stay_lossless_in_any_order_and_without_one_nothing_stays(temperature):
    forgetful, orders = tiny_pair(same=True), (TEXTS_TO_WRITE, TEXTS_TO_WRITE[::-1])
    alone = [raced(forgetful, order, temperature) for order in orders]
    assert alone[0] == alone[1]
    kept = [raced(replace(forgetful, memory=AnswerMemory()), order, temperature) for order in orders]
    assert kept[0] != kept[1]  # a memory does change what is guessed


def test_what_is_timed_is_not_remembered():
    pair = replace(tiny_pair(), memory=AnswerMemory())
    PairCosts(pair).get_or_measure_costs("suffix")
    assert pair.memory.answers == {}


def test_the_bench_gives_drafters_a_memory_only_when_asked(monkeypatch, capsys, embedded):
    memories = []
    monkeypatch.setattr(
        bench, "race_prompts_and_compute_figures", lambda pair, *rest: memories.append(pair.memory) or {}
    )
    monkeypatch.setattr(bench, "format_bench_report", str)
    for arguments in ([], ["--memory"]):
        run("bench", *SMALL, "--systems", "suffix", "--prompts", "1", *arguments)
    assert memories[0] is None and isinstance(memories[1], AnswerMemory) and embedded.memory is None


def test_of_equally_frequent_followers_the_latest_comes_first():
    """A text goes on as it did lately. A budget of one guess is spent on that."""
    assert drafter([1, 5, 1, 6, 1]).build_own_tree(1, 1, 4, 12).tokens == [1, 6]
    assert drafter([1, 6, 1, 5, 1]).build_own_tree(1, 1, 4, 12).tokens == [1, 5]
    assert drafter([1, 5, 1, 5, 1, 6, 1]).build_own_tree(1, 1, 4, 12).tokens == [1, 5]
