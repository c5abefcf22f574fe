"""Table: rows of `pays --server` in a file, one JSON object a line. Knows lines; knows no server."""

import json
from pathlib import Path

from engine.measure.options import writable
from engine.measure.served_rows import rows
from engine.record.files import MOST_BYTES, text_of

ENDING = ".jsonl"


def checked(path: Path) -> Path:
    """The file, which need not exist. Raises `ValueError` for one that cannot be written, and for one that holds something else."""
    if path.suffix.lower() != ENDING:
        raise ValueError(f"--into must name a file that ends in {ENDING}, got {str(path)!r}.")
    count(writable(path))
    return path


def count(path: Path) -> int:
    """The rows in the file, 0 where there is none. Raises `ValueError` that names the first line that is no row."""
    if not path.exists():
        return 0
    text = text_of(path, "")
    try:
        return len(rows(text, path.name, MOST_BYTES))
    except ValueError as error:
        raise ValueError(f"{error} Name another file for --into.") from None


def add(path: Path, row: dict) -> int:
    """Writes the row behind the others, and returns how many there are now. Raises `ValueError` as `checked` does."""
    before = path.read_text(encoding="utf-8") if checked(path).exists() else ""
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * (before != "" and not before.endswith("\n")) + json.dumps(row) + "\n")
    return count(path)
