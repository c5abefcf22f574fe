"""Whole texts by a named system through the decode loop alone, device rounds beside the loop's rounds, and races that hurry."""

import math
import time
from collections.abc import Callable, Iterator
from functools import cache, partial

import torch

from engine import race
from engine.decode import Round, decode
from engine.measure import racing
from engine.rounds import pair_costs, timing
from engine.rounds import round as rounds_on_host
from engine.rounds.round import HostRoundRunner
from engine.rounds.round_gpu import DeviceRoundRunner
from engine.sampling import Sampling
from engine.systems import SYSTEMS, resolve_system_name
from engine.target import Target
from engine.tree import LARGEST_TREE, DraftTree
from helpers.equality import Compared

CPU = torch.device("cpu")
CLOCK = time.perf_counter


@cache
def hurry() -> None:
    """From here on a race of this process warms up for one token, and few forwards are timed, once, however busy the machine is.

    A race runs once, disturbed or not: tests count no seconds. Not to be undone.
    """
    race.WARM_UP_TOKENS = racing.RUNS = 1
    timing.ROWS = (1, 2, 8, 64)
    for limit in ("QUICK_SECONDS", "VERIFY_SECONDS", "DRAFT_SECONDS"):
        setattr(pair_costs, limit, math.inf)  # every turn counts
    timing.time_verify_ms_by_rows = once_a_size(partial(timing.time_verify_ms_by_rows, repeats=1))
    timing.time_first_and_further_draft_level_ms = once_a_size(
        partial(timing.time_first_and_further_draft_level_ms, repeats=1)
    )


def once_a_size(measure: Callable) -> Callable:
    """`measure(pair, ...)`, for the first of all pairs whose models have the same sizes.

    Measured every time is a pair that remembers texts, what is asked with `repeats` of its own, and all on a made-up clock.
    """
    found: dict[tuple, object] = {}

    def measured(pair, *names: str, **how):
        models = [pair.target, pair.draft, *(pair.learned[name] for name in names if name in pair.learned)]
        configs = [getattr(each, "config", None) for each in models]  # those of MTP layers are their target's
        sizes = [vars(each) | {"_name_or_path": ""} if each else None for each in configs]
        key = (*names, type(pair.target), pair.dtype, pair.context, str(sizes))
        made_up = rounds_on_host.time is not time or time.perf_counter is not CLOCK
        if "repeats" in how or pair.memory is not None or made_up:
            return measure(pair, *names, **how)
        if key not in found:
            found[key] = measure(pair, *names, **how)
        return found[key]

    return measured


def decoded(pair, name: str, prompt: list[int], max_new_tokens: int, stop_ids=frozenset(), temperature=0.0):
    system = SYSTEMS[name]
    parts = system.build_parts(pair, pair.context + LARGEST_TREE, system.depth, system.width, system.nodes)
    target = Target(pair.target, pair.context + LARGEST_TREE, parts[0].reads_features)
    sampling = Sampling(temperature=temperature)
    return list(decode(HostRoundRunner(target, *parts, sampling), prompt, max_new_tokens, stop_ids, pair.context))


def lane_rounds(pair, name: str, prompt: list[int], tokens: int, shape=(4, 4, 8), stop=frozenset(), **sampling):
    """The loop's rounds and the device's, with the same noise."""
    system, shape = resolve_system_name(name), dict(zip(("depth", "width", "nodes"), shape, strict=True))
    capacity = min(pair.context, len(prompt) + tokens) + LARGEST_TREE
    sampling = Sampling(device=CPU, **sampling)
    parts, limits = system.build_parts(pair, capacity, **shape), (prompt, tokens, stop, pair.context)
    there = system.open_rounds(pair, capacity, shape, sampling)
    assert isinstance(there, DeviceRoundRunner)
    here = HostRoundRunner(Target(pair.target, capacity, parts[0].reads_features), *parts, sampling)
    return list(decode(here, *limits)), list(decode(there, *limits))


def rounds_compared(loop: list[Round], device: list[Round]) -> Iterator[Compared]:
    yield Compared(len(loop), len(device))
    for mine, other in zip(loop, device, strict=True):
        yield Compared((mine.position, mine.burst, mine.end), (other.position, other.burst, other.end))
        yield Compared(mine.verdict, other.verdict)
        yield from trees_compared(mine.tree, other.tree)
        yield Compared(mine.logits, other.logits, within=1e-4)
        yield Compared(mine.seconds.keys(), other.seconds.keys())


def trees_compared(mine: DraftTree, other: DraftTree) -> Iterator[Compared]:
    """Compares all but the keys, because the policy's keys count pruned nodes too."""
    for field in ("tokens", "parents", "depth"):
        yield Compared(getattr(mine, field), getattr(other, field))
    for field in ("score", "q"):
        yield Compared(getattr(mine, field), getattr(other, field), within=1e-4)
