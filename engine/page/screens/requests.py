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
from engine.page.screens.break_distance import measure_broken_system_distance
from engine.page.screens.cards import remove_break_from_system_name
from engine.page.screens.device import DEVICE
from engine.page.screens.turns import LONG, RACE
from engine.page.views.wire import run_race_and_its_repeats_as_messages
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
from engine.record.chat_turns import ChatTurns
from engine.record.parsing import format_value_for_error, parse_json, validate_type
from engine.record.quiet import MessageAndSignalGenerator
from engine.systems import (
    SYSTEMS,
    find_comparable_chain_name,
    find_node_filling_system_name,
    format_shape,
    resolve_system_name,
)
from engine.tree import LARGEST_TREE

MOST_TOKENS = 60_000  # of a call: its lanes times their new tokens
LONGEST_REQUEST = 7_000_000  # bytes: prompts of 1 MB, of which JSON may write every character with six
DIALS = ("temperature", "max_new_tokens", "seed")


@dataclass(frozen=True)
class RunRequest:
    """What somebody asks of the device. `run` yields its messages on the pair, within `max_tokens` and `cache_bytes` of caches."""

    run: Callable[[LoadedPair], MessageAndSignalGenerator]
    priority: int
    max_tokens: int
    cache_bytes: int


def parse_and_validate_page_request(json_text: object) -> dict[str, Any]:
    """What a page's script asks for as a JSON object: a "kind", a name for the "run", a "pair", and the kind's own values by name."""
    values: dict[str, Any] = validate_type(
        dict, parse_json(validate_type(str, json_text, "The request"), LONGEST_REQUEST, "The request"), "The request"
    )
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"There is no kind of run {format_value_for_error(kind)}. Available: {', '.join(KINDS)}.")
    needed = {"kind", "run", *KINDS[kind].needs}
    known = {*needed, "pair", *KINDS[kind].takes}
    if wrong := [*sorted(needed - values.keys()), *sorted(values.keys() - known)]:
        raise ValueError(
            f"The request must name {', '.join(sorted(needed))}; {format_value_for_error(wrong[0])} is wrong in it."
        )
    return values


def build_request_within_token_limit(pair: LoadedPair, kind: str, values: dict[str, Any]) -> RunRequest:
    """The request of this kind, one of `KINDS`. Raises `ValueError` for senseless values and for too much work in one call."""
    made = KINDS[kind].build(pair, **values)
    if made.max_tokens > MOST_TOKENS:
        raise ValueError(
            f"This asks for up to {made.max_tokens:,} tokens, counting every lane; at most {MOST_TOKENS:,} are written in one call. "
            "Ask for fewer new tokens, prompts or cells."
        )
    return made


def build_race_request(
    pair: LoadedPair,
    prompt: str,
    systems: list[str],
    untouched: object = "",
    full: object = False,
    third: object = False,
    **settings: Any,
) -> RunRequest:
    """A race of these lanes. Further runs, unseen, take place while nobody else wants the device.

    A shape that is still `untouched` gives each lane the best shape of its own system. `full` has the last lane's tree use all nodes.
    `third` adds a lane in the middle: the chain with as many guesses.
    """
    names = validate_list_length(systems, "The systems", 1, FIELD[1])
    whole = full and names[-1] != REMOTE and find_node_filling_system_name(resolve_system_name(names[-1]))
    if whole:  # in the shape that the dials show
        names = [*names[:-1], whole]
    elif untouched and format_shape(dict.fromkeys(SHAPE) | settings) == untouched:
        settings |= dict.fromkeys(SHAPE)
    if third:
        names = insert_comparable_chain_before_last_lane(pair, names, settings)
    chosen = Settings(prompt, tuple(names), **settings)
    lanes, tokens = len(chosen.systems), chosen.max_new_tokens
    cache_bytes = max_cache_bytes_of_race(pair, [chosen.prompt], tokens, lanes, chosen.turns)
    return RunRequest(partial(run_repeated_race_as_messages, settings=chosen), RACE, lanes * tokens, cache_bytes)


def run_repeated_race_as_messages(pair: LoadedPair, settings: Settings) -> MessageAndSignalGenerator:
    return run_race_and_its_repeats_as_messages(
        RepeatedRace(pair, settings, is_device_uncontested=DEVICE.has_at_most_one_visitor_job)
    )


def insert_comparable_chain_before_last_lane(
    pair: LoadedPair, systems: list[str], settings: dict[str, Any]
) -> list[str]:
    """The lanes' systems, and before the last one the chain with as many guesses, where that one branches."""
    if REMOTE in systems:
        return systems
    system = resolve_system_name(systems[-1])
    given = {dial: int(validate_setting(dial, settings[dial])) for dial in SHAPE if settings.get(dial) is not None}
    shape = given if len(given) == len(SHAPE) else system.best_shape_for(pair) | given
    chain = find_comparable_chain_name(system, shape)
    return [*systems[:-1], chain, systems[-1]] if chain else systems


def build_grand_prix_request(pair: LoadedPair, prompt: str, systems: list[str], **settings: Any) -> RunRequest:
    return build_race_request(
        pair, prompt, validate_systems_without_remote(list(parse_grand_prix_systems(systems))), **settings
    )


