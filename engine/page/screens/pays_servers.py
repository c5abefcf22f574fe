"""Servers: a table of `pays --server --into` that a visitor opens, as it is shown beside the page's own verdict.

Knows rows and the words for them; knows no server and no page.
"""

import json
from typing import Any

from engine.measure import served_words
from engine.measure.served_rows import is_row, rows
from engine.page.screens.own_prompts import LARGEST_FILE, beginning, named
from engine.record.parsing import shown

MOST_ROWS, LONGEST = 100, 160  # rows; characters of what a server calls itself
ALLOWED = (
    f"Allowed: a table of `python -m engine pays --server … --into FILE`, with at most {MOST_ROWS} rows and "
    f"{LARGEST_FILE // 1_000_000} MB."
)


def is_table(text: object) -> bool:
    """Whether a file's text begins with a row; whatever else it holds may be wrong."""
    if not isinstance(text, str):
        return False
    try:
        return is_row(json.loads(text[:LARGEST_FILE].removeprefix("\ufeff").lstrip().split("\n", 1)[0]))
    except (ValueError, RecursionError):
        return False


def read(name: object, text: str) -> list[dict[str, Any]]:
    """The rows as the page shows them, in the file's order. Raises `ValueError` saying what is wrong, where, and what is allowed."""
    if not isinstance(name, str):
        raise ValueError(f"The file's name must be a text, got {shown(name)}. {ALLOWED}")
    name = named(name)
    if (size := len(text)) > LARGEST_FILE or (size := len(text.encode("utf-8", "surrogatepass"))) > LARGEST_FILE:
        raise ValueError(f"{name} has {size:,} bytes; at most {LARGEST_FILE:,} are read. {ALLOWED}")
    try:
        found = rows(text.removeprefix("\ufeff"), name, LARGEST_FILE)
    except ValueError as error:
        raise ValueError(f"{error} {ALLOWED}") from None
    if len(found) > MOST_ROWS:
        raise ValueError(f"{name} has {len(found):,} rows; at most {MOST_ROWS} are shown. {ALLOWED}")
    return [told(row) for row in found]


def told(row: dict[str, Any]) -> dict[str, Any]:
    """A row in words and figures. The verdict is made of its figures, whatever sentence the file has."""
    against = "itself without guesses" if row["plain"]["same_server"] else served_words.server(row["plain"])
    return {
        "machine": beginning(row["machine"], LONGEST),
        "server": beginning(served_words.server(row), LONGEST),
        "against": beginning(against, LONGEST),
        "flags": beginning(flags(row["flags"]), LONGEST),
        "how": served_words.how(row),
        "verdict": served_words.verdict(row),
        "cautions": [beginning(each, 2 * LONGEST) for each in served_words.cautions(row)],
        "points": row["points"],
    }


def flags(given: dict[str, Any]) -> str:
    """The server's settings on one line."""
    return ", ".join(
        f"{name} {json.dumps(value) if isinstance(value, bool) else value}" for name, value in given.items()
    )
