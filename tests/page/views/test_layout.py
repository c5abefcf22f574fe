"""The tree on the page: every node has a place of its own."""

import pytest

from engine.page.views.layout import layout
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
