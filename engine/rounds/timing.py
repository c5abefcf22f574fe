"""Timing: a pair's `Costs` on this machine, measured once, in under two seconds, when first asked for."""

import math
import statistics
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from tqdm import tqdm

from engine.drafters import DRAFTERS
from engine.forward.spread import agreed
from engine.kernels.expansion import Expansion
from engine.models.pairs import LoadedPair
from engine.policies.shared.growing import grow
from engine.record.costs import Costs
from engine.record.promise import Ranks, promised
from engine.rounds.stopwatch import Stopwatch
from engine.sampling import Sampling
from engine.target import Target
from engine.tree import LARGEST_TREE, DraftTree

ROWS = (1, 2, 4, 6, 7, 8, 12, 13, 16, 24, 32, 64)  # products take six rows at a time on many processors
CONTEXT = 128  # tokens before the timed forwards
LEVEL, LEVELS = 3, 3  # nodes of a timed draft level, and levels timed in a row
WIDTH, NODES = 4, 24  # of the largest trees that drafters are compared by, as the system `auto` grows them
REPEATS, SECONDS = 7, 0.5  # of every timing; past so many seconds it stops early, but not before three repeats

Name = TypeVar("Name", bound=Hashable)
_lock = threading.Lock()
_measured: WeakKeyDictionary[LoadedPair, tuple[dict[bool | tuple[int, ...], dict[int, float]], dict[str, Costs]]] = (
    WeakKeyDictionary()
)


def costs_of(pair: LoadedPair, drafter: str) -> Costs:
    """What a round with this drafter costs, measured on the first call for this pair and drafter.

    Of a drafter that is one of several, these are the costs of the one that promises the most here. Without a calibration of the pair's
    drafters it is the first of them.
    """
    with _lock:
        verified, known = _measured.setdefault(pair, ({}, {}))

        def measured(name: str) -> Costs:
            if name not in known:
                # Processes that share a target must stop together, and no clock tells them the same.
                seconds = SECONDS if pair.target.processes == 1 else math.inf
                features = DRAFTERS[name](pair, LARGEST_TREE).reads_features
                if features not in verified:
                    verified[features] = verify_ms(pair, features, seconds=seconds)
                known[name] = agreed(
                    pair.target.model, Costs(verified[features], *draft_ms(pair, name, seconds=seconds))
                )
            return known[name]

        ranks, compared = ranks_of(pair), needed(pair, drafter)
        if not ranks.keys() & compared or not DRAFTERS[drafter].chooses:
            return measured(compared[0])
        # One curve for all: their own differ by the moment in which they were timed
        verifying = measured(compared[0]).verify_ms
        each = {name: replace(measured(name), verify_ms=verifying) for name in compared}
        found = {name: round(promised(ranks[name], costs, WIDTH, NODES), 2) for name, costs in each.items()}
        return replace(measured(max(found, key=found.__getitem__)), promised=found)


def verified(pair: LoadedPair) -> dict[int, float]:
    """Median ms of a verification by its number of rows, where `costs_of` has measured them for this pair; empty before."""
    curves, _ = _measured.get(pair, ({}, {}))
    return next(iter(dict(curves).values()), {})


def is_measured(pair: LoadedPair, drafter: str) -> bool:
    """Whether `costs_of` measures nothing any more."""
    return _measured.get(pair, ({}, {}))[1].keys() >= {*needed(pair, drafter)}


def needed(pair: LoadedPair, drafter: str) -> list[str]:
    """The drafters whose costs are those of this one: itself, or those that it is the best of."""
    choices = DRAFTERS[drafter].choices(pair)
    return [name for name in choices if name in ranks_of(pair)] or choices[:1] or [drafter]


def ranks_of(pair: LoadedPair) -> Mapping[str, Ranks]:
    return pair.calibration.ranks if pair.calibration else {}


