"""Served rows: the table that `pays --server --into` writes, read back and checked. Knows figures; knows no server.

A row may come from anybody. Its values must fit together: an answer is what the command says of such a speedup and such an interval.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from engine.measure.verdict import VERDICTS, verdict
from engine.record import parsing
from engine.record.parsing import CLOSED, Count, Listed, Number, Several, Share, Truth, Whole
from engine.record.race_file import require, within

VERSION = 1
ARMS = ("plain", "guessing")
MOST_FLAGS, POINTS = 100, (1, 64)
FASTEST = 1e9  # tokens a second, and times as fast
PLAIN = parsing.checked(
    type="union",
    choices=[{"type": kind, "strict": True} for kind in ("str", "bool", "int", "float")],
    custom_error_type="plain_type",
    custom_error_message="no flag",
)
Flags = dict[str, Annotated[Any, PLAIN]]


@dataclass(frozen=True)
class PlainServer:
    """The arm that decodes plainly, which may be the other arm with its guesses left out."""

    __pydantic_config__ = CLOSED

    engine: str
    version: str
    model: str
    flags: Flags
    same_server: Truth


@dataclass(frozen=True)
class StreamsPoint:
    """The figures of one number of streams, as `engine.lab.pays.served.point` makes them. Rows of before lack the last two."""

    __pydantic_config__ = CLOSED

    batch: Several
    waves: Several
    plain_tokens_per_s: Number
    tokens_per_s: Number
    speedup: Number
    interval: Listed[Number]
    answer: Annotated[str, parsing.one_of(*VERDICTS)]
    gaining: Count
    tau: Share | None
    acceptance: Share | None
    texts: Several
    identical: Count | None
    miscounts: Annotated[str, parsing.one_of("", *ARMS)] = ""
    doubt: str = ""


@dataclass(frozen=True)
class ServedRow:
    """A server with its guesses against the same model without. `verdict` is the sentence that the command printed."""

    __pydantic_config__ = CLOSED

    verdict: str
    row: Whole
    machine: str
    engine: str
    version: str
    model: str
    flags: Flags
    plain: PlainServer
    temperature: Share
    tokens: Several
    seed: Whole
    chat: Truth
    prompts: Several
    confidence: Share
    points: Listed[StreamsPoint]


def is_row(values: object) -> bool:
    """Whether these values are meant to be a row, of whatever version."""
    return isinstance(values, dict) and "row" in values and "prompt" not in values


def rows(text: str, name: str, most_bytes: int) -> list[dict]:
    """The rows in a table's text. Raises `ValueError` that names the first line that is none, and what is wrong with it."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"Line {number} of {name}"
            values = parsing.parse(line, most_bytes, where)
            require(is_row(values), f"{where} is no row of `pays --server`.")
            told = values["row"]
            require(told == VERSION, f"{where} is a row of version {parsing.shown(told)}, and {VERSION} is read here.")
            check(parsing.build(ServedRow, values, where), where)
            found.append(values)
    return found


def check(row: ServedRow, where: str) -> None:
    """Raises `ValueError` for values that are right by themselves and do not fit together."""
    for flags in (row.flags, row.plain.flags):
        require(len(flags) <= MOST_FLAGS, f"{where} has {len(flags):,} flags; at most {MOST_FLAGS} are read.")
    within(row.points, POINTS, f"{where}.points", "numbers of streams")
    for at, point in enumerate(row.points):
        check_point(point, f"{where}.points[{at}]")


def check_point(point: StreamsPoint, where: str) -> None:
    for name in ("plain_tokens_per_s", "tokens_per_s", "speedup"):
        value = getattr(point, name)
        require(0 < value <= FASTEST, f"{where}.{name} must be above 0 and at most {FASTEST:g}, got {value:g}.")
    require(len(point.interval) == 2, f"{where}.interval must have two ends, got {len(point.interval):,}.")
    low, high = point.interval
    require(0 < low <= high <= FASTEST, f"{where}.interval must rise from above 0, got {low:g} to {high:g}.")
    told = verdict({"interval": point.interval, "speedup": point.speedup})
    require(
        point.answer == told,
        f"{where}.answer must be {told}, which the speedup {point.speedup:g} and its interval say; got {point.answer}.",
    )
    require(point.tau is None or point.tau >= 1, f"{where}.tau must be at least 1, the target's own token.")
    require(point.acceptance is None or point.acceptance <= 1, f"{where}.acceptance must be at most 1.")
    require(point.gaining <= point.waves, f"{where}.gaining has {point.gaining:,} of {point.waves:,} waves.")
    require(
        point.identical is None or point.identical <= point.texts,
        f"{where}.identical has {point.identical} of {point.texts:,} texts.",
    )
