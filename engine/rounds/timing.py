"""Timing: what forwards and drafts of a pair take on this machine. Keeps nothing; `engine.rounds.pair_costs` keeps the costs."""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.kernels.expansion import Expansion
from engine.models.pairs import LoadedPair
from engine.policies import POLICIES
from engine.policies.shared.growing import grow
from engine.record.disturbance import BUSY
from engine.rounds.round import Stopwatch
from engine.rounds.round_gpu import DeviceRounds
from engine.sampling import Sampling
from engine.target import Target
from engine.tree import LARGEST_TREE, DraftTree

ROWS = (1, 2, 4, 6, 7, 8, 12, 13, 16, 24, 32, 64)  # products take six rows at a time on many processors
CONTEXT = 128  # tokens before the timed forwards
LEVEL, LEVELS = 3, 3  # nodes of a timed draft level, and levels timed in a row
LARGEST = 1 + LEVEL + LEVELS * LEVEL**2  # rows of a tree whose drafting is timed
REPEATS, FEWEST = 7, 3  # undisturbed turns of every timing; and turns at least, where its seconds are over


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
    with pair.target.without_torch_threads():
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
    with pair.target.without_torch_threads():
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
                drafter.see(tree, logits, path)
                drafter.commit(tree, path, root, features)
            if target.length + 4 * LEVELS >= min(pair.context, capacity - LARGEST):
                break
    first, deep = least.values()
    return first, max(0.0, deep - first) / LEVELS


@torch.inference_mode()
def device_ms(
    pair: LoadedPair, drafter: str, policy: str, depths: Sequence[int], width: int, nodes: int
) -> dict[int, float]:
    """Least ms of a greedy round that a device decides alone, by the levels of its tree, for trees of these depths or less."""
    sampling, prompt = Sampling(device=pair.target.noise_place), list(range(context_of(pair)))
    capacity, least = context_of(pair) + LARGEST_TREE, {}
    for depth in depths:
        grower = POLICIES[policy](depth, width, nodes, "ranked", pair.calibration)
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