@torch.inference_mode()
def verify_ms(
    pair: LoadedPair,
    features: bool | tuple[int, ...] = False,
    repeats: int = REPEATS,
    seconds: float = math.inf,
) -> dict[int, float]:
    """Median ms of a verification by its number of rows. Of a target that keeps states, that has the states of every node.

    With `features`, verifications of more than one row return features too. One row is plain decoding, where no drafter reads them.
    """
    plain = Target(pair.target, context_of(pair) + LARGEST_TREE)
    target = Target(pair.target, context_of(pair) + LARGEST_TREE, features)
    plain.prefill(list(range(context_of(pair))))
    target.prefill(list(range(context_of(pair))))

    def judged(tree: DraftTree) -> None:
        (target if len(tree) > 1 else plain).verify(tree)

    trees = {rows: binary(rows) for rows in ROWS}
    tasks = {rows: lambda tree=tree: judged(tree) for rows, tree in trees.items()}
    with pair.target.undisturbed():
        return interleaved(pair.target.device, tasks, repeats, settled=True, seconds=seconds)


@torch.inference_mode()
def draft_ms(pair: LoadedPair, name: str, repeats: int = REPEATS, seconds: float = SECONDS) -> tuple[float, float]:
    """Median ms of a drafter's first level and of one level below it, with the ranking of its favourites, as `auto` asks for them.

    Rounds of one level and of many take turns, each behind a verification, as in a race. Their difference, divided by the levels that
    it covers, is the ms of a level below.
    """
    forgetful = replace(pair, memory=None)  # what is timed is no text to remember
    drafter, sampling = DRAFTERS[name](forgetful, context_of(pair) + LARGEST_TREE), Sampling()
    target = Target(pair.target, context_of(pair) + LARGEST_TREE, drafter.reads_features)
    prompt = list(range(context_of(pair)))
    drafter.reading(target.session.cache)
    drafter.begin(prompt, target.prefill(prompt[:-1]))
    watch, times = Stopwatch(pair.target.device), {1: [], 1 + LEVELS: []}
    room, root, begun = Expansion(1 + LEVELS, LEVEL, beams=LEVEL), prompt[-1], time.perf_counter()
    with pair.target.undisturbed():
        for repeat in range(repeats + 1):
            for levels, spent in times.items():
                watch.start()
                tree = grow(room, drafter, root, target.length, sampling, levels)
                spent.append(1000 * watch.lap("draft"))
                path, root = tree.path(len(tree) - 1), (len(prompt) + len(spent) * levels) % pair.target.vocab
                logits, features = target.verify(tree)
                target.commit(path)
                if drafter.reads_logits:
                    drafter.see(tree, logits, path)
                drafter.commit(tree, path, root, features)
            if target.length + 4 * LEVELS >= pair.context or late(begun, repeat, seconds):
                break
    first, deep = (statistics.median(spent[1:]) for spent in times.values())
    return first, max(0.0, deep - first) / LEVELS


def interleaved(
    device: torch.device,
    tasks: Mapping[Name, Callable[[], object]],
    repeats: int,
    settled: bool = False,
    seconds: float = math.inf,
) -> dict[Name, float]:
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
        if late(begun, repeat, seconds):
            break
    return {name: statistics.median(each) for name, each in times.items()}


def late(begun: float, repeat: int, seconds: float) -> bool:
    return repeat >= 3 and time.perf_counter() - begun > seconds


def context_of(pair: LoadedPair) -> int:
    return min(CONTEXT, pair.context // 2)


def chain(rows: int) -> DraftTree:
    """A tree that is one path of `rows` nodes, the root included."""
    tree = DraftTree.rooted(0)
    for node in range(1, rows):
        tree.add(node - 1, node, 1.0, 1.0)
    return tree


def binary(rows: int) -> DraftTree:
    """A tree of `rows` nodes in which a node has up to two children."""
    tree = DraftTree.rooted(0)
    for node in range(1, rows):
        tree.add((node - 1) // 2, node, 1.0, 1.0)
    return tree
