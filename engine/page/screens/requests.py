"""Requests: what a visitor may ask of the device, by kind, validated once before it waits in line. Knows races and limits.

A request holds plain values, so another process can run it as it is.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import partial
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
from engine.page.screens.answers import validate_list_length
from engine.page.screens.break_distance import measure_break_in_steps
from engine.page.screens.cards import remove_break_from_system_name
from engine.page.screens.device import DEVICE
from engine.page.screens.turns import LONG, RACE
from engine.page.views.wire import run_race_as_messages
from engine.race import (
    BASELINE,
    FIELD,
    REMOTE,
    SHAPE,
    WARM_UP_TEXT,
    Settings,
    parse_grand_prix_systems,
    validate_setting,
)
from engine.record.chat_turns import Turns
from engine.record.parsing import parse_json, quote, validate_type
from engine.record.quiet import Steps
from engine.systems import SYSTEMS, find_comparable_chain_name, find_node_filling_system, find_system, format_shape
from engine.tree import LARGEST_TREE

MOST_TOKENS = 60_000  # of a call: its lanes times their new tokens
LONGEST_REQUEST = 7_000_000  # bytes: prompts of 1 MB, of which JSON may write every character with six
DIALS = ("temperature", "max_new_tokens", "seed")


@dataclass(frozen=True)
class Request:
    """What somebody asks of the device. `run` yields its messages on the pair, within `tokens` and `bytes` of caches."""

    run: Callable[[LoadedPair], Steps]
    rank: int
    tokens: int
    bytes: int


def parse_page_request(text: object) -> dict[str, Any]:
    """What a page's script asks for as a JSON object: a "kind", a name for the "run", a "pair", and the kind's own values by name."""
    values: dict[str, Any] = validate_type(
        dict, parse_json(validate_type(str, text, "The request"), LONGEST_REQUEST, "The request"), "The request"
    )
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"There is no kind of run {quote(kind)}. Available: {', '.join(KINDS)}.")
    needed = {"kind", "run", *KINDS[kind].needs}
    known = {*needed, "pair", *KINDS[kind].takes}
    if wrong := [*sorted(needed - values.keys()), *sorted(values.keys() - known)]:
        raise ValueError(f"The request must name {', '.join(sorted(needed))}; {quote(wrong[0])} is wrong in it.")
    return values


def build_request(pair: LoadedPair, kind: str, values: dict[str, Any]) -> Request:
    """The request of this kind, one of `KINDS`. Raises `ValueError` for senseless values and for too much work in one call."""
    made = KINDS[kind].build(pair, **values)
    if made.tokens > MOST_TOKENS:
        raise ValueError(
            f"This asks for up to {made.tokens:,} tokens, counting every lane; at most {MOST_TOKENS:,} are written in one call. "
            "Ask for fewer new tokens, prompts or cells."
        )
    return made


def race(
    pair: LoadedPair,
    prompt: str,
    systems: list[str],
    untouched: object = "",
    full: object = False,
    third: object = False,
    **settings: Any,
) -> Request:
    """A race of these lanes. Further runs, unseen, take place while nobody else wants the device.

    A shape that is still `untouched` gives each lane the best shape of its own system. `full` has the last lane's tree use all nodes.
    `third` adds a lane in the middle: the chain with as many guesses.
    """
    names = validate_list_length(systems, "The systems", 1, FIELD[1])
    whole = full and names[-1] != REMOTE and find_node_filling_system(find_system(names[-1]))
    if whole:  # in the shape that the dials show
        names = [*names[:-1], whole]
    elif untouched and format_shape(dict.fromkeys(SHAPE) | settings) == untouched:
        settings |= dict.fromkeys(SHAPE)
    if third:
        names = insert_chain_lane(pair, names, settings)
    chosen = Settings(prompt, tuple(names), **settings)
    lanes, tokens = len(chosen.systems), chosen.max_new_tokens
    cache_bytes = race_cache_bytes(pair, [chosen.prompt], tokens, lanes, chosen.turns)
    return Request(partial(run_race, settings=chosen), RACE, lanes * tokens, cache_bytes)


def run_race(pair: LoadedPair, settings: Settings) -> Steps:
    return run_race_as_messages(RepeatedRace(pair, settings, alone=DEVICE.has_at_most_one_job))


def insert_chain_lane(pair: LoadedPair, systems: list[str], settings: dict[str, Any]) -> list[str]:
    """The lanes' systems, and before the last one the chain with as many guesses, where that one branches."""
    if REMOTE in systems:
        return systems
    system = find_system(systems[-1])
    given = {dial: int(validate_setting(dial, settings[dial])) for dial in SHAPE if settings.get(dial) is not None}
    shape = given if len(given) == len(SHAPE) else system.best_shape_for(pair) | given
    chain = find_comparable_chain_name(system, shape)
    return [*systems[:-1], chain, systems[-1]] if chain else systems


def prix(pair: LoadedPair, prompt: str, systems: list[str], **settings: Any) -> Request:
    return race(pair, prompt, refuse_remote_system(list(parse_grand_prix_systems(systems))), **settings)


