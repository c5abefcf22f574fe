"""Racing: systems over prompts, interleaved with plain decoding and `generate()`; every measurement of speed reads `run_races`.

All of it is one generator of small steps. A command runs it through; the page runs it on a device that others share. A setting is a
system's name, with a shape where it is not its paper's: the best shape here as far as shapes were counted, else the paper's, or one of
two smaller ones of about half and a quarter of its depth and nodes. `auto` sizes its own trees and has one setting.
"""

import math
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from engine.measure import peers, processes
from engine.measure.other_engines import PeerGenerateFunctions
from engine.measure.prompts import FEWEST
from engine.measure.stepped import run_generate_function_in_steps
from engine.measure.ways import FIRST_TOKENS, GenerateFunction, WrittenText, rotate_names
from engine.models.advice import CONSTRAINT
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, FIELD, WARM_UP_TEXT, Race, Settings, encode_prompt
from engine.record.quiet import WorkSignal
from engine.record.trace import Trace
from engine.rounds.pair_costs import PairCosts
from engine.systems import SYSTEMS, System, format_shape, resolve_system_name

PROBES = 3  # prompts that settings are tried on
PROBE_TOKENS = 32  # new tokens a prompt there, at most
SMALLER = (2, 4)  # what depth and nodes are divided by
RUNS = 2  # of a race whose clocks were disturbed; the last one counts
IN_A_RACE = FIELD[1] - 1  # systems beside the baseline, so that no more caches than a grand prix has are held

Outcome = TypeVar("Outcome")
Run = TypeVar("Run")


class PromptResult(NamedTuple):
    """What one setting did with one prompt. `plain_trace` is the first lane of the same race; `disturbance` a sentence, or ""."""

    trace: Trace
    plain_trace: Trace
    text_verdict: bool | str
    disturbance: str


class PromptRuns(NamedTuple):
    """All runs of one prompt: by setting what it did, and by way what `generate()` and others wrote."""

    results_by_setting: dict[str, list[PromptResult]]
    peer_texts_by_name: dict[str, list[WrittenText]]


# In steps: a race after each of its steps, signals, and what was found of a prompt. What it returns is found at its end
SteppedWork = Generator[Race | WorkSignal | PromptRuns, None, Outcome]


def run_races(
    pair: LoadedPair,
    prompts: Sequence[str | list[int]],
    systems: Sequence[str],
    settings: Settings,
    *,
    peer_functions: Mapping[str, GenerateFunction] = {},
    runs_per_prompt: int = 1,
    lanes_in_every_race: tuple[str, ...] = (BASELINE,),
    warmed_systems: set[str] | None = None,
    is_timed: bool = True,
) -> SteppedWork[list[PromptRuns]]:
    """Races the systems over the prompts, each `runs_per_prompt` times, as `settings` say; yields and returns what was found of
    each prompt.

    A prompt is a text, or tokens to go on from. The lanes `lanes_in_every_race` run in every race, and are compared with. Between a
    prompt's races the `peer_functions` take every place in turn. A race whose clocks were disturbed runs once more; one that is not
    `is_timed` neither does nor warms up. Systems in `warmed_systems` ran before: no first call of theirs is left to pay for. A
    `WorkSignal.PIECE` follows each race, and the ways. Closing it frees everything.
    """
    for way in peer_functions.values():
        yield from run_generate_function_in_steps(
            pair, way, pair.tokenizer(WARM_UP_TEXT)["input_ids"], FIRST_TOKENS, settings.temperature
        )
    names, groups, every = [*lanes_in_every_race, *systems], group_systems_by_race([*systems]), []
    for index, prompt in enumerate(prompts):
        text, given = (prompt, None) if isinstance(prompt, str) else (f"{len(prompt)} tokens", prompt)
        found = PromptRuns({name: [] for name in names}, {name: [] for name in peer_functions})
        for turn in range(index, index + runs_per_prompt):
            work: list[list[str] | None] = [*groups]
            if peer_functions:
                work.insert(turn % (len(work) + 1), None)
            for group in work:
                if group is not None:
                    lanes = replace(settings, prompt=text, systems=(*lanes_in_every_race, *group))
                    append_race_to_results(
                        found.results_by_setting,
                        (yield from race_again_if_disturbed_in_steps(pair, lanes, given, warmed_systems, is_timed)),
                    )
                else:
                    ids = encode_prompt(pair, text) if given is None else given
                    for name in rotate_names(peer_functions, turn):
                        wrote = run_generate_function_in_steps(
                            pair, peer_functions[name], ids, settings.max_new_tokens, settings.temperature
                        )
                        found.peer_texts_by_name[name].append((yield from wrote))
                yield WorkSignal.PIECE
        yield found
        every.append(found)
    return every


