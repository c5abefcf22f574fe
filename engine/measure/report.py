"""Report: every figure of the races as plain values, as --json prints them. Knows traces; prints nothing."""

from collections.abc import Sequence

from engine.measure.peers import PLAIN, compute_peer_tau_and_text_equality
from engine.measure.racing import RaceResults
from engine.measure.verdict import (
    CONFIDENCE,
    best_lossless_row_of,
    bootstrap_interval_of_geometric_mean,
    compare_with_plain_and_generate,
    compute_speedups_by_prompt,
    draw_bootstrap_indices,
    geometric_mean,
    judge_yes_no_or_only,
)
from engine.measure.ways import correct_token_counts_of_equal_texts
from engine.models.pairs import LoadedPair
from engine.race import Settings
from engine.record.race_file import select_worst_comparison_result
from engine.record.trace import Trace
from engine.record.trace_statistics import GuessCountsAfterAcceptedParent, pooled_tau, pooled_time_shares_by_phase
from engine.systems import resolve_system_name


def acceptance_by_depth(guess_counts: GuessCountsAfterAcceptedParent) -> list[dict]:
    """For each depth the rounds in which it was reached, and the share of them in which a guess of that depth was accepted."""
    return [
        {"depth": row["depth"], "rounds": row["levels"], "accepted": row["accepted"] / row["levels"]}
        for row in guess_counts.by_depth()
    ]


def acceptance_by_rank(guess_counts: GuessCountsAfterAcceptedParent) -> list[dict]:
    """For each rank among siblings the guesses whose parent was accepted, and the share of them that was accepted too."""
    return [
        {"rank": row["rank"], "guesses": row["reached"], "accepted": row["accepted"] / row["reached"]}
        for row in guess_counts.by_rank()
    ]


def compute_figures_by_group(group_of_prompt: list[str], traces: list[Trace], speedups: list[float]) -> list[dict]:
    """One system's figures for each group of prompts; `group_of_prompt` name each prompt's, and "" is none."""
    found = []
    for group in dict.fromkeys(filter(None, group_of_prompt)):
        mine = [index for index, each in enumerate(group_of_prompt) if each == group]
        lanes = [traces[index] for index in mine]
        first = next(iter(acceptance_by_depth(GuessCountsAfterAcceptedParent(lanes))), None)
        row = {
            "group": group,
            "prompts": len(mine),
            "speedup": geometric_mean([speedups[index] for index in mine]),
            "tau": pooled_tau(lanes),
            "accepted": None if first is None else first["accepted"],
        }
        found.append(row)
    return found


def build_pays_report(
    pair: LoadedPair,
    prompts: list[str],
    raced_indices: list[int],
    refusals: dict[int, str],
    settings: Settings,
    results: RaceResults,
    group_of_prompt: Sequence[str] = (),
) -> dict:
    """The figures. `raced_indices` are the indices of the prompts that the outcome is about; `refusals` says why of each other one.

    `group_of_prompt` name every prompt's, "" for none. Everything in seconds a token holds prefill. All systems share the resamples
    `drawn`.
    """
    drawn = draw_bootstrap_indices(len(raced_indices), settings.seed)
    generated = [each.seconds_per_token for each in results.peer_texts_by_name[PLAIN]]
    rows = []
    for name, lanes in results.results_by_system.items():
        traces, base, identical, disturbed = map(list, zip(*lanes, strict=True))
        mine, plain = ([trace.seconds_per_token for trace in each] for each in (traces, base))
        guesses = GuessCountsAfterAcceptedParent(traces)
        row = {
            "name": name,
            "setting": results.chosen_setting_by_system[name],
            "guarantee": resolve_system_name(results.chosen_setting_by_system[name]).guarantee,
            "tried_seconds_per_token": results.probe_seconds_by_system[name],
            **compare_with_plain_and_generate(mine, plain, generated, drawn),
            "tau": pooled_tau(traces),
            "time": pooled_time_shares_by_phase(traces),
            "acceptance": acceptance_by_depth(guesses),
            "acceptance_by_rank": acceptance_by_rank(guesses),
            "identical": select_worst_comparison_result(identical),
            "disturbed": sum(map(bool, disturbed)),
        }
        rows.append(row)
    best = best_lossless_row_of(rows)
    grouped = [group_of_prompt[index] for index in raced_indices] if group_of_prompt else []
    traces, base, *_ = map(list, zip(*results.results_by_system[best["name"]], strict=True))
    mine, plain = ([trace.seconds_per_token for trace in each] for each in (traces, base))
    beside = []
    for name, written in results.peer_texts_by_name.items():
        if name == PLAIN:
            continue
        written = correct_token_counts_of_equal_texts(base, written)
        theirs = [each.seconds_per_token for each in written]
        against = compute_speedups_by_prompt(theirs, mine)
        row = {
            "name": name,
            **compare_with_plain_and_generate(theirs, plain, generated, drawn),
            "tokens_per_s": 1 / geometric_mean(theirs),
            "best_vs": geometric_mean(against),  # how many times as fast the best system is
            "best_vs_interval": bootstrap_interval_of_geometric_mean(against, drawn),
            **compute_peer_tau_and_text_equality(name, base, written, settings.temperature),
        }
        beside.append(row)
    return ({"peers": beside} if beside else {}) | {
        "answer": judge_yes_no_or_only(best),
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
            "vs_generate": geometric_mean(compute_speedups_by_prompt(generated, plain)),
            "vs_generate_interval": bootstrap_interval_of_geometric_mean(
                compute_speedups_by_prompt(generated, plain), drawn
            ),
            "time": pooled_time_shares_by_phase(base),
        },
        "systems": rows,
        "prompts": [
            {"index": index, "prompt": prompts[index], "speedup": speedup}
            for index, speedup in zip(raced_indices, best["by_prompt"], strict=True)
        ],
        "groups": compute_figures_by_group(grouped, traces, best["by_prompt"]),
        "refused": [{"index": index, "prompt": prompts[index], "why": why} for index, why in refusals.items()],
    }
