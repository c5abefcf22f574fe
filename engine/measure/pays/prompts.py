"""Prompts: reads a person's file of prompts. Knows files; knows no model."""

from pathlib import Path
from typing import NamedTuple

from engine.record.parsing import parse, shown

FEWEST, MOST = 3, 1_000  # prompts; an interval over fewer says nothing
MOST_BYTES = 20_000_000
LONGEST_GROUP = 60  # characters
ENDINGS = {".jsonl": True, ".ndjson": True, ".txt": False}  # whether every line is JSON


class Prompt(NamedTuple):
    """A prompt, and the group that it is counted in: a language, a kind of text, or its file. "" is no group."""

    text: str
    group: str = ""


def read_all(paths: list[Path]) -> list[Prompt]:
    """The prompts of all files in order. Of several files a prompt without a group of its own is counted in its file's."""
    found = [(path, prompt) for path in paths for prompt in read(path)]
    return [prompt if prompt.group or len(paths) == 1 else prompt._replace(group=path.name) for path, prompt in found]


def read(path: Path) -> list[Prompt]:
    """The file's prompts in order. Empty lines are left out.

    A line of a .jsonl or .ndjson file is a JSON string or an object with a "prompt" and perhaps a "group". A line of a .txt file is a
    prompt.
    Raises `ValueError` that names the line, and `OSError` for a file that cannot be opened.
    """
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"--prompts must name a file that ends in {', '.join(ENDINGS)}, got {shown(str(path))}.")
    if not path.is_file():
        raise ValueError(f"There is no file {str(path)!r}. Give --prompts a file with a prompt on every line.")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path.name} has {size / 1e6:.1f} MB; at most {MOST_BYTES / 1e6:.0f} MB are read.")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # `splitlines` would part prompts at rare signs
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 at byte {error.start:,}. Save it as UTF-8.") from None
    by_json = ENDINGS[path.suffix.lower()]
    found = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    prompts = [from_json(line, number) if by_json else Prompt(line) for number, line in found]
    if not FEWEST <= len(prompts) <= MOST:
        raise ValueError(f"{path.name} has {len(prompts):,} prompts; between {FEWEST} and {MOST:,} are needed.")
    return prompts


def from_json(line: str, number: int) -> Prompt:
    """The prompt on one line. Raises `ValueError` with the line's number when there is none, and for a group that is no short name."""
    value, group = parse(line, MOST_BYTES, f"Line {number}"), ""
    if isinstance(value, dict):
        group = value.get("group", "")
        if not isinstance(group, str) or len(group) > LONGEST_GROUP:
            raise ValueError(
                f"The group on line {number} must be a name of up to {LONGEST_GROUP} characters, got {shown(group)}."
            )
        if "prompt" not in value:
            raise ValueError(f'Line {number} has no "prompt". Write {{"prompt": "..."}} or a string.')
        value = value["prompt"]
    if not isinstance(value, str):
        raise ValueError(f"The prompt on line {number} must be a string, got {shown(value)}.")
    if not value.strip():
        raise ValueError(f"The prompt on line {number} is empty. Write a few words, or leave the line out.")
    return Prompt(value, group)
