"""Stream: any messages as JSON strings for a wire of the page, each with its run and its number in the run. Knows no race."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from engine.record.compact_json import to_json
from engine.record.quiet import Quiet


def numbered(run: str, messages: Iterator[dict[str, Any] | Quiet]) -> Iterator[str | Quiet]:
    """The run's messages as JSON strings, numbered from 1, between its quiet steps. Closing the iterator closes `messages`."""
    seq = 0
    with closing(messages):  # type: ignore[type-var]  # generators, which `Iterator` does not say
        for message in messages:
            if isinstance(message, Quiet):
                yield message
            else:
                seq += 1
                yield to_json({"run": run, "seq": seq, **message})
