"""The tree on the page: every node has a place of its own."""

import pytest

from engine.page.views.layout import TIGHT, USUAL, columns_of, layout
from helpers.traces import PARENTS


def test_the_first_child_continues_its_parents_row():
    assert layout(PARENTS) == ([0, 1, 1, 2, 2, 2], [0, 0, 2, 0, 1, 2])


@pytest.mark.parametrize(
    "parents",
    [[-1], [-1, 0, 1, 2, 3], [-1] + [0] * 20, [-1, 0, 1, 0, 2, 3, 0, 5, 5, 1], [-1] + [i // 2 for i in range(63)]],
)
def test_no_two_nodes_share_a_place_and_siblings_keep_their_order(parents):
    columns, rows = layout(parents)
    assert len(set(zip(columns, rows, strict=True))) == len(parents)
    for node, parent in enumerate(parents[1:], 1):
        assert columns[node] == columns[parent] + 1 and rows[node] >= rows[parent]
        assert all(rows[node] > rows[other] for other in range(1, node) if parents[other] == parent)


def wide(text: str, size: float) -> float:
    return 0.5 * size * len(text)


def test_columns_are_equal_where_the_paths_words_have_room():
    size, starts, rooms = columns_of(["one", "two", "a much longer one"], [0, 1, 1], {0, 1}, wide, 400, (9, 17))
    assert (size, starts, rooms) == (17, [0, 200], [200 - USUAL] * 2)


def test_columns_are_as_wide_as_the_paths_words_where_these_need_more():
    texts = ["a", "be", "sea", "everything", "it", "or another word"]
    size, starts, rooms = columns_of(texts, [0, 1, 2, 3, 4, 4], set(range(5)), wide, 400, (9, 17))
    assert size == 17 and starts[0] == 0 and starts[-1] + rooms[-1] + TIGHT <= 400
    for node, column in enumerate(range(5)):
        assert rooms[column] >= wide(texts[node], size)
    assert rooms[4] > wide("it", size)  # others get what is left
    for column in range(4):
        assert starts[column + 1] == pytest.approx(starts[column] + rooms[column] + TIGHT)


def test_letters_become_smaller_until_the_paths_words_have_room():
    texts = ["everything"] * 8
    size, starts, rooms = columns_of(texts, range(8), range(8), wide, 640, (9, 17))
    assert 9 < size < 10.5 and min(rooms) >= wide(texts[0], size)
    size, starts, rooms = columns_of(texts, range(8), range(8), wide, 400, (9, 17))
    assert size == 9 and starts[-1] + rooms[-1] + TIGHT == pytest.approx(400)