def build_sweep_request(pair: LoadedPair, prompts: list[str], **plan_fields: Any) -> RunRequest:
    chosen = SweepPlan(prompts, **plan_fields)  # type: ignore[arg-type]  # it checks them
    tokens = 2 * len(chosen.cell_settings) * len(chosen.prompts) * chosen.max_new_tokens
    cache_bytes = max_cache_bytes_of_race(pair, list(chosen.prompts), chosen.max_new_tokens, 2)
    return RunRequest(partial(run_sweep, plan=chosen), LONG, tokens, cache_bytes)


def run_sweep(pair: LoadedPair, plan: SweepPlan) -> MessageAndSignalGenerator:
    return Sweep(pair, plan).measure_cells_in_steps()


def build_own_prompts_request(pair: LoadedPair, prompts: list[str], system: str, **settings: Any) -> RunRequest:
    chosen = own_prompts.validate_prompts(prompts)
    tokens = Settings(
        WARM_UP_TEXT, tuple(validate_systems_without_remote([BASELINE, system])), **settings
    ).max_new_tokens
    cache_bytes = max_cache_bytes_of_race(pair, chosen, tokens, 2)
    run = partial(own_prompts.race_system_and_baseline_on_prompts, prompts=chosen, system=system, **settings)
    return RunRequest(run, LONG, 2 * len(chosen) * tokens, cache_bytes)


def build_pays_request(pair: LoadedPair, prompts: list[str], systems: list[str], **settings: Any) -> RunRequest:
    chosen = does_it_pay.build_validated_pays_settings(prompts, systems, **settings)
    systems = does_it_pay.validate_lossless_drafting_systems(systems)
    count, tokens = len(systems) or len(SYSTEMS), chosen.max_new_tokens
    probes = count * (1 + len(SMALLER)) * PROBES * min(PROBE_TOKENS, tokens)
    raced = (count + count // IN_A_RACE + 2) * len(prompts) * tokens  # a baseline in every race, and generate()
    cache_bytes = max_cache_bytes_of_race(pair, prompts, tokens, 1 + IN_A_RACE)
    return RunRequest(
        partial(does_it_pay.measure_whether_speculation_pays, prompts=prompts, systems=systems, **settings),
        LONG,
        probes + raced,
        cache_bytes,
    )


def build_curve_request(pair: LoadedPair, curve: str) -> RunRequest:
    """One of the curves of Learn, measured anew. Sizes of a batch that do not fit the memory are left out."""
    prompts, lanes, tokens = curves.curve_prompts_lanes_and_max_tokens(pair, curve)
    cache_bytes = int(
        min(
            max_cache_bytes_of_race(pair, prompts, curves.TOKENS[curve], lanes),
            cache_memory.max_bytes_of_all_caches(pair),
        )
    )
    return RunRequest(partial(curves.measure_curve_in_steps, curve_name=curve), LONG, tokens, cache_bytes)


def build_break_distance_request(pair: LoadedPair, prompt: str, broken: str, **settings: Any) -> RunRequest:
    chosen = Settings(prompt, (remove_break_from_system_name(broken), broken), **settings)
    # The right system, the broken target, a plain one
    cache_bytes = max_cache_bytes_of_race(pair, [chosen.prompt], chosen.max_new_tokens, 3)
    return RunRequest(
        partial(measure_broken_system_distance, settings=chosen), LONG, 3 * chosen.max_new_tokens, cache_bytes
    )


def validate_systems_without_remote(systems: list[str]) -> list[str]:
    """The systems themselves. Raises `ValueError` when another server is among them, for it takes part in races of two lanes alone."""
    if REMOTE in systems:
        raise ValueError(f"The system {REMOTE} is another server. It takes part in a race of two lanes, not here.")
    return systems


@dataclass(frozen=True)
class RequestKind:
    """A kind of request: what builds one for a pair, and the names of the values that it `needs` and that it `takes` besides."""

    build: Callable[..., RunRequest]
    needs: Collection[str]
    takes: Collection[str] = ()


KINDS = {
    "race": RequestKind(
        build_race_request, ("prompt", "systems"), ("untouched", "full", "third", *SHAPE, *DIALS, "constraint", "turns")
    ),
    "prix": RequestKind(build_grand_prix_request, ("prompt", "systems"), DIALS),
    "sweep": RequestKind(build_sweep_request, ("prompts",), [each.name for each in fields(SweepPlan)]),
    "prompts": RequestKind(build_own_prompts_request, ("prompts", "system"), DIALS),
    "pays": RequestKind(build_pays_request, ("prompts", "systems"), (*DIALS, "constraint", "acceptance")),
    "curve": RequestKind(build_curve_request, ("curve",)),
    "distance": RequestKind(build_break_distance_request, ("prompt", "broken"), (*SHAPE, *DIALS, "constraint")),
}


def max_cache_bytes_of_race(
    pair: LoadedPair, prompts: list[str], max_new_tokens: int, lane_count: int, turns: ChatTurns = ()
) -> int:
    """Bytes that the caches of so many lanes take at most, each with a draft's cache beside the target's.

    `turns` are those of a chat before the prompts.
    """
    texts = [render_prompt(pair, prompt, turns) for prompt in prompts]
    tokens = min(pair.context, max(len(text.encode("utf-8", "replace")) for text in texts) + max_new_tokens)
    return lane_count * cache_memory.max_lane_cache_bytes(pair, tokens + LARGEST_TREE)
