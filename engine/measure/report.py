"""Report: every figure of the races as plain values, as --json prints them. Knows traces; prints nothing."""

from collections.abc import Sequence

from engine.measure.peers import PLAIN, compare_peer
from engine.measure.racing import RaceResults
from engine.measure.verdict import (
    CONFIDENCE,
    best_lossless_row_of,
    compare_system,
    compute_ratios,
    confidence_interval,
    draw_resamples,
    geometric_mean,
    judge_system,
)
from engine.measure.ways import align_token_counts
from engine.models.pairs import LoadedPair
from engine.race import Settings
from engine.record.race_file import worst_verdict_of
from engine.record.trace import Trace
from engine.record.trace_statistics import ReachedGuessCounts, tau, time_shares
from engine.systems import find


def acceptance_by_depth(guesses: ReachedGuessCounts) -> list[dict]:
    """For each depth the rounds in which it was reached, and the share of them in which a guess of that depth was accepted."""
    return [
        {"depth": row["depth"], "rounds": row["levels"], "accepted": row["accepted"] / row["levels"]}
        for row in guesses.by_depth()
    ]


def acceptance_by_rank(guesses: ReachedGuessCounts) -> list[dict]:
    """For each rank among siblings the guesses whose parent was accepted, and the share of them that was accepted too."""
    return [
        {"rank": row["rank"], "guesses": row["reached"], "accepted": row["accepted"] / row["reached"]}
        for row in guesses.by_rank()
    ]


def group_figures(groups: list[str], traces: list[Trace], speedups: list[float]) -> list[dict]:
    """One system's figures for each group of prompts; `groups` name each prompt's, and "" is none."""
    found = []
    for group in dict.fromkeys(filter(None, groups)):
        mine = [index for index, each in enumerate(groups) if each == group]
        lanes = [traces[index] for index in mine]
        first = next(iter(acceptance_by_depth(ReachedGuessCounts(lanes))), None)
        row = {
            "group": group,
            "prompts": len(mine),
            "speedup": geometric_mean([speedups[index] for index in mine]),
            "tau": tau(lanes),
            "accepted": None if first is None else first["accepted"],
        }
        found.append(row)
    return found


def build_report(
    pair: LoadedPair,
    prompts: list[str],
    raced_indices: list[int],
    refusals: dict[int, str],
    settings: Settings,
    results: RaceResults,
    groups: Sequence[str] = (),
) -> dict:
    """The figures. `raced_indices` are the indices of the prompts that the outcome is about; `refusals` says why of each other one.

    `groups` name every prompt's, "" for none. Everything in seconds a token holds prefill. All systems share the resamples `drawn`.
    """
    drawn = draw_resamples(len(raced_indices), settings.seed)
    generated = [each.seconds_per_token for each in results.written[PLAIN]]
    rows = []
    for name, lanes in results.raced.items():
        traces, base, identical, disturbed = map(list, zip(*lanes, strict=True))
        mine, plain = ([trace.seconds_per_token for trace in each] for each in (traces, base))
        guesses = ReachedGuessCounts(traces)
        row = {
            "name": name,
            "setting": results.settings[name],
            "guarantee": find(results.settings[name]).guarantee,
            "tried_seconds_per_token": results.tried[name],
            **compare_system(mine, plain, generated, drawn),
            "tau": tau(traces),
            "time": time_shares(traces),
            "acceptance": acceptance_by_depth(guesses),
            "acceptance_by_rank": acceptance_by_rank(guesses),
            "identical": worst_verdict_of(identical),
            "disturbed": sum(map(bool, disturbed)),
        }
        rows.append(row)
    best = best_lossless_row_of(rows)
    grouped = [groups[index] for index in raced_indices] if groups else []
    traces, base, *_ = map(list, zip(*results.raced[best["name"]], strict=True))
    mine, plain = ([trace.seconds_per_token for trace in each] for each in (traces, base))
    beside = []
    for name, written in results.written.items():
        if name == PLAIN:
            continue
        written = align_token_counts(base, written)
        theirs = [each.seconds_per_token for each in written]
        against = compute_ratios(theirs, mine)
        row = {
            "name": name,
            **compare_system(theirs, plain, generated, drawn),
            "tokens_per_s": 1 / geometric_mean(theirs),
            "best_vs": geometric_mean(against),  # how many times as fast the best system is
            "best_vs_interval": confidence_interval(against, drawn),
            **compare_peer(name, base, written, settings.temperature),
        }
        beside.append(row)
    return ({"peers": beside} if beside else {}) | {
        "answer": judge_system(best),
        "best": best["name"],
        "pair": pair.title,
        "machine": pair.hardware,
        "dtype": pair.dtype,
        "temperature": settings.temperature,
        "tokens": settings.max_new_tokens,
        "seed": settings.seed,
        "constraint": settings.constraint,
        "memory": pair.memory is not None,
        "confidence": CONFIDENCE,
        "plain": {
            "tokens_per_s": 1 / geometric_mean(plain),
            "vs_generate": geometric_mean(compute_ratios(generated, plain)),
            "vs_generate_interval": confidence_interval(compute_ratios(generated, plain), drawn),
            "time": time_shares(base),
        },
        "systems": rows,
        "prompts": [
            {"index": index, "prompt": prompts[index], "speedup": speedup}
            for index, speedup in zip(raced_indices, best["by_prompt"], strict=True)
        ],
        "groups": group_figures(grouped, traces, best["by_prompt"]),
        "refused": [{"index": index, "prompt": prompts[index], "why": why} for index, why in refusals.items()],
    }
