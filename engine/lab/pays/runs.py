"""Runs: reads what a person has of a run, a race file or a file of tokens. Knows files; knows no model."""

from dataclasses import dataclass
from pathlib import Path

from engine.record.files import MOST_BYTES, text_of
from engine.record.parsing import CLOSED, Listed, Whole, build, parse
from engine.record.race_file import LaneRecord, Record


@dataclass(frozen=True)
class Tokens:
    """A file of tokens: the prompt's text, and the ids of the tokens that were written behind it."""

    __pydantic_config__ = CLOSED

    prompt: str
    tokens: Listed[Whole]


@dataclass(frozen=True)
class Run:
    """One run. `name` names it in sentences; `lane` says how it ran, and is None for a file of tokens, which does not."""

    name: str
    prompt: str
    tokens: list[int]
    lane: LaneRecord | None


def read(path: Path, letter: str, lane: int | None) -> Run:
    """The run in a file, called by `letter` in sentences. Of a race file it is the lane of that number, the last one for None.

    Raises `ValueError` that names the file and what is wrong in it, and `OSError` for a file that cannot be opened.
    """
    text = text_of(path, "Name a race file, or a file of a prompt and tokens.")
    try:
        value = parse(text, MOST_BYTES)
        if isinstance(value, dict) and "lanes" in value:
            return of_lanes(Record.from_json(text).lanes, path.name, letter, lane)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    try:
        found = build(Tokens, value, "")
    except ValueError as error:
        raise ValueError(f'{path.name}: {error} Name a race file, or {{"prompt": "...", "tokens": [ids]}}.') from None
    if lane not in (None, 0):
        raise ValueError(f"{path.name} holds one run, counted as lane 0; got lane {lane}.")
    if not found.tokens:
        raise ValueError(f"{path.name} holds no tokens. Write the ids behind the prompt as a list.")
    return Run(f"{letter} ({path.name})", found.prompt, found.tokens, None)


def of_lanes(lanes: list[LaneRecord], file: str, letter: str, lane: int | None) -> Run:
    """The run of one lane. Raises `ValueError` when there is no such lane, and for one that a constraint bound."""
    number = len(lanes) - 1 if lane is None else lane
    if not 0 <= number < len(lanes):
        raise ValueError(f"it has the lanes 0 to {len(lanes) - 1}, got {number}.")
    trace = lanes[number].trace
    if trace.constraint:
        raise ValueError(
            "it was written under a constraint, and the doctor reads logits without one. Give a free race."
        )
    return Run(f"{letter} ({file}, lane {number}, {trace.system})", trace.prompt, trace.tokens, lanes[number])
