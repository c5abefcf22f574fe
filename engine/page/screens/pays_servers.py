"""Servers: a table of `pays --server --into` that a visitor opens, as it is shown. Knows rows and their words; knows no server."""

import json
from typing import Any

from engine.measure import served_words
from engine.measure.served_rows import is_row, rows
from engine.page.screens.own_prompts import LARGEST_FILE, beginning, named, saying
from engine.record.parsing import expect
from engine.record.race_file import require

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


@saying(ALLOWED)
def read(name: object, text: str) -> list[dict[str, Any]]:
    """The rows as the page shows them, in the file's order. Raises `ValueError` saying what is wrong, where, and what is allowed."""
    file = named(expect(str, name, "The file's name"))
    size = len(text) if len(text) > LARGEST_FILE else len(text.encode("utf-8", "surrogatepass"))
    require(size <= LARGEST_FILE, f"{file} has {size:,} bytes; at most {LARGEST_FILE:,} are read.")
    found = rows(text.removeprefix("\ufeff"), file, LARGEST_FILE)
    require(len(found) <= MOST_ROWS, f"{file} has {len(found):,} rows; at most {MOST_ROWS} are shown.")
    return [told(row) for row in found]


def told(row: dict[str, Any]) -> dict[str, Any]:
    """A row in words and figures. The verdict is made of its figures, whatever sentence the file has."""
    against = "itself without guesses" if row["plain"]["same_server"] else served_words.server(row["plain"])
    flags = row["flags"].items()
    told_flags = (f"{name} {json.dumps(value) if isinstance(value, bool) else value}" for name, value in flags)
    return {
        "machine": beginning(row["machine"], LONGEST),
        "server": beginning(served_words.server(row), LONGEST),
        "against": beginning(against, LONGEST),
        "flags": beginning(", ".join(told_flags), LONGEST),
        "how": served_words.how(row),
        "verdict": served_words.verdict(row),
        "cautions": [beginning(each, 2 * LONGEST) for each in served_words.cautions(row)],
        "points": row["points"],
    }
