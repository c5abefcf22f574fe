"""Racing: finds each system's best setting on a few prompts, then races all of them over all prompts. Knows races; prints nothing.

All of it is one generator of small steps. The command runs it through; the page runs it on a device that others share. A setting is a
system's name, with a shape where it is not its paper's: the best shape here as far as shapes were counted, else the paper's, or one of
two smaller ones of about half and a quarter of its depth and nodes. `auto` sizes its own trees and has one setting.
"""

import math
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, TypeVar

from engine.measure import peers, processes
from engine.measure.other_engines import OtherEngines
from engine.measure.prompts import FEWEST
from engine.measure.stepped import generate_in_steps
from engine.measure.ways import FIRST_TOKENS, Way, WrittenText, rotate_names, time_way, warm_up_ways
from engine.models.advice import CONSTRAINT
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, FIELD, WARM_UP_TEXT, Race, Settings, encode_prompt
from engine.record.quiet import WorkSignal
from engine.record.trace import Trace
from engine.rounds.pair_costs import PairCosts
from engine.systems import SYSTEMS, System, find, spell_shape

PROBES = 3  # prompts that settings are tried on
PROBE_TOKENS = 32  # new tokens a prompt there, at most
SMALLER = (2, 4)  # what depth and nodes are divided by
RUNS = 2  # of a race whose clocks were disturbed; the last one counts
IN_A_RACE = FIELD[1] - 1  # systems beside the baseline, so that no more caches than a grand prix has are held

Found = TypeVar("Found")
Work = Generator[WorkSignal, None, Found]  # in steps; what it returns is found at its end


def settings_of_options(
    options: Namespace, systems: tuple[str, ...] = (), prompt: str = "a prompt", **more: Any
) -> Settings:
    """How every prompt is raced. Raises `ValueError` for a value that no race takes."""
    heat, tokens, seed = options.temperature, options.tokens, options.seed
    return Settings(prompt, systems, temperature=heat, max_new_tokens=tokens, seed=seed, **more)


class PromptResult(NamedTuple):
    """What one setting did with one prompt. `plain` is the baseline's trace of the same race; `disturbed` a sentence, or ""."""

    trace: Trace
    plain: Trace
    identical: bool | str
    disturbed: str


@dataclass
class RaceResults:
    """All races, by system. `tried` holds seconds a token by setting, None where one setting is all there is."""

    settings: dict[str, str]
    tried: dict[str, dict[str, float] | None]
    raced: dict[str, list[PromptResult]]
    # By way: `generate()` first, then with MTP layers where the target has some, then others
    written: dict[str, list[WrittenText]]


def explain_unraceable(pair: LoadedPair, system: System) -> str:
    """Why the pair cannot run the system, "" when it can."""
    try:
        system.build_parts(pair, pair.context, system.depth, system.width, system.nodes)
    except ValueError as error:
        return str(error)
    return ""


def choose_systems(pair: LoadedPair, system_names: str | None, constraint: str) -> list[str]:
    """The systems to race: those named, separated by commas, or every lossless one that the pair allows and that may guess then.

    Raises `ValueError` for a name twice, for one that the pair cannot run, and when no named system is lossless.
    """
    if system_names is None:
        able = [system for system in SYSTEMS.values() if system.guesses and system.guarantee != "lossy"]
        able = [system for system in able if constraint or system.parts[0].takes != CONSTRAINT]
        return [system.name for system in able if not explain_unraceable(pair, system)]
    names = [name.strip() for name in system_names.split(",")]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"--systems names {twice[0]!r} twice. Name every system once.")
    for system in map(find, names):
        if not system.guesses:
            raise ValueError(f"--systems names {system.name!r}, which is always raced. Name systems that guess.")
        if reason := explain_unraceable(pair, system):
            raise ValueError(reason)
    if all(find(name).guarantee == "lossy" for name in names):
        raise ValueError(
            f"--systems {system_names!r} holds lossy systems only. Name one that keeps the text, such as auto."
        )
    return names