def race_again_if_disturbed_in_steps(
    pair: LoadedPair,
    settings: Settings,
    prompt_ids: list[int] | None = None,
    warmed_systems: set[str] | None = None,
    is_timed: bool = True,
) -> SteppedWork[Race]:
    """Runs a race in steps, and another one where the clocks of the first were disturbed; returns the one that counts.

    `prompt_ids` are `Race`'s, `warmed_systems` and `is_timed` those of `run_races`. First calls are paid once a system on a CPU,
    and once a shape on a GPU.
    """
    PairCosts(pair).retime_verifications_if_stale()
    names = {name if pair.target.device.type == "cuda" else name.partition(":")[0] for name in settings.systems}
    for _ in range(RUNS if is_timed else 1):
        race = Race(
            pair,
            settings,
            prompt_ids,
            is_warmed_up=not is_timed or (warmed_systems is not None and names <= warmed_systems),
        )
        for _ in race.run():
            yield race
        if warmed_systems is not None:
            warmed_systems |= names
        if not race.result()["disturbed"]:
            break
    return race


def append_race_to_results(results_by_setting: dict[str, list[PromptResult]], race: Race) -> None:
    """Adds what a race's lanes did, by setting."""
    result, base = race.result(), race.lanes[0].trace
    for name, lane, figures in zip(race.settings.systems, race.lanes, result["lanes"], strict=True):
        results_by_setting[name].append(PromptResult(lane.trace, base, figures["identical"], result["disturbed"]))


def run_to_result(work: SteppedWork[Outcome], report_piece: Callable[[], object] = int) -> Outcome:
    """Runs the generator to its end and returns its result; `report_piece` is called after every `WorkSignal.PIECE`."""
    while True:
        try:
            if next(work) is WorkSignal.PIECE:
                report_piece()
        except StopIteration as end:
            return end.value


