"""Bodies: what may be sent to the page's functions. Counts, names and forms are checked here; the functions check what values mean."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SMALL = 7_000_000  # bytes: prompts of 1 MB, as JSON may write them
MOST = {
    "component_server": 26_000_000,
    "cancel": 20_000,
    "reset": 20_000,
}  # of others; the first may be a race file of 20 MB
FEW, MANY = 20_000, 200_000  # bytes outside of texts, and texts, of a body
NAME = re.compile(r"[\w-]{1,64}", re.ASCII)
UNREADABLE = "This is no JSON that can be read here."


class RequestRefused(Exception):
    """A request that is answered with a sentence. What is `shown` stands under "refused" too, which the page's parts read."""

    def __init__(self, status: int, words: str, shown: bool = False):
        super().__init__(status, words)
        self.status, self.words, self.shown = status, words, shown


@dataclass(frozen=True)
class Endpoints:
    """What the page can be asked: events by number, the API's functions by name, each with its count of values; functions of parts.

    `quick` are the events that wait in no queue. `files` are those of our own that may be fetched, by address.
    """

    events: Mapping[int, int]
    quick: Mapping[int, int]
    named: Mapping[str, int]
    functions: frozenset[tuple[int, str]]
    files: Mapping[str, Path] = field(default_factory=dict)

    def validate_and_filter_body(self, path: str, body: bytes) -> tuple[bytes, str | None]:
        """The body as the application gets it, and the session that it names. Raises `RequestRefused` with a sentence."""
        given, asked = parse_json_object_within_limits(body), last_path_segment(path)
        if asked == "component_server":
            at, name = given.get("component_id"), given.get("fn_name")
            if not isinstance(at, int) or not isinstance(name, str) or (at, name) not in self.functions:
                raise RequestRefused(404, "The page has no such function.")
            validate_session_name(given, is_required=True)
            if "data" not in given:
                raise RequestRefused(422, "The function's value is missing: send it as data.")
            return body, given["session_hash"]
        kept = (
            parse_cancel_request(given)
            if asked in ("cancel", "reset")
            else self.validate_and_filter_event(asked, given)
        )
        return json.dumps(kept).encode(), given.get("session_hash")

    def validate_and_filter_event(self, endpoint: str, sent: dict) -> dict[str, Any]:
        validate_session_name(sent, is_required=endpoint == "join")
        values = sent.get("data")
        kept: dict[str, Any] = {}
        if endpoint in ("join", "predict"):
            kept = {name: parse_event_number(sent.get(name)) for name in ("fn_index", "trigger_id")}
            count = (self.events if endpoint == "join" else self.quick).get(kept["fn_index"])
        else:
            count = self.named.get(endpoint)
        if count is None:
            raise RequestRefused(404, f"There is no such function. The API has {', '.join(sorted(self.named))}.")
        if not isinstance(values, list) or len(values) != count:
            got = f"{len(values):,}" if isinstance(values, list) else "no list"
            raise RequestRefused(422, f"It takes a list of {count} values as data, got {got}. See /gradio_api/info.")
        if not all(map(is_scalar_or_flat_list, values)):
            raise RequestRefused(
                422, "Values are texts, numbers, true, false, null, or lists of these and of pairs of texts."
            )
        if sent.get("session_hash"):
            kept["session_hash"] = sent["session_hash"]
        return {**kept, "data": values}


def is_scalar_or_flat_list(value: object) -> bool:
    """Whether it is no object, and no list that holds more than plain values and pairs of texts, such as a chat's turns."""
    inside = [each for each in value if isinstance(each, dict | list)] if isinstance(value, list) else []
    pairs = all(isinstance(each, list) and [*map(type, each)] == [str, str] for each in inside)
    return pairs and not isinstance(value, dict)


def parse_cancel_request(body: dict) -> dict[str, Any]:
    """What ends a run, or forgets it."""
    validate_session_name(body)
    kept = {name: body[name] for name in ("session_hash", "event_id") if isinstance(body.get(name), str)}
    if not all(NAME.fullmatch(each) for each in kept.values()):
        raise RequestRefused(422, "The race to end has no such name.")
    return {**kept, "fn_index": parse_event_number(body.get("fn_index"))}


def last_path_segment(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[1]


def parse_json_object_within_limits(body: bytes) -> dict[str, Any]:
    """The object in a body. Most of a body must be texts, or a few bytes of brackets would become much memory."""
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(b'"') > MANY or len(b"".join(bare.split(b'"')[::2])) > FEW:
        raise RequestRefused(413, "This holds too many values.")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestRefused(422, UNREADABLE) from None
    if not isinstance(found, dict):
        raise RequestRefused(422, UNREADABLE)
    return found


def validate_session_name(body: dict, is_required: bool = False) -> None:
    name = body.get("session_hash")
    if name is None and not is_required:
        return
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RequestRefused(422, "A session's name has 1 to 64 letters, digits and dashes.")


def parse_event_number(value: object) -> int | None:
    """The value when it can number an event of the page, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000 else None
