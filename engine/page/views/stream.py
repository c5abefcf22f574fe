"""Stream: any messages as JSON strings for a wire of the page, each with its run and its number in the run. Knows no race."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from engine.record.compact_json import to_json


def numbered(run: str, messages: Iterator[dict[str, Any] | None]) -> Iterator[str | None]:
    """The run's messages as JSON strings, numbered from 1; None stays what it is. Closing the iterator closes `messages`.

    An empty message says that there is nothing to do for a moment. It becomes "".
    """
    seq = 0
    with closing(messages):  # type: ignore[type-var]  # generators, which `Iterator` does not say
        for message in messages:
            if message is None:
                yield None
            elif not message:
                yield ""
            else:
                seq += 1
                yield to_json({"run": run, "seq": seq, **message})
