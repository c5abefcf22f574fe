"""Table: rows of `pays --server` in a file, one JSON object a line. Knows lines; knows no server."""

import json
from pathlib import Path

from engine.lab.pays.served import VERSION
from engine.measure.options import writable
from engine.record.parsing import parse

MOST_BYTES = 20_000_000
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
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path.name} has {size / 1e6:.1f} MB; a table has at most {MOST_BYTES / 1e6:.0f} MB.")
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        found = parse(line, MOST_BYTES, f"Line {number} of {path.name}") if line.strip() else {"row": VERSION}
        if not isinstance(found, dict) or found.get("row") != VERSION:
            raise ValueError(
                f"Line {number} of {path.name} is no row of `pays --server`. Name another file for --into."
            )
    return sum(bool(line.strip()) for line in lines)


def add(path: Path, row: dict) -> int:
    """Writes the row behind the others, and returns how many there are now. Raises `ValueError` as `checked` does."""
    before = path.read_text(encoding="utf-8") if checked(path).exists() else ""
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * (before != "" and not before.endswith("\n")) + json.dumps(row) + "\n")
    return count(path)
