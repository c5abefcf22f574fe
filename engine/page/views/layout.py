"""Where each node of a tree is drawn in a film. Knows parent indices and how wide words are; nothing of steps or colours."""

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate

USUAL, TIGHT = 40, 31  # pixels beside a column's words, and at least where those need room
WIDEST = 210  # pixels of a column


def layout(parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """Column (depth) and row of every node; `parents[0] == -1` and parents come before children.

    Each leaf owns a row, and a node lies on the row of its first child. The favourite guess therefore runs straight on, and its
    rivals branch off below. Nodes never share a place, and the edges of two parents never cross.
    """
    children: list[list[int]] = [[] for _ in parents]
    columns, rows = [0] * len(parents), [0] * len(parents)
    for node, parent in enumerate(parents[1:], 1):
        children[parent].append(node)
        columns[node] = columns[parent] + 1
    stack, next_row = [0], 0
    while stack:
        node = stack.pop()
        rows[node] = next_row
        stack += reversed(children[node])
        next_row += not children[node]
    return columns, rows


def columns_of(
    texts: Sequence[str],
    columns: Sequence[int],
    path: Collection[int],
    width: Callable[[str, float], float],
    room: float,
    sizes: tuple[float, float],
) -> tuple[float, list[float], list[float]]:
    """Size of the letters, left edge of every column, and the room of its labels, in pixels. `width` is that of a text in a size.

    All columns are equal where the words of the accepted `path` have room in them, else as wide as those words. The letters become
    smaller where these have no room in `room` pixels side by side, from the largest of the `sizes` down to the least.
    """
    count = max(columns) + 1
    pitch = min(WIDEST, room / count)
    least, size = sizes
    while True:
        wanted, needed = [0.0] * count, [0.0] * count
        for node, (text, column) in enumerate(zip(texts, columns, strict=True)):
            wide = width(text, size)
            wanted[column] = max(wanted[column], wide)
            needed[column] = max(needed[column], wide if node in path else 0.0)
        if max(needed) <= pitch - USUAL:
            return size, [column * pitch for column in range(count)], [pitch - USUAL] * count
        spare = room - count * TIGHT - sum(needed)
        if spare >= 0 or size <= least:
            break
        size = max(least, size - 0.5)
    if spare < 0:
        rooms = [each * (1 + spare / sum(needed)) for each in needed]
    else:
        more = [most - own for most, own in zip(wanted, needed, strict=True)]
        share = min(1.0, spare / max(1.0, sum(more)))
        rooms = [own + share * each for own, each in zip(needed, more, strict=True)]
    return size, [0.0, *accumulate(each + TIGHT for each in rooms[:-1])], rooms
