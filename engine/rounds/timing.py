"""Timing: a pair's `Costs` on this machine, measured when first asked for, in about two seconds where nothing else runs.

Other work can only make a forward slower, so the least of several timings counts. Trees are shaped by these costs for as long as the
process lives, and one slow moment must not decide that.
"""

import itertools
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from tqdm import tqdm

from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.forward.spread import agreed
from engine.kernels.expansion import Expansion
from engine.models.pairs import LoadedPair
from engine.policies import POLICIES
from engine.policies.shared.growing import grow
from engine.record.costs import Costs, between
from engine.record.disturbance import BUSY
from engine.record.promise import promised
from engine.rounds.round import Stopwatch
from engine.rounds.round_gpu import DeviceRounds
from engine.sampling import Sampling
from engine.target import Target
from engine.tree import LARGEST_TREE, DraftTree

ROWS = (1, 2, 4, 6, 7, 8, 12, 13, 16, 24, 32, 64)  # products take six rows at a time on many processors
CONTEXT = 128  # tokens before the timed forwards
LEVEL, LEVELS = 3, 3  # nodes of a timed draft level, and levels timed in a row
LARGEST = 1 + LEVEL + LEVELS * LEVEL**2  # rows of a tree whose drafting is timed
WIDTH, NODES = 4, 24  # of the largest trees that drafters are compared by, as the system `auto` grows them
DEEP = 8  # levels of the deepest tree whose rounds on a device are timed, beside those of one level
REPEATS, FEWEST = 7, 3  # undisturbed turns of every timing; and turns at least, where its seconds are over
SECONDS, DRAFT_SECONDS = 4.0, 1.0  # that verifications, and a drafter, may look for undisturbed turns
HASTE = 1.5  # seconds of verifications for which a page waits, and which it measures again
FOLLOWED = (1, 8, 24)  # rows of the verifications that `follow` times
AGED, BRIEF = 10.0, 0.15  # seconds until it does so again, and seconds that it may take


@dataclass
class Timed:
    """The least ms so far: of verifications by their rows, of a drafter's first level and of one below it, and of rounds on a device.

    Rounds that a device decides alone are told by drafter and by levels, 0 for plain decoding; the others have trees of `NODES` nodes.
    `lately_ms` are verifications by their rows when `follow` looked last, at `looked`.
    """

    verify_ms: dict[int, float] = field(default_factory=dict)
    draft_ms: dict[str, tuple[float, float]] = field(default_factory=dict)
    device_ms: dict[str, dict[int, float]] = field(default_factory=dict)
    lately_ms: dict[int, float] = field(default_factory=dict)
    looked: float = -math.inf

    def verifications(self, pair: LoadedPair, seconds: float) -> None:
        with _lock:
            found = verify_ms(pair, seconds=patience(pair, seconds))
            self.verify_ms = {rows: min(ms, self.verify_ms.get(rows, ms)) for rows, ms in found.items()}

    def drafts(self, pair: LoadedPair, name: str) -> None:
        with _lock:
            found = draft_ms(pair, name, seconds=patience(pair, DRAFT_SECONDS))
            first, below = map(min, found, self.draft_ms.get(name, found))
            self.draft_ms[name] = first, below


def patience(pair: LoadedPair, seconds: float) -> float:
    """Processes that share a target must stop together, and no clock tells them the same."""
    return seconds if pair.target.processes == 1 else math.inf


_lock = threading.RLock()
_timed: WeakKeyDictionary[LoadedPair, Timed] = WeakKeyDictionary()


def costs_of(pair: LoadedPair, drafter: str) -> Costs:
    """What a round with this drafter costs, measured on the first call for this pair and drafter.

    Of a drafter that is one of several, these are the costs of the one that promises the most here. Without a calibration of the pair's
    drafters it is the first of them. Verifications cost the same with every drafter: keeping features of rows takes next to nothing.
    """
    with _lock:
        timed = verifications_of(pair, SECONDS)

        def measured(name: str) -> Costs:
            if name not in timed.draft_ms:
                timed.drafts(pair, name)
            return agreed(pair.target.model, Costs(timed.verify_ms, *timed.draft_ms[name]).rising())

        ranks, compared = pair.calibration.ranks, needed(pair, drafter)
        if not ranks.keys() & compared or not DRAFTERS[drafter].chooses:
            return measured(compared[0])
        each = {name: measured(name) for name in compared}
        found = {name: round(promised(ranks[name], costs, WIDTH, NODES), 2) for name, costs in each.items()}
        return replace(each[max(found, key=found.__getitem__)], promised=found)


