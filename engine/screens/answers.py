"""What the page asks outside of a run: each function answers with plain values, or with a sentence under "refused".

Knows the engine's readers by name; knows no page. A caller's mistake never raises an exception.
"""

from collections.abc import Callable

from engine.record.race_file import Record, side_by_side
from engine.screens import own_prompts
from engine.screens.cards import card
from engine.screens.gallery import RACES
from engine.screens.serving import configurations
from engine.systems import find
from engine.views import standalone
from engine.views.wire import replay

Answer = dict[str, object]


def answer(make: Callable[[], Answer]) -> Answer:
    """What was asked for, or the sentence that refuses it."""
    try:
        return make()
    except ValueError as error:
        return {"refused": str(error)}


def look(name: str) -> Answer:
    """The card of the system of that name, or why there is none."""
    return answer(lambda: card(find(str(name))))


def read_prompts(file: list) -> Answer:
    """The prompts of a visitor's file, given as its name and its text, or what is wrong with it."""
    return answer(lambda: {"prompts": own_prompts.read(*file)})


def production(setting: list) -> Answer:
    """A setting for the engines that serve models, or why there is none. `setting` is system, depth, width, nodes, temperature."""
    return answer(lambda: {"engines": configurations(*setting)})


def recorded(name: str) -> Answer:
    """A recorded race as an event of the page."""
    if str(name) not in RACES:
        return {"refused": f"There is no recorded race {str(name)[:60]!r}."}
    return {"event": replay(RACES[str(name)])}


def opened(text: str) -> Answer:
    """The race in a file's `text` as an event of the page, or what is wrong with the file."""
    return of_file(text, lambda record: {"event": side_by_side(record) and replay(record)})


def replay_page(text: str) -> Answer:
    """A race file as a page of its own, or what is wrong with the file."""
    return of_file(text, lambda record: {"html": standalone.html(record)})


def of_file(text: str, make: Callable[[Record], Answer]) -> Answer:
    try:
        return make(Record.from_json(str(text)))
    except ValueError as error:
        return {"refused": f"This race file cannot be read. {error}"}
