"""Timing: what forwards and drafts of a pair take on this machine. Keeps nothing; `engine.rounds.pair_costs` does."""

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
from engine.forward.recurrent.session import RecurrentSession
from engine.forward.runner import Runner
from engine.kernels.expansion import TreeExpansion
from engine.models.pairs import LoadedPair
from engine.policies import POLICIES
from engine.policies.shared.growing import grow_tree_of_favourites
from engine.record.costs import RecurrentStateCosts
from engine.record.disturbance import BUSY
from engine.rounds.round import PhaseStopwatch
from engine.rounds.round_gpu import DeviceRoundRunner
from engine.sampling import Sampling
from engine.target import Target
from engine.tree import LARGEST_TREE, DraftTree

ROWS = (1, 2, 4, 6, 7, 8, 12, 13, 16, 24, 32, 64)  # products take six rows at a time on many processors
CONTEXT = 128  # tokens before the timed forwards
LEVEL, LEVELS = 3, 3  # nodes of a timed draft level, and levels timed in a row
LARGEST = 1 + LEVEL + LEVELS * LEVEL**2  # rows of a tree whose drafting is timed
REPEATS, FEWEST = 7, 3  # undisturbed turns of every timing; and turns at least, where its seconds are over


@torch.inference_mode()
def time_verify_ms_by_rows(
    pair: LoadedPair, repeats: int = REPEATS, max_seconds: float = math.inf, row_counts: Sequence[int] = ()
) -> dict[int, float]:
    """Least ms of a verification by its number of rows, of these or of `ROWS`."""
    trees = {size: binary(size) for size in row_counts or ROWS}
    return time_verify_ms_of_trees(open_target_to_time(pair), trees, repeats, max_seconds)


@torch.inference_mode()
def measure_state_times_and_bytes(pair: LoadedPair, nodes: int, max_seconds: float) -> RecurrentStateCosts:
    """What a tree of so many nodes costs a target with states, beside a chain of as many. Raises `ValueError` for another target."""
    if not pair.target.recurrent:
        raise ValueError(f"The target of {pair.title} keeps no state, so its trees cost what rows cost.")
    target, trees = open_target_to_time(pair), {"plain": chain(1), "chain": chain(nodes), "tree": binary(nodes)}
    assert isinstance(target.session, RecurrentSession)
    ms, held = time_verify_ms_of_trees(target, trees, REPEATS, max_seconds), {}
    for name, tree in trees.items():
        target.verify(tree)
        held[name] = target.session.uncommitted_bytes
    paths = nodes - len({*trees["tree"].parents[1:]})
    return RecurrentStateCosts(
        nodes,
        paths,
        ms["plain"],
        ms["chain"],
        ms["tree"],
        held["chain"],
        held["tree"],
        pair.target.state_bytes_per_text,
    )


def open_target_to_time(pair: LoadedPair) -> Target:
    """The pair's target behind a text of `timing_context_tokens`."""
    target = Target(pair.target, timing_context_tokens(pair) + LARGEST_TREE)
    target.prefill_and_return_features(list(range(timing_context_tokens(pair))))
    return target


def time_verify_ms_of_trees(
    target: Target, trees: Mapping[Any, DraftTree], repeats: int, max_seconds: float
) -> dict[Any, float]:
    """Least ms of the verifications of these trees, which take turns.

    Of a target that keeps states, that has the states of every node. Every one runs once untimed before it is timed: in a race a lane
    finds the caches as it left them.
    """
    runner, least = target.session.runner, dict.fromkeys(trees, math.inf)
    watch = PhaseStopwatch(runner.device)
    with runner.without_torch_threads():
        for turn in repeat_until_enough_undisturbed(runner, repeats + 1, max_seconds):
            for name, tree in trees.items():
                target.verify(tree)
                watch.reset_and_start()
                target.verify(tree)
                ms = 1000 * watch.wait_for_device_and_end_phase("verify")
                least[name] = min(least[name], ms) if turn else math.inf
    return least


