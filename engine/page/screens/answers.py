"""What the page asks outside of a run: each function answers with plain values, or with a sentence under "refused".

Knows the engine's readers by name; knows no page. A caller's mistake never raises an exception, whatever is sent.
"""

from collections.abc import Callable, Sequence

from engine.models.pairs import LoadedPair
from engine.page.screens import own_prompts, pays_servers, race_files
from engine.page.screens.cards import card_here, raceable
from engine.page.screens.gallery import RACES
from engine.page.screens.offered import chosen
from engine.page.screens.sent_values import values
from engine.page.screens.serving import configurations
from engine.page.views.wire import replay
from engine.record.parsing import shown

Answer = dict[str, object]


def answer(make: Callable[[], Answer]) -> Answer:
    """What was asked for, or the sentence that refuses it."""
    try:
        return make()
    except ValueError as error:
        return {"refused": str(error)}


def look(asked: object, pairs: Sequence[LoadedPair]) -> Answer:
    """The card of a system with one of these pairs, or why there is none. `asked` is two names, the pair's "" for the first."""

    def card() -> Answer:
        name, pair = values(asked, "The question", 2, 2)
        return card_here(raceable(name), chosen(pairs, pair))

    return answer(card)


def read_prompts(file: object) -> Answer:
    """The prompts of a visitor's file, given as its name and its text, or what is wrong with it."""
    return answer(lambda: {"prompts": own_prompts.read(*values(file, "The file", 2, 2))})


def read_pays(file: object) -> Answer:
    """What a file for “Does it pay?” holds, prompts or the rows of a table of servers, or what is wrong with it."""

    def found() -> Answer:
        name, text = values(file, "The file", 2, 2)
        if pays_servers.is_table(text):
            return {"servers": pays_servers.read(name, text)}
        return {"prompts": own_prompts.read(name, text)}

    return answer(found)


def production(setting: object) -> Answer:
    """A setting for the engines that serve models, or why there is none. `setting` is system, depth, width, nodes, temperature."""
    return answer(lambda: {"engines": configurations(*values(setting, "The setting", 1, 5))})


def recorded(name: object) -> Answer:
    """A recorded race as an event of the page."""
    if not isinstance(name, str) or name not in RACES:
        return {"refused": f"There is no recorded race {shown(name)}."}
    return {"event": replay(RACES[name])}


def opened(text: object, visitor: str = "") -> Answer:
    """The race in a file's `text` as an event of the page, the steps in an answer of vLLM, or what is wrong with the file."""
    return race_files.read("opened", text, visitor)


def replay_page(text: object, visitor: str = "") -> Answer:
    """A race file as a page of its own, or what is wrong with the file."""
    return race_files.read("replay_page", text, visitor)