def candidate_settings_of(pair: LoadedPair, name: str) -> list[str]:
    """The settings that are tried of a system. One that is named with a shape or a break keeps it."""
    system = find(name)
    if system.sizes_trees or ":" in name or "!" in name:
        return [name]
    best = system.best_shape_for(pair)
    found = [name if best == system.default_shape else f"{name}:{spell_shape(best)}"]
    for part in SMALLER:
        depth, nodes = math.ceil(best["depth"] / part), max(2, math.ceil(best["nodes"] / part))
        smaller = f"{name}:{depth}x{min(best['width'], nodes - 1)}x{nodes}"
        if smaller not in found and not explain_unraceable(pair, find(smaller)):
            found.append(smaller)
    return found


def select_prompts(pair: LoadedPair, prompts: list[str], settings: Settings) -> tuple[list[int], dict[int, str]]:
    """Indices of the prompts that can be raced, and of each other one why not. Raises `ValueError` where too few are left."""
    refused: dict[int, str] = {}
    for index, prompt in enumerate(prompts):
        try:
            encode_prompt(pair, replace(settings, prompt=prompt).prompt)
        except ValueError as error:
            refused[index] = str(error)
    raced = [index for index in range(len(prompts)) if index not in refused]
    if len(raced) < FEWEST:
        why = f" Prompt {min(refused) + 1}: {refused[min(refused)]}" if refused else ""
        able = f"Only {len(raced)} of {len(prompts)} prompts can be raced"
        raise ValueError(f"{able}; at least {FEWEST} are needed.{why}")
    return raced, refused


def repeat_while_disturbed(pair: LoadedPair, make_race: Callable[[], Race]) -> Iterator[Race]:
    """Yields a race to run, and another one while the last run's clocks were disturbed; the last one counts. Who takes the next one has
    run the one before.
    """
    PairCosts(pair).refresh_recent_verifications()
    for _ in range(RUNS):
        yield (race := make_race())
        if not race.result()["disturbed"]:
            return


def race_undisturbed(pair: LoadedPair, settings: Settings, tokens: list[int] | None = None) -> Work[Race]:
    """Runs `repeat_while_disturbed` in steps; returns the race that counts. Closing it frees every lane. `tokens` are `Race`'s."""
    for race in repeat_while_disturbed(pair, lambda: Race(pair, settings, tokens)):
        for _ in race.run():
            yield WorkSignal.STEP
    return race


def group_systems(names: list[str]) -> list[list[str]]:
    """The names, so many together as race beside one baseline."""
    return [names[at : at + IN_A_RACE] for at in range(0, len(names), IN_A_RACE)]


def count_work(systems: int, prompts: int, groups: int = 0) -> int:
    """How many pieces of work `steps` completes, with so many groups of other engines' settings."""
    return systems + groups + prompts * (1 + math.ceil(systems / IN_A_RACE))


def run_to_end(work: Work[Found], report_piece: Callable[[], object]) -> Found:
    """Runs the generator to its end and returns its result; `report_piece` is called after every `WorkSignal.PIECE`."""
    while True:
        try:
            if next(work) is WorkSignal.PIECE:
                report_piece()
        except StopIteration as end:
            return end.value


def race_all(
    pair: LoadedPair,
    prompts: list[str],
    systems: list[str],
    base_settings: Settings,
    other_engines: OtherEngines | None = None,
) -> Work[RaceResults]:
    """Every system in its best setting over the prompts, beside plain decoding and `generate()`; returns the outcome.

    Each step is one of a race or a token of `generate()`. Closing the generator frees everything. `other_engines` run beside them; of
    the settings of one way the best runs. Every process of a launch races its share of the prompts in the first one's settings, and
    gets the outcome of all.
    """
    other_engines, probes, settings, tried = other_engines or OtherEngines(), prompts[:PROBES], {}, {}
    for name in systems:
        settings[name], tried[name] = yield from choose_best_setting(pair, probes, name, base_settings)
        yield WorkSignal.PIECE
    settings, tried = processes.broadcast_first((settings, tried))
    names = processes.broadcast_first((yield from choose_best_ways(pair, probes, other_engines, base_settings)))
    calls = {name: other_engines.ways[name] for name in names}
    mine = yield from race_settings(pair, processes.split_items(prompts, pair.target), settings, base_settings, calls)
    parts = processes.gather_items([mine], pair.target)
    raced = {name: [each for part, _ in parts for each in part[name]] for name in systems}
    written = {name: [each for _, found in parts for each in found[name]] for name in parts[0][1]}
    return RaceResults(settings, tried, raced, written)


