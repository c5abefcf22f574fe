"""Where each node of a tree is drawn in a film. Knows parent indices only; nothing of tokens, pixels or colours."""

from collections.abc import Sequence


def layout(parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """Column (depth) and row of every node; `parents[0] == -1` and parents come before children.

    Each leaf owns a row, and a node lies on the row of its first child. The favourite guess therefore runs straight on, and its
    rivals branch off below. Nodes never share a place, and the edges of two parents never cross.
    """
    children: list[list[int]] = [[] for _ in parents]
    columns = [0] * len(parents)
    for node, parent in enumerate(parents[1:], 1):
        children[parent].append(node)
        columns[node] = columns[parent] + 1
    rows = [0] * len(parents)
    next_row = 0
    stack = [0]
    while stack:
        node = stack.pop()
        rows[node] = next_row
        if children[node]:
            stack.extend(reversed(children[node]))
        else:
            next_row += 1
    return columns, rows