def sweep(pair: LoadedPair, prompts: object, **more: Any) -> Request:
    chosen = SweepPlan(prompts, **more)  # type: ignore[arg-type]  # it checks them
    tokens = 2 * len(chosen.cells) * len(chosen.prompts) * chosen.max_new_tokens
    cache_bytes = race_cache_bytes(pair, list(chosen.prompts), chosen.max_new_tokens, 2)
    return Request(partial(run_sweep, plan=chosen), LONG, tokens, cache_bytes)


def run_sweep(pair: LoadedPair, plan: SweepPlan) -> Steps:
    return Sweep(pair, plan).measure_cells_in_steps()


def prompts(pair: LoadedPair, prompts: list[str], system: str, **settings: Any) -> Request:
    chosen = own_prompts.validate_prompts(prompts)
    tokens = Settings(WARM_UP_TEXT, tuple(refuse_remote_system([BASELINE, system])), **settings).max_new_tokens
    cache_bytes = race_cache_bytes(pair, chosen, tokens, 2)
    run = partial(own_prompts.race_prompts_in_steps, prompts=chosen, system=system, **settings)
    return Request(run, LONG, 2 * len(chosen) * tokens, cache_bytes)


def pays(pair: LoadedPair, prompts: list[str], systems: list[str], **settings: Any) -> Request:
    chosen = does_it_pay.validate_pays_order(prompts, systems, **settings)
    systems = does_it_pay.validate_system_names(systems)
    count, tokens = len(systems) or len(SYSTEMS), chosen.max_new_tokens
    probes = count * (1 + len(SMALLER)) * PROBES * min(PROBE_TOKENS, tokens)
    raced = (count + count // IN_A_RACE + 2) * len(prompts) * tokens  # a baseline in every race, and generate()
    cache_bytes = race_cache_bytes(pair, prompts, tokens, 1 + IN_A_RACE)
    return Request(
        partial(does_it_pay.race_systems_in_steps, prompts=prompts, systems=systems, **settings),
        LONG,
        probes + raced,
        cache_bytes,
    )


def curve(pair: LoadedPair, curve: str) -> Request:
    """One of the curves of Learn, measured anew. Sizes of a batch that do not fit the memory are left out."""
    prompts, lanes, tokens = curves.estimate_curve_workload(pair, curve)
    cache_bytes = int(
        min(race_cache_bytes(pair, prompts, curves.TOKENS[curve], lanes), cache_memory.max_bytes_of_all_caches(pair))
    )
    return Request(partial(curves.measure_curve_in_steps, curve=curve), LONG, tokens, cache_bytes)


def distance(pair: LoadedPair, prompt: str, broken: str, **settings: Any) -> Request:
    chosen = Settings(prompt, (remove_break_from_system_name(broken), broken), **settings)
    # The right system, the broken target, a plain one
    cache_bytes = race_cache_bytes(pair, [chosen.prompt], chosen.max_new_tokens, 3)
    return Request(partial(measure_break_in_steps, settings=chosen), LONG, 3 * chosen.max_new_tokens, cache_bytes)


def refuse_remote_system(systems: list[str]) -> list[str]:
    """The systems themselves. Raises `ValueError` when another server is among them, for it takes part in races of two lanes alone."""
    if REMOTE in systems:
        raise ValueError(f"The system {REMOTE} is another server. It takes part in a race of two lanes, not here.")
    return systems


@dataclass(frozen=True)
class RequestKind:
    """A kind of request: what builds one for a pair, and the names of the values that it `needs` and that it `takes` besides."""

    build: Callable[..., Request]
    needs: Collection[str]
    takes: Collection[str] = ()


KINDS = {
    "race": RequestKind(
        race, ("prompt", "systems"), ("untouched", "full", "third", *SHAPE, *DIALS, "constraint", "turns")
    ),
    "prix": RequestKind(prix, ("prompt", "systems"), DIALS),
    "sweep": RequestKind(sweep, ("prompts",), [each.name for each in fields(SweepPlan)]),
    "prompts": RequestKind(prompts, ("prompts", "system"), DIALS),
    "pays": RequestKind(pays, ("prompts", "systems"), (*DIALS, "constraint", "acceptance")),
    "curve": RequestKind(curve, ("curve",)),
    "distance": RequestKind(distance, ("prompt", "broken"), (*SHAPE, *DIALS, "constraint")),
}


def race_cache_bytes(pair: LoadedPair, prompts: list[str], new_tokens: int, lanes: int, turns: Turns = ()) -> int:
    """Bytes that the caches of so many lanes take at most, each with a draft's cache beside the target's.

    `turns` are those of a chat before the prompts.
    """
    texts = [render_prompt(pair, prompt, turns) for prompt in prompts]
    tokens = min(pair.context, max(len(text.encode("utf-8", "replace")) for text in texts) + new_tokens)
    return lanes * cache_memory.max_lane_cache_bytes(pair, tokens + LARGEST_TREE)
