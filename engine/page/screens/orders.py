"""Orders: what a visitor may ask of the device, by kind, checked before it waits in line. Knows races and limits; knows no page.

An order is asked for with plain values, so that it may be carried out in another process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.measure.curves import curves
from engine.measure.curves.sweep import Sweep, SweepPlan
from engine.measure.racing import IN_A_RACE, PROBE_TOKENS, PROBES, SMALLER
from engine.measure.repeated import RepeatedRace
from engine.models import cache_memory
from engine.models.chat import render_prompt
from engine.models.pairs import LoadedPair
from engine.page.screens import own_prompts
from engine.page.screens import pays as does_it_pay
from engine.page.screens.break_distance import measure_break
from engine.page.screens.cards import strip_break
from engine.page.screens.device import DEVICE
from engine.page.screens.turns import LONG, RACE
from engine.page.views.wire import stream_race
from engine.race import BASELINE, REMOTE, WARM_UP_TEXT, Settings, parse_grand_prix_systems
from engine.record.chat_turns import Turns
from engine.record.parsing import parse_json, quote, validate_type
from engine.record.quiet import Steps
from engine.systems import SYSTEMS
from engine.tree import LARGEST_TREE

MOST_TOKENS = 60_000  # of a call: its lanes times their new tokens
LONGEST_ORDER = 7_000_000  # bytes: prompts of 1 MB, of which JSON may write every character with six


@dataclass(frozen=True)
class Order:
    """Checked: the steps that carry it out and yield its messages, its rank, and the most tokens and bytes of caches that it takes."""

    steps: Callable[[], Steps]
    rank: int
    tokens: int
    bytes: int


def parse_order(value: object, needed: set[str], known: set[str]) -> dict[str, Any]:
    """What a page's script ordered as a JSON object: it has all names that are `needed`, and none that is not `known`."""
    found = validate_type(
        dict, parse_json(validate_type(str, value, "The order"), LONGEST_ORDER, "The order"), "The order"
    )
    if wrong := [*sorted(needed - found.keys()), *sorted(found.keys() - known)]:
        raise ValueError(f"The order must name {', '.join(sorted(needed))}; {quote(wrong[0])} is wrong in it.")
    return found


def parse_turns(value: object) -> object:
    """The earlier turns of a chat that a page's script sent as JSON, "" for none; `Settings` validates them."""
    return () if value == "" else parse_json(validate_type(str, value, "The chat"), LONGEST_ORDER, "The chat")


def build_order(pair: LoadedPair, kind: str, values: dict[str, Any]) -> Order:
    """The order of this kind, one of `KINDS`. Raises `ValueError` for senseless values and for too much work in one call."""
    made = KINDS[kind](pair, **values)
    if made.tokens > MOST_TOKENS:
        raise ValueError(
            f"This asks for up to {made.tokens:,} tokens, counting every lane; at most {MOST_TOKENS:,} are written in one call. "
            "Ask for fewer new tokens, prompts or cells."
        )
    return made


def race(pair: LoadedPair, prompt: str, systems: list[str], **settings: Any) -> Order:
    """Further runs, unseen, take place while nobody else wants the device."""
    asked = Settings(prompt, tuple(systems), **settings)
    lanes, tokens = len(asked.systems), asked.max_new_tokens
    room = race_cache_bytes(pair, [asked.prompt], tokens, lanes, asked.turns)
    return Order(
        lambda: stream_race(RepeatedRace(pair, asked, alone=DEVICE.has_single_job)), RACE, lanes * tokens, room
    )


def prix(pair: LoadedPair, prompt: str, systems: list[str], **settings: Any) -> Order:
    return race(pair, prompt, refuse_remote_system(list(parse_grand_prix_systems(systems))), **settings)


def sweep(pair: LoadedPair, prompts: object, **more: Any) -> Order:
    asked = SweepPlan(prompts, **more)  # type: ignore[arg-type]  # it checks them
    tokens = 2 * len(asked.cells) * len(asked.prompts) * asked.max_new_tokens
    room = race_cache_bytes(pair, list(asked.prompts), asked.max_new_tokens, 2)
    return Order(lambda: Sweep(pair, asked).run(), LONG, tokens, room)


def prompts(pair: LoadedPair, prompts: list[str], system: str, **settings: Any) -> Order:
    asked = own_prompts.validate_prompts(prompts)
    tokens = Settings(WARM_UP_TEXT, tuple(refuse_remote_system([BASELINE, system])), **settings).max_new_tokens
    room = race_cache_bytes(pair, asked, tokens, 2)
    return Order(lambda: own_prompts.race_prompts(pair, asked, system, **settings), LONG, 2 * len(asked) * tokens, room)


def pays(pair: LoadedPair, prompts: list[str], systems: list[str], **settings: Any) -> Order:
    asked = does_it_pay.validate_pays_order(prompts, systems, **settings)
    systems = does_it_pay.validate_system_names(systems)
    count, tokens = len(systems) or len(SYSTEMS), asked.max_new_tokens
    probes = count * (1 + len(SMALLER)) * PROBES * min(PROBE_TOKENS, tokens)
    raced = (count + count // IN_A_RACE + 2) * len(prompts) * tokens  # a baseline in every race, and generate()
    room = race_cache_bytes(pair, prompts, tokens, 1 + IN_A_RACE)
    return Order(lambda: does_it_pay.race_systems(pair, prompts, systems, **settings), LONG, probes + raced, room)


def curve(pair: LoadedPair, curve: str) -> Order:
    """One of the curves of Learn, measured anew. Sizes of a batch that do not fit the memory are left out."""
    prompts, lanes, tokens = curves.curve_workload_of(pair, curve)
    room = int(min(race_cache_bytes(pair, prompts, curves.TOKENS[curve], lanes), cache_memory.cache_budget(pair)))
    return Order(lambda: curves.measure_curve(pair, curve), LONG, tokens, room)


def distance(pair: LoadedPair, prompt: str, broken: str, **settings: Any) -> Order:
    asked = Settings(prompt, (strip_break(broken), broken), **settings)
    room = race_cache_bytes(
        pair, [asked.prompt], asked.max_new_tokens, 3
    )  # the right system, the broken target, a plain one
    return Order(lambda: measure_break(pair, asked), LONG, 3 * asked.max_new_tokens, room)


def refuse_remote_system(systems: list[str]) -> list[str]:
    """The systems themselves. Raises `ValueError` when another server is among them, for it takes part in races of two lanes alone."""
    if REMOTE in systems:
        raise ValueError(f"The system {REMOTE} is another server. It takes part in a race of two lanes, not here.")
    return systems


KINDS: dict[str, Callable[..., Order]] = {
    each.__name__: each for each in (race, prix, sweep, prompts, pays, curve, distance)
}


def race_cache_bytes(pair: LoadedPair, prompts: list[str], new_tokens: int, lanes: int, turns: Turns = ()) -> int:
    """Bytes that the caches of so many lanes take at most, each with a draft's cache beside the target's.

    `turns` are those of a chat before the prompts.
    """
    texts = [render_prompt(pair, prompt, turns) for prompt in prompts]
    tokens = min(pair.context, max(len(text.encode("utf-8", "replace")) for text in texts) + new_tokens)
    return lanes * cache_memory.lane_cache_bytes(pair, tokens + LARGEST_TREE)
