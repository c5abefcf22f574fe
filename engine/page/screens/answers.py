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
    choose_dial_shape,
    choose_pair,
    describe_system_on_pair,
    find_raceable_system,
)
from engine.page.views.wire import serialise_race
from engine.race import SHAPE
from engine.record.parsing import quote, validate_type
from engine.record.race_file import Record
from engine.record.trace import Trace

Answer = dict[str, object]
PROMPTS, CHAT_PROMPTS = load_page_prompts(), load_chat_page_prompts()
CURVES: dict[str, Answer] = json.loads((ASSETS / "results" / "curves.json").read_text("utf-8"))
EXAMPLES: dict[str, Answer] = json.loads((ASSETS / "results" / "examples.json").read_text("utf-8"))
RACES = {path.stem: Record.from_json(path.read_text("utf-8")) for path in sorted((ASSETS / "races").glob("*.json"))}
OPENING: Trace = min(RACES.items())[1].lanes[-1].trace  # of the first one's right lane
OPENING_SHAPE = {name: getattr(OPENING, name) for name in SHAPE}


def choose_opening_shape(lanes: tuple[str, str], pairs: Sequence[LoadedPair]) -> dict[str, int]:
    """What the dials begin with: the shape of the recorded race that the page opens with, else that of the right one of these lanes."""
    opens = pairs[0].pair.name in EMBEDDED and lanes == LANES
    return OPENING_SHAPE if opens else choose_dial_shape(lanes[1], pairs)


def list_recorded_races() -> list[dict[str, str]]:
    """The recorded races as entries of a menu: a race's name, the title of its last lane, its prompt."""
    last = {name: record.lanes[-1] for name, record in RACES.items()}
    return [
        {"name": name, "title": f"{lane.title}, temperature {lane.trace.temperature:g}", "prompt": lane.trace.prompt}
        for name, lane in last.items()
    ]


def validate_list(value: object, what: str, least: int, most: int) -> list[Any]:
    """The value itself, when it is a list of so many. `what` names it in the sentence."""
    found: list[Any] = validate_type(list, value, what)
    if not least <= len(found) <= most:
        raise ValueError(f"{what} must hold {least} to {most} values, got {len(found):,}.")
    return found


def answer_with_refusal(make: Callable[..., Answer]) -> Callable[..., Answer]:
    """The function, which answers a `ValueError` with its sentence under "refused"."""

    @wraps(make)
    def answer(*given: object) -> Answer:
        try:
            return make(*given)
        except ValueError as error:
            return {"refused": str(error)}

    return answer


@answer_with_refusal
def describe_card(names: object, pairs: Sequence[LoadedPair]) -> Answer:
    """Describes a system on one of these pairs for its card; `names` are the system's and the pair's, "" for the first pair."""
    name, pair = validate_list(names, "The question", 2, 2)
    system, found = find_raceable_system(name), choose_pair(pairs, pair)
    system.refuse_pair_lacking_parts(found)
    return describe_system_on_pair(system, found)


@answer_with_refusal
def read_prompts(file: object) -> Answer:
    """The prompts of a visitor's file, given as its name and its text, or what is wrong with it."""
    return {"prompts": own_prompts.read_prompt_file(*validate_list(file, "The file", 2, 2))}


@answer_with_refusal
def curve(name: object) -> Answer:
    """A recorded curve of Learn, as the last message of its measurement with its day, its command and the processor's name."""
    if not isinstance(name, str) or name not in CURVES:
        raise ValueError(f"There is no recorded curve {quote(name)}. Available: {', '.join(CURVES)}.")
    return {"curve": CURVES[name]}


@answer_with_refusal
def example(name: object) -> Answer:
    """The recorded run that a screen begins with: its messages, and where and when it was recorded."""
    if not isinstance(name, str) or name not in EXAMPLES:
        raise ValueError(f"There is no recorded example {quote(name)}. Available: {', '.join(EXAMPLES)}.")
    return EXAMPLES[name]


@answer_with_refusal
def recorded(name: object) -> Answer:
    if not isinstance(name, str) or name not in RACES:
        raise ValueError(f"There is no recorded race {quote(name)}.")
    return {"event": serialise_race(RACES[name])}


def find_opening_race(name: object, pair: LoadedPair) -> Answer:
    """The recorded race of that name, for a page to open with. Of a pair that is not embedded no race is kept, so there is none."""
    found = recorded(name)
    return found if "refused" in found or pair.pair.name in EMBEDDED else {}