@torch.inference_mode()
def time_first_and_further_draft_level_ms(
    pair: LoadedPair, drafter_name: str, repeats: int = REPEATS, max_seconds: float = math.inf
) -> tuple[float, float]:
    """Least ms of a drafter's first level and of one level below it, with the ranking of its favourites, as `auto` asks for them.

    Rounds of one level and of many take turns, each behind a verification, as in a race. Their difference, divided by the levels that
    it covers, is the ms of a level below.
    """
    forgetful = replace(pair, memory=None)  # what is timed is no text to remember
    capacity = timing_context_tokens(pair) + LARGEST_TREE
    drafter, sampling = DRAFTERS[drafter_name](forgetful, capacity), Sampling()
    target = Target(pair.target, capacity, drafter.reads_features)
    prompt = list(range(timing_context_tokens(pair)))
    drafter.bind_target_cache(target.session.cache)
    drafter.begin(prompt, target.prefill_and_return_features(prompt[:-1]))
    watch, least = PhaseStopwatch(pair.target.device), {1: math.inf, 1 + LEVELS: math.inf}
    room, root, rounds = TreeExpansion(1 + LEVELS, LEVEL, beam_width=LEVEL), prompt[-1], 0
    with pair.target.without_torch_threads():
        for turn in repeat_until_enough_undisturbed(pair.target, repeats + 1, max_seconds):
            for levels in least:
                watch.reset_and_start()
                tree = grow_tree_of_favourites(room, drafter, root, target.committed_rows, sampling, levels)
                ms = 1000 * watch.wait_for_device_and_end_phase("draft")
                least[levels] = min(least[levels], ms) if turn else math.inf
                rounds += 1
                path, root = tree.path_below_root(len(tree) - 1), (len(prompt) + rounds * levels) % pair.target.vocab
                logits, features = target.verify(tree)
                target.commit(path)
                drafter.observe_target_logits(tree, logits, path)
                drafter.commit(tree, path, root, features)
            if target.committed_rows + 4 * LEVELS >= min(pair.context, capacity - LARGEST):
                break
    first, deep = least.values()
    return first, max(0.0, deep - first) / LEVELS


@torch.inference_mode()
def time_device_round_ms_by_depth(
    pair: LoadedPair, drafter_name: str, policy_name: str, depths: Sequence[int], width: int, nodes: int
) -> dict[int, float]:
    """Least ms of a greedy round that a device decides alone, by the levels of its tree, for trees of these depths or less."""
    sampling, prompt = Sampling(device=pair.target.noise_place), list(range(timing_context_tokens(pair)))
    capacity, least = timing_context_tokens(pair) + LARGEST_TREE, {}
    for depth in depths:
        grower = POLICIES[policy_name](depth, width, nodes, "ranked", pair.calibration)
        lane, times = DeviceRoundRunner(pair, drafter_name, grower, capacity, sampling), []
        for _ in range(REPEATS + 1):
            lane.prefill_and_return_seconds(prompt, capacity)  # anew, so that every round has the same room
            times.append(1000 * sum(lane.run_round().seconds.values()))
        least[lane.round.depth] = min(times)
    return least


def repeat_until_enough_undisturbed(runner: Runner, undisturbed_repeats: int, max_seconds: float) -> Iterator[int]:
    """Counts repeats until this thread kept the processor in enough of them. After `max_seconds` it stops, but not before `FEWEST`
    repeats.

    Without such a limit, and where another device computes, every turn counts.
    """
    begun, calm, told = time.perf_counter(), 0, max_seconds < math.inf and runner.device.type == "cpu"
    for turn in itertools.count():
        if calm >= undisturbed_repeats or (turn > FEWEST and time.perf_counter() - begun > max_seconds):
            return
        since, waited = time.perf_counter(), runner.seconds_without_processor()
        yield turn
        waited, passed = runner.seconds_without_processor() - waited, time.perf_counter() - since
        calm += not told or waited <= BUSY * passed


def median_ms_interleaved(
    device: torch.device,
    tasks: Mapping[Any, Callable],
    repeats: int,
    warm_up_each: bool = False,
    max_seconds: float = math.inf,
) -> dict[Any, float]:
    """Median ms of every task. The tasks take turns, so that a slow moment meets all alike. First calls are not counted.

    `warm_up_each` runs every task once untimed before it is timed, because in a race a lane finds the caches as it left them. Past
    `max_seconds` it stops early, but not before three repeats. Without that limit it shows a progress bar.
    """
    watch, times = PhaseStopwatch(device), {name: [] for name in tasks}
    uncounted, begun = 1 if warm_up_each else 2, time.perf_counter()
    for repeat in tqdm(range(repeats + uncounted), desc="timing", disable=max_seconds < math.inf):
        for name, task in tasks.items():
            if warm_up_each:
                task()
            watch.reset_and_start()
            task()
            elapsed = watch.wait_for_device_and_end_phase("task")
            if repeat >= uncounted:
                times[name].append(1000 * elapsed)
        if repeat >= 3 and time.perf_counter() - begun > max_seconds:
            break
    return {name: statistics.median(each) for name, each in times.items()}


def timing_context_tokens(pair: LoadedPair) -> int:
    return min(CONTEXT, pair.context // 2)


def build_even_tree(children_per_node: int, node_count: int) -> DraftTree:
    """A tree of `node_count` nodes, the root included, in which a node has up to `children_per_node` children."""
    tree = DraftTree.from_root_token(0)
    for node in range(1, node_count):
        tree.add((node - 1) // children_per_node, node, 1.0, 1.0)
    return tree


chain, binary = partial(build_even_tree, 1), partial(build_even_tree, 2)
