"""What a visitor may begin with, and what the page asks outside of a run: answers are plain values, or a sentence under "refused".

Knows the engine's readers by name; knows no page. A caller's mistake never raises an exception, whatever is sent.
"""

import json
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from engine.measure.options import ASSETS, load_chat_page_prompts, load_page_prompts
from engine.models.pairs import EMBEDDED, LoadedPair
from engine.page.screens import own_prompts
from engine.page.screens.cards import (
    LANES,
    choose_shape_shown_by_dials,
    describe_system_on_pair,
    find_pair_by_name_or_first,
    find_system_with_raceable_shape,
)
from engine.page.views.wire import serialise_whole_race_as_event
from engine.race import SHAPE
from engine.record.parsing import format_value_for_error, validate_type
from engine.record.race_file import Record
from engine.record.trace import Trace

ValuesOrRefusal = dict[str, object]
PROMPTS, CHAT_PROMPTS = load_page_prompts(), load_chat_page_prompts()
CURVES: dict[str, ValuesOrRefusal] = json.loads((ASSETS / "results" / "curves.json").read_text("utf-8"))
EXAMPLES: dict[str, ValuesOrRefusal] = json.loads((ASSETS / "results" / "examples.json").read_text("utf-8"))
RACES = {path.stem: Record.from_json(path.read_text("utf-8")) for path in sorted((ASSETS / "races").glob("*.json"))}
OPENING: Trace = min(RACES.items())[1].lanes[-1].trace  # of the first one's right lane
OPENING_SHAPE = {name: getattr(OPENING, name) for name in SHAPE}


def choose_opening_shape(lane_systems: tuple[str, str], pairs: Sequence[LoadedPair]) -> dict[str, int]:
    """What the dials begin with: the shape of the recorded race that the page opens with, else that of the right one of these lanes."""
    opens = pairs[0].pair.name in EMBEDDED and lane_systems == LANES
    return OPENING_SHAPE if opens else choose_shape_shown_by_dials(lane_systems[1], pairs)


def list_recorded_races() -> list[dict[str, str]]:
    """The recorded races as entries of a menu: a race's name, the title of its last lane, its prompt."""
    last = {name: record.lanes[-1] for name, record in RACES.items()}
    return [
        {"name": name, "title": f"{lane.title}, temperature {lane.trace.temperature:g}", "prompt": lane.trace.prompt}
        for name, lane in last.items()
    ]


def validate_list_length(value: object, name_in_error: str, min_length: int, max_length: int) -> list[Any]:
    """The value itself, when it is a list of so many. `name_in_error` names it in the sentence."""
    found: list[Any] = validate_type(list, value, name_in_error)
    if not min_length <= len(found) <= max_length:
        raise ValueError(f"{name_in_error} must hold {min_length} to {max_length} values, got {len(found):,}.")
    return found


def return_refusal_on_value_error(function: Callable[..., ValuesOrRefusal]) -> Callable[..., ValuesOrRefusal]:
    """The function, which answers a `ValueError` with its sentence under "refused"."""

    @wraps(function)
    def answer(*given: object) -> ValuesOrRefusal:
        try:
            return function(*given)
        except ValueError as error:
            return {"refused": str(error)}

    return answer


@return_refusal_on_value_error
def describe_system_card(system_and_pair_names: object, pairs: Sequence[LoadedPair]) -> ValuesOrRefusal:
    """Describes a system on one of these pairs for its card; `system_and_pair_names` are the system's and the pair's, "" for the
    first pair.
    """
    name, pair = validate_list_length(system_and_pair_names, "The question", 2, 2)
    system, found = find_system_with_raceable_shape(name), find_pair_by_name_or_first(pairs, pair)
    system.refuse_pair_lacking_parts(found)
    return describe_system_on_pair(system, found)


@return_refusal_on_value_error
def parse_prompts_of_upload(name_and_text: object) -> ValuesOrRefusal:
    """The prompts of a visitor's file, given as its name and its text, or what is wrong with it."""
    return {"prompts": own_prompts.parse_prompt_file(*validate_list_length(name_and_text, "The file", 2, 2))}


@return_refusal_on_value_error
def load_recorded_curve(curve_name: object) -> ValuesOrRefusal:
    """A recorded curve of Learn, as the last message of its measurement with its day, its command and the processor's name."""
    if not isinstance(curve_name, str) or curve_name not in CURVES:
        raise ValueError(
            f"There is no recorded curve {format_value_for_error(curve_name)}. Available: {', '.join(CURVES)}."
        )
    return {"curve": CURVES[curve_name]}


@return_refusal_on_value_error
def load_recorded_run(screen_name: object) -> ValuesOrRefusal:
    """The recorded run that a screen begins with: its messages, and where and when it was recorded."""
    if not isinstance(screen_name, str) or screen_name not in EXAMPLES:
        raise ValueError(
            f"There is no recorded example {format_value_for_error(screen_name)}. Available: {', '.join(EXAMPLES)}."
        )
    return EXAMPLES[screen_name]


@return_refusal_on_value_error
def serialise_recorded_race(race_name: object) -> ValuesOrRefusal:
    if not isinstance(race_name, str) or race_name not in RACES:
        raise ValueError(f"There is no recorded race {format_value_for_error(race_name)}.")
    return {"event": serialise_whole_race_as_event(RACES[race_name])}


def serialise_opening_race_of_embedded_pair(race_name: object, pair: LoadedPair) -> ValuesOrRefusal:
    """The recorded race of that name, for a page to open with. Of a pair that is not embedded no race is kept, so there is none."""
    found = serialise_recorded_race(race_name)
    return found if "refused" in found or pair.pair.name in EMBEDDED else {}
