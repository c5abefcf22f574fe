"""The lookup drafter: the longest run of the text's last tokens that was followed before decides, drafted tokens included."""

import pytest

from engine.drafters.lookup import KNOWN_SHARE, LONGEST, LookupDrafter
from engine.tree import DraftTree
from helpers.pairs import tiny_pair

PAIR = tiny_pair()


def drafter(prompt: list[int]) -> LookupDrafter:
    made = LookupDrafter(PAIR, 160)
    made.begin(prompt)
    return made


def test_the_longest_run_that_was_followed_decides():
    """Behind 3 alone, 9 stood most often; behind 1 2 3, 4 did."""
    text = [1, 2, 3, 4, 3, 9, 3, 9, 3, 9]
    assert drafter([*text, 1, 2, 3]).followers_of_longest_suffix([]) == {4: 1}
    assert drafter([*text, 7, 3]).followers_of_longest_suffix([]) == {9: 3, 4: 1}
    assert drafter([*text, 8]).followers_of_longest_suffix([]) == {}


def test_drafted_tokens_are_part_of_the_run():
    made = drafter([1, 2, 3, 4, 3, 9, 3, 9, 1])
    assert made.followers_of_longest_suffix([2, 3]) == {4: 1} and made.followers_of_longest_suffix([5, 3]).most_common(
        1
    ) == [(9, 2)]
    tree = DraftTree.from_root_token(1)
    node = tree.add(tree.add(0, 2, 1.0, 1.0), 3, 1.0, 1.0)
    row = made.log_q(tree, [node])[0].exp()
    assert float(row[4]) == pytest.approx(KNOWN_SHARE + (1 - KNOWN_SHARE) / 256) and float(row.sum()) == pytest.approx(
        1
    )


def test_no_more_than_the_last_tokens_are_compared():
    made = drafter([*range(10, 10 + LONGEST), 50, 7, *range(11, 10 + LONGEST)])
    assert made.followers_of_longest_suffix([]) == {50: 1}