def device_costs(pair: LoadedPair, drafter: str, policy: str) -> Costs:
    """What rounds of `engine.rounds.round_gpu` cost, measured on the first call for this pair and drafter."""
    with _lock:
        timed = _timed.setdefault(pair, Timed())
        for name, grower, depths in (("none", "chain", (1,)), (drafter, policy, (1, DEEP))):
            if name not in timed.device_ms:
                timed.device_ms[name] = device_ms(pair, name, grower, depths)
    (shallow, first), (deep, last) = min(timed.device_ms[drafter].items()), max(timed.device_ms[drafter].items())
    level = max(0.0, last - first) / max(1, deep - shallow)
    return Costs({1: timed.device_ms["none"][0], NODES: first - level}, level, level).rising()


def in_haste(pair: LoadedPair) -> None:
    """Measures verifications where they are not, with less patience than `costs_of` has. `again` should follow."""
    verifications_of(pair, HASTE)


def verifications_of(pair: LoadedPair, seconds: float) -> Timed:
    """What is timed of this pair, with verifications at least; they are measured where they are not."""
    with _lock:
        timed = _timed.setdefault(pair, Timed())
        if not timed.verify_ms:
            timed.verifications(pair, seconds)
    return timed


def follow(pair: LoadedPair) -> None:
    """Times a few verifications anew, where they were measured and the last look is long ago. To be called before a race.

    Memory that a machine shares with others becomes faster or slower within minutes. A GPU's does not, and large models take too long.
    """
    timed, target = _timed.get(pair), pair.target
    if timed is None or not timed.verify_ms or target.device.type != "cpu" or target.processes > 1:
        return
    turn_ms = 2 * sum(between(timed.verify_ms, rows) for rows in FOLLOWED)
    if time.perf_counter() - timed.looked < AGED or (FEWEST + 1) * turn_ms > 1000 * BRIEF:
        return
    with _lock:
        timed.lately_ms, timed.looked = verify_ms(pair, repeats=FEWEST, rows=FOLLOWED), time.perf_counter()


def followed(pair: LoadedPair, costs: Costs) -> Costs:
    """The costs of a pair's rounds, with verifications as `follow` found them last."""
    lately = _timed.get(pair, Timed()).lately_ms
    if not lately:
        return costs
    drift, most = {rows: ms / costs.verify_at(rows) for rows, ms in lately.items()}, max(lately)
    now = {rows: ms * between(drift, min(rows, most)) for rows, ms in costs.verify_ms.items()}
    return replace(costs, verify_ms=now).rising()


def again(pair: LoadedPair) -> Sequence[Callable[[], None]]:
    """What measures all of it once more and keeps the least, in pieces of about a second: it may have met other work before."""
    timed = _timed.get(pair)
    if timed is None:
        return []
    drafts = [partial(timed.drafts, pair, name) for name in timed.draft_ms]
    return [partial(timed.verifications, pair, SECONDS), *drafts]


def verified(pair: LoadedPair) -> dict[int, float]:
    """Least ms of a verification by its number of rows, where `costs_of` has measured them for this pair; empty before."""
    return _timed.get(pair, Timed()).verify_ms


def is_measured(pair: LoadedPair, drafter: str) -> bool:
    """Whether `costs_of` measures nothing any more."""
    return _timed.get(pair, Timed()).draft_ms.keys() >= {*needed(pair, drafter)}


def needed(pair: LoadedPair, drafter: str) -> list[str]:
    """The drafters whose costs are those of this one: itself, or those that it is the best of."""
    choices = DRAFTERS[drafter].choices(pair)
    return [name for name in choices if name in pair.calibration.ranks] or choices[:1] or [drafter]


@torch.inference_mode()
def verify_ms(
    pair: LoadedPair, repeats: int = REPEATS, seconds: float = math.inf, rows: Sequence[int] = ()
) -> dict[int, float]:
    """Least ms of a verification by its number of rows, of these or of `ROWS`.

    Of a target that keeps states, that has the states of every node. Every one runs once untimed before it is timed: in a race a lane
    finds the caches as it left them.
    """
    target, watch = Target(pair.target, context_of(pair) + LARGEST_TREE), Stopwatch(pair.target.device)
    target.prefill(list(range(context_of(pair))))
    trees = {size: binary(size) for size in rows or ROWS}
    least = dict.fromkeys(trees, math.inf)
    with pair.target.undisturbed():
        for turn in turns(pair.target, repeats + 1, seconds):
            for size, tree in trees.items():
                target.verify(tree)
                watch.start()
                target.verify(tree)
                ms = 1000 * watch.lap("verify")
                least[size] = min(least[size], ms) if turn else math.inf
    return least


