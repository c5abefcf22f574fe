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
    """A request that is answered with a sentence. What is `is_shown_by_page_parts` stands under "refused" too, which the page's
    parts read.
    """

    def __init__(self, status: int, sentence: str, is_shown_by_page_parts: bool = False):
        super().__init__(status, sentence)
        self.status, self.sentence, self.is_shown_by_page_parts = status, sentence, is_shown_by_page_parts


@dataclass(frozen=True)
class AllowedEndpoints:
    """What the page can be asked: events by number, the API's functions by name, each with its count of values; functions of parts.

    `value_count_by_unqueued_event` are the events that wait in no queue. `file_by_address` are those of our own that may be fetched,
    by address.
    """

    value_count_by_queued_event: Mapping[int, int]
    value_count_by_unqueued_event: Mapping[int, int]
    value_count_by_api_name: Mapping[str, int]
    component_functions: frozenset[tuple[int, str]]
    file_by_address: Mapping[str, Path] = field(default_factory=dict)

    def filter_body_and_extract_session(self, path: str, body: bytes) -> tuple[bytes, str | None]:
        """The body as the application gets it, and the session that it names. Raises `RequestRefused` with a sentence."""
        given, asked = parse_json_object_within_limits(body), last_path_segment(path)
        if asked == "component_server":
            at, name = given.get("component_id"), given.get("fn_name")
            if not isinstance(at, int) or not isinstance(name, str) or (at, name) not in self.component_functions:
                raise RequestRefused(404, "The page has no such function.")
            validate_session_name(given, is_required=True)
            if "data" not in given:
                raise RequestRefused(422, "The function's value is missing: send it as data.")
            return body, given["session_hash"]
        kept = (
            validate_and_filter_cancel_request(given)
            if asked in ("cancel", "reset")
            else self.validate_and_filter_event(asked, given)
        )
        return json.dumps(kept).encode(), given.get("session_hash")

    def validate_and_filter_event(self, endpoint: str, body_fields: dict) -> dict[str, Any]:
        validate_session_name(body_fields, is_required=endpoint == "join")
        values = body_fields.get("data")
        kept: dict[str, Any] = {}
        if endpoint in ("join", "predict"):
            kept = {name: parse_small_event_number(body_fields.get(name)) for name in ("fn_index", "trigger_id")}
            count = (
                self.value_count_by_queued_event if endpoint == "join" else self.value_count_by_unqueued_event
            ).get(kept["fn_index"])
        else:
            count = self.value_count_by_api_name.get(endpoint)
        if count is None:
            raise RequestRefused(
                404, f"There is no such function. The API has {', '.join(sorted(self.value_count_by_api_name))}."
            )
        if not isinstance(values, list) or len(values) != count:
            got = f"{len(values):,}" if isinstance(values, list) else "no list"
            raise RequestRefused(422, f"It takes a list of {count} values as data, got {got}. See /gradio_api/info.")
        if not all(map(is_scalar_or_list_of_scalars_and_text_pairs, values)):
            raise RequestRefused(
                422, "Values are texts, numbers, true, false, null, or lists of these and of pairs of texts."
            )
        if body_fields.get("session_hash"):
            kept["session_hash"] = body_fields["session_hash"]
        return {**kept, "data": values}


def is_scalar_or_list_of_scalars_and_text_pairs(value: object) -> bool:
    """Whether it is no object, and no list that holds more than plain values and pairs of texts, such as a chat's turns."""
    inside = [each for each in value if isinstance(each, dict | list)] if isinstance(value, list) else []
    pairs = all(isinstance(each, list) and [*map(type, each)] == [str, str] for each in inside)
    return pairs and not isinstance(value, dict)


def validate_and_filter_cancel_request(body_fields: dict) -> dict[str, Any]:
    """What ends a run, or forgets it."""
    validate_session_name(body_fields)
    kept = {name: body_fields[name] for name in ("session_hash", "event_id") if isinstance(body_fields.get(name), str)}
    if not all(NAME.fullmatch(each) for each in kept.values()):
        raise RequestRefused(422, "The race to end has no such name.")
    return {**kept, "fn_index": parse_small_event_number(body_fields.get("fn_index"))}


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


def validate_session_name(body_fields: dict, is_required: bool = False) -> None:
    name = body_fields.get("session_hash")
    if name is None and not is_required:
        return
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RequestRefused(422, "A session's name has 1 to 64 letters, digits and dashes.")


def parse_small_event_number(value: object) -> int | None:
    """The value when it can number an event of the page, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000 else None
