"""Stream: any messages as JSON strings for a wire of the page, each with its run and its number in the run. Knows no race."""

import json
import math
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any


def numbered(messages: Iterator[dict[str, Any] | None]) -> Iterator[str | None]:
    """The messages as JSON strings, numbered from 1; None stays what it is. Closing the iterator closes `messages`.

    An empty message says that there is nothing to do for a moment. It becomes "".
    """
    run, seq = uuid.uuid4().hex, 0
    with closing(messages):  # type: ignore[type-var]  # generators, which `Iterator` does not say
        for message in messages:
            if message is None:
                yield None
            elif not message:
                yield ""
            else:
                seq += 1
                yield to_json({"run": run, "seq": seq, **message})


def to_json(value: Any) -> str:
    """Compact JSON. Floats have six digits; null stands for a float that is not finite, which JSON cannot say."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
