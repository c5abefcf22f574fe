"""Stream: what a wire of the page carries, as JSON strings: a run's messages, and where it stands among others. Knows no race."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import Any

from engine.record.compact_json import to_json
from engine.record.quiet import Quiet

Message = dict[str, Any]
Steps = Generator[Message | Quiet, None, None]  # of a run: its messages, and quiet steps between them


@dataclass(frozen=True)
class News:
    """A message as a JSON string. Behind the `last` one a run only frees what it held."""

    text: str
    last: bool = False


def news(run: str, seq: int, message: Message) -> News:
    """The run's message of that number. The last one carries "end"."""
    return News(to_json({"run": run, "seq": seq, **message}), "end" in message)


def numbered(run: str, steps: Steps) -> Generator[News | Quiet, None, None]:
    """The messages of the run, numbered from 1. Closing the iterator closes `steps`."""
    number = count(1)
    with closing(steps):
        for step in steps:
            yield step if isinstance(step, Quiet) else news(run, next(number), step)
