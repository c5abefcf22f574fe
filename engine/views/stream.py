"""Any messages as a stream of JSON strings for a wire of the page: each with the run that it is of and its number in it."""

import uuid
from collections.abc import Iterator
from contextlib import closing

from engine.views.wire import to_json


def numbered(messages: Iterator[dict]) -> Iterator[str]:
    """Closing the iterator closes `messages`."""
    run = uuid.uuid4().hex
    with closing(messages):
        for seq, message in enumerate(messages, 1):
            yield to_json({"run": run, "seq": seq, **message})