def median_run_of(runs: list[Run], attribute: str = "trace.seconds") -> Run:
    """The one of the median, by this attribute."""
    return sorted(runs, key=attrgetter(attribute))[len(runs) // 2]


def group_systems_by_race(system_names: list[str]) -> list[list[str]]:
    """The names, so many together as race beside one baseline; one empty group for none."""
    return [system_names[at : at + IN_A_RACE] for at in range(0, len(system_names), IN_A_RACE)] or [[]]


def count_progress_pieces(system_count: int, prompt_count: int, group_count: int = 0) -> int:
    """How many pieces of work `choose_settings_and_race_in_steps` completes, with so many groups of other engines' settings."""
    return system_count + group_count + prompt_count * (1 + math.ceil(system_count / IN_A_RACE))


@dataclass
class RaceResults:
    """All races, by system. `probe_seconds_by_system` holds seconds a token by setting, None where one setting is all there is."""

    chosen_setting_by_system: dict[str, str]
    probe_seconds_by_system: dict[str, dict[str, float] | None]
    results_by_system: dict[str, list[PromptResult]]
    # By way: `generate()` first, then with MTP layers where the target has some, then others
    peer_texts_by_name: dict[str, list[WrittenText]]


def choose_settings_and_race_in_steps(
    pair: LoadedPair,
    prompts: list[str],
    systems: list[str],
    settings: Settings,
    other_peers: PeerGenerateFunctions | None = None,
) -> SteppedWork[RaceResults]:
    """Every system in its best setting over the prompts, beside plain decoding, `generate()` and `other_peers`; returns the outcome.

    Of the settings of one way the best runs. Every process of a launch races its share of the prompts in the first one's settings, and
    gets the outcome of all.
    """
    probes, chosen, tried = prompts[:PROBES], {}, {}
    for name in systems:
        chosen[name], tried[name] = yield from choose_best_setting(pair, probes, name, settings)
        yield WorkSignal.PIECE
    chosen, tried = processes.broadcast_from_first_process((chosen, tried))
    ways = peers.list_plain_and_mtp_generate_functions(pair) | (
        yield from choose_fastest_peer_variants(pair, probes, other_peers or PeerGenerateFunctions(), settings)
    )
    share = processes.select_items_of_this_process(prompts, pair.target)
    mine = yield from run_races(pair, share, [*chosen.values()], settings, peer_functions=ways)
    runs = processes.gather_items_of_all_processes(mine, pair.target)
    raced = {name: [each.results_by_setting[setting][0] for each in runs] for name, setting in chosen.items()}
    return RaceResults(
        chosen, tried, raced, {name: [each.peer_texts_by_name[name][0] for each in runs] for name in ways}
    )


def choose_fastest_peer_variants(
    pair: LoadedPair, probe_prompts: list[str], other_peers: PeerGenerateFunctions, settings: Settings
) -> SteppedWork[dict[str, GenerateFunction]]:
    """The ways that run over all prompts: of the settings of one way the one that takes the fewest seconds a token."""
    hidden, tokens = set[str](), min(PROBE_TOKENS, settings.max_new_tokens)
    first = pair.tokenizer(WARM_UP_TEXT)["input_ids"]
    for group in other_peers.variant_names_by_group.values():
        taken = dict.fromkeys(group.values(), 0.0)
        for name in taken:
            yield from run_generate_function_in_steps(
                pair, other_peers.function_by_name[name], first, FIRST_TOKENS, settings.temperature
            )
        for name, prompt in product(taken, probe_prompts):
            ids = encode_prompt(pair, prompt)
            written = yield from run_generate_function_in_steps(
                pair, other_peers.function_by_name[name], ids, tokens, settings.temperature
            )
            taken[name] += written.seconds_per_token
        hidden |= taken.keys() - {min(taken, key=taken.__getitem__)}
        yield WorkSignal.PIECE
    names = processes.broadcast_from_first_process(
        [name for name in other_peers.function_by_name if name not in hidden]
    )
    return {name: other_peers.function_by_name[name] for name in names}


def choose_best_setting(
    pair: LoadedPair, probe_prompts: list[str], system_name: str, settings: Settings
) -> SteppedWork[tuple[str, dict[str, float] | None]]:
    """The setting that takes the fewest seconds a token over the prompts, and the seconds a token of all, None where there is one."""
    candidates = list_candidate_settings(pair, system_name)
    if len(candidates) == 1:
        return system_name, None
    taken, probe = dict.fromkeys(candidates, 0.0), min(PROBE_TOKENS, settings.max_new_tokens)
    asked = replace(settings, max_new_tokens=probe)
    for each in run_races(pair, probe_prompts, candidates, asked, lanes_in_every_race=()):
        if not isinstance(each, PromptRuns):
            yield WorkSignal.STEP
            continue
        for candidate, [result] in each.results_by_setting.items():
            taken[candidate] += result.trace.seconds_per_token / len(probe_prompts)
    return min(taken, key=taken.__getitem__), taken


def settings_of_options(
    options: Namespace, systems: tuple[str, ...] = (), prompt: str = "a prompt", **more: Any
) -> Settings:
    """How every prompt is raced. Raises `ValueError` for a value that no race takes."""
    heat, tokens, seed = options.temperature, options.tokens, options.seed
    return Settings(prompt, systems, temperature=heat, max_new_tokens=tokens, seed=seed, **more)


def explain_unraceable(pair: LoadedPair, system: System) -> str:
    """Why the pair cannot run the system, "" when it can."""
    try:
        system.build_parts(pair, pair.context, system.depth, system.width, system.nodes)
    except ValueError as error:
        return str(error)
    return ""


def choose_systems(pair: LoadedPair, comma_separated_names: str | None, constraint: str) -> list[str]:
    """The systems to race: those named, separated by commas, or every lossless one that the pair allows and that may guess then.

    Raises `ValueError` for a name twice, for one that the pair cannot run, and when no named system is lossless.
    """
    if comma_separated_names is None:
        able = [system for system in SYSTEMS.values() if system.guesses and system.guarantee != "lossy"]
        able = [system for system in able if constraint or system.parts[0].required_resource != CONSTRAINT]
        return [system.name for system in able if not explain_unraceable(pair, system)]
    names = [name.strip() for name in comma_separated_names.split(",")]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"--systems names {twice[0]!r} twice. Name every system once.")
    for system in map(resolve_system_name, names):
        if not system.guesses:
            raise ValueError(f"--systems names {system.name!r}, which is always raced. Name systems that guess.")
        if reason := explain_unraceable(pair, system):
            raise ValueError(reason)
    if all(resolve_system_name(name).guarantee == "lossy" for name in names):
        raise ValueError(
            f"--systems {comma_separated_names!r} holds lossy systems only. Name one that keeps the text, such as auto."
        )
    return names


def list_candidate_settings(pair: LoadedPair, system_name: str) -> list[str]:
    """The settings that are tried of a system. One that is named with a shape or a break keeps it."""
    system = resolve_system_name(system_name)
    if system.sizes_trees or ":" in system_name or "!" in system_name:
        return [system_name]
    best = system.best_shape_for(pair)
    found = [system_name if best == system.default_shape else f"{system_name}:{format_shape(best)}"]
    for part in SMALLER:
        depth, nodes = math.ceil(best["depth"] / part), max(2, math.ceil(best["nodes"] / part))
        smaller = f"{system_name}:{depth}x{min(best['width'], nodes - 1)}x{nodes}"
        if smaller not in found and not explain_unraceable(pair, resolve_system_name(smaller)):
            found.append(smaller)
    return found


def split_raceable_and_refused(
    pair: LoadedPair, prompts: list[str], settings: Settings
) -> tuple[list[int], dict[int, str]]:
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
