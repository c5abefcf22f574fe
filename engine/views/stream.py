"""Any messages as a stream of JSON strings for a wire of the page: each with the run that it is of and its number in it."""

import json
import math
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any


def numbered(messages: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Closing the iterator closes `messages`."""
    run = uuid.uuid4().hex
    with closing(messages):
        for seq, message in enumerate(messages, 1):
            yield to_json({"run": run, "seq": seq, **message})


def to_json(value: Any) -> str:
    """Compact JSON that every reader parses: floats to six digits, and null where a float is not finite."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