@torch.inference_mode()
def draft_ms(pair: LoadedPair, name: str, repeats: int = REPEATS, seconds: float = math.inf) -> tuple[float, float]:
    """Least ms of a drafter's first level and of one level below it, with the ranking of its favourites, as `auto` asks for them.

    Rounds of one level and of many take turns, each behind a verification, as in a race. Their difference, divided by the levels that
    it covers, is the ms of a level below.
    """
    forgetful = replace(pair, memory=None)  # what is timed is no text to remember
    capacity = context_of(pair) + LARGEST_TREE
    drafter, sampling = DRAFTERS[name](forgetful, capacity), Sampling()
    target = Target(pair.target, capacity, drafter.reads_features)
    prompt = list(range(context_of(pair)))
    drafter.reading(target.session.cache)
    drafter.begin(prompt, target.prefill(prompt[:-1]))
    watch, least = Stopwatch(pair.target.device), {1: math.inf, 1 + LEVELS: math.inf}
    room, root, rounds = Expansion(1 + LEVELS, LEVEL, beams=LEVEL), prompt[-1], 0
    with pair.target.undisturbed():
        for turn in turns(pair.target, repeats + 1, seconds):
            for levels in least:
                watch.start()
                tree = grow(room, drafter, root, target.length, sampling, levels)
                ms = 1000 * watch.lap("draft")
                least[levels] = min(least[levels], ms) if turn else math.inf
                rounds += 1
                path, root = tree.path(len(tree) - 1), (len(prompt) + rounds * levels) % pair.target.vocab
                logits, features = target.verify(tree)
                target.commit(path)
                if drafter.reads_logits:
                    drafter.see(tree, logits, path)
                drafter.commit(tree, path, root, features)
            if target.length + 4 * LEVELS >= min(pair.context, capacity - LARGEST):
                break
    first, deep = least.values()
    return first, max(0.0, deep - first) / LEVELS


@torch.inference_mode()
def device_ms(pair: LoadedPair, drafter: str, policy: str, depths: Sequence[int]) -> dict[int, float]:
    """Least ms of a greedy round that a device decides alone, by the levels of its tree, for trees of these depths or less."""
    sampling, prompt = Sampling(device=pair.target.noise_place), list(range(context_of(pair)))
    capacity, least = context_of(pair) + LARGEST_TREE, {}
    for depth in depths:
        grower = POLICIES[policy](depth, WIDTH, NODES, "ranked", pair.calibration)
        lane, times = DeviceRounds(pair, drafter, grower, capacity, sampling), []
        for _ in range(REPEATS + 1):
            lane.begin(prompt, capacity)  # anew, so that every round has the same room
            times.append(1000 * sum(lane.next().seconds.values()))
        least[lane.round.depth] = min(times)
    return least


def turns(runner: Runner, repeats: int, seconds: float) -> Iterator[int]:
    """Counts turns until in so many of them this thread kept the processor. Past `seconds` it gives up, but not before `FEWEST` turns.

    Without such a limit, and where another device computes, every turn counts.
    """
    begun, calm, told = time.perf_counter(), 0, seconds < math.inf and runner.device.type == "cpu"
    for turn in itertools.count():
        if calm >= repeats or (turn > FEWEST and time.perf_counter() - begun > seconds):
            return
        since, waited = time.perf_counter(), runner.without_processor()
        yield turn
        waited, passed = runner.without_processor() - waited, time.perf_counter() - since
        calm += not told or waited <= BUSY * passed


def interleaved(
    device: torch.device, tasks: Mapping[Any, Callable], repeats: int, settled: bool = False, seconds: float = math.inf
) -> dict[Any, float]:
    """Median ms of every task. The tasks take turns, so that a slow moment meets all alike. First calls are not counted.

    `settled` runs every task once untimed before it is timed, because in a race a lane finds the caches as it left them. Past `seconds`
    it stops early, but not before three repeats. Without that limit it shows a progress bar.
    """
    watch, times = Stopwatch(device), {name: [] for name in tasks}
    uncounted, begun = 1 if settled else 2, time.perf_counter()
    for repeat in tqdm(range(repeats + uncounted), desc="timing", disable=seconds < math.inf):
        for name, task in tasks.items():
            if settled:
                task()
            watch.start()
            task()
            elapsed = watch.lap("task")
            if repeat >= uncounted:
                times[name].append(1000 * elapsed)
        if repeat >= 3 and time.perf_counter() - begun > seconds:
            break
    return {name: statistics.median(each) for name, each in times.items()}


def context_of(pair: LoadedPair) -> int:
    return min(CONTEXT, pair.context // 2)


def even_tree(width: int, rows: int) -> DraftTree:
    """A tree of `rows` nodes, the root included, in which a node has up to `width` children."""
    tree = DraftTree.rooted(0)
    for node in range(1, rows):
        tree.add((node - 1) // width, node, 1.0, 1.0)
    return tree


chain, binary = partial(even_tree, 1), partial(even_tree, 2)