def choose_best_ways(
    pair: LoadedPair, prompts: list[str], other_engines: OtherEngines, settings: Settings
) -> Work[list[str]]:
    """The names of the ways that run over all prompts: of the settings of one way the one that takes the fewest seconds a token."""
    hidden = set[str]()
    warm_up_ways(pair, other_engines.ways.values(), settings.temperature)
    for group in other_engines.groups.values():
        taken = dict.fromkeys(group.values(), 0.0)
        for name, prompt in product(taken, prompts):
            ids, tokens = encode_prompt(pair, prompt), min(PROBE_TOKENS, settings.max_new_tokens)
            taken[name] += time_way(pair, other_engines.ways[name], ids, tokens, settings.temperature).seconds_per_token
        hidden |= taken.keys() - {min(taken, key=taken.__getitem__)}
        yield WorkSignal.PIECE
    return [name for name in other_engines.ways if name not in hidden]


def race_settings(
    pair: LoadedPair,
    prompts: list[str],
    settings: dict[str, str],
    base_settings: Settings,
    calls: Mapping[str, Way] = {},
) -> Work[tuple[dict[str, list[PromptResult]], dict[str, list[WrittenText]]]]:
    """Every system in its setting over the prompts, and by way what others wrote: `generate()`, also with MTP layers, and `calls`.

    A call is one step. Plain decoding runs in every race. The others take every place between a prompt's races in turn.
    """
    systems, tokens, temperature = list(settings), base_settings.max_new_tokens, base_settings.temperature
    raced: dict[str, list[PromptResult]] = {name: [] for name in systems}
    by_step = {peers.PLAIN: peers.generate_tokens} | (
        {peers.MTP: peers.generate_by_mtp} if peers.MTP in peers.list_ways(pair) else {}
    )
    written: dict[str, list[WrittenText]] = {name: [] for name in {**by_step, **calls}}
    first = pair.tokenizer(WARM_UP_TEXT)["input_ids"]
    for way in by_step.values():
        yield from generate_in_steps(pair, first, FIRST_TOKENS, temperature, way)
    for index, prompt in enumerate(prompts):
        work: list[list[str]] = group_systems(systems)
        work.insert(index % (len(work) + 1), [])  # where `generate()` runs
        for names in work:
            if names:
                lanes = (BASELINE, *(settings[name] for name in names))
                add_results(
                    raced,
                    names,
                    (yield from race_undisturbed(pair, replace(base_settings, prompt=prompt, systems=lanes))),
                )
            else:
                ids = encode_prompt(pair, prompt)
                for name in rotate_names(written, index):
                    if name in by_step:
                        written[name].append(
                            (yield from generate_in_steps(pair, ids, tokens, temperature, by_step[name]))
                        )
                    else:
                        written[name].append(time_way(pair, calls[name], ids, tokens, temperature))
                        yield WorkSignal.STEP
            yield WorkSignal.PIECE
    return raced, written


def choose_best_setting(
    pair: LoadedPair, prompts: list[str], name: str, base_settings: Settings
) -> Work[tuple[str, dict[str, float] | None]]:
    """The setting that takes the fewest seconds a token over the prompts, and the seconds a token of all, None where there is one."""
    candidates = candidate_settings_of(pair, name)
    if len(candidates) == 1:
        return name, None
    taken = dict.fromkeys(candidates, 0.0)
    for prompt in prompts:
        tokens = min(PROBE_TOKENS, base_settings.max_new_tokens)
        probe = replace(base_settings, prompt=prompt, systems=tuple(candidates), max_new_tokens=tokens)
        for lane in (yield from race_undisturbed(pair, probe)).lanes:
            taken[lane.trace.system] += lane.trace.seconds_per_token / len(prompts)
    return min(taken, key=taken.__getitem__), taken


def add_results(results: dict[str, list[PromptResult]], names: list[str], race: Race) -> None:
    """Adds a race's lanes, the baseline first, to what was raced."""
    base, *others = race.lanes
    result = race.result()
    for name, lane, figures in zip(names, others, result["lanes"][1:], strict=True):
        results[name].append(PromptResult(lane.trace, base.trace, figures["identical"], result["disturbed"]))
