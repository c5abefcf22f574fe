"""Disturbance: whether a race's clocks can be what its systems cost. Standard library only; knows traces, no device and no page.

Two signs stand in the steps: some took far longer than their lane's others, or a lane is faster than its tau and the usual times of
both lanes' steps allow. Both leave out prefill, of which a lane has one. A third is in the prefill of a lane that drafts nothing: every
lane's target reads the same prompt, so none can read it far sooner. A fourth is seen while a race runs: its threads waited for the
processor (`BUSY`).
"""

import statistics

from engine.record.trace import Trace

FEWEST = 8  # steps of a lane before anything is usual in it
FAR, TIMES = 10.0, 4.0  # a stalled step is so many quartile ranges above the upper quartile, and so many medians long
WEIGHT = 0.1  # share of a lane's seconds that stalls may take
LEEWAY = 1.3  # times the speedup that tau and the usual steps allow
BUSY = 0.09  # share of the clocks that a race's threads may wait for the processor; 0.01 to 0.06 on a quiet machine

OTHERS = "The machine is busy with other programs; ratios vary."


def describe_count_of_disturbed_races(disturbed_count: int, total_count: int, plural_unit: str) -> str:
    """What figures of many races say behind their finding, where the clocks of so many stayed disturbed; "" for none."""
    return (
        f" The clocks of {disturbed_count} of {total_count} {plural_unit} were disturbed twice; ratios vary."
        if disturbed_count
        else ""
    )


def describe_disturbed_clocks_of_race(local_traces: list[Trace], is_processor_busy: bool = False) -> str:
    """Why the lanes' figures may not be repeatable, as a sentence; "" for a race that nothing disturbed.

    `local_traces` are those with a clock of this machine, the first one the baseline. `is_processor_busy` says that their threads
    waited for the processor.
    """
    if is_processor_busy:
        return OTHERS
    usual = [(trace, decode_step_seconds(trace)) for trace in local_traces if len(trace.steps) >= FEWEST]
    for trace, seconds in usual:
        if stalls := find_significant_stalls(seconds):
            return describe_stalls(trace.system, stalls, len(seconds), statistics.median(seconds))
    for trace, seconds in usual[1:]:
        (slow, slower), (fast, faster) = sorted((usual[0], (trace, seconds)), key=lambda each: tokens_per_second(*each))
        ratio, most = (
            tokens_per_second(fast, faster) / tokens_per_second(slow, slower),
            largest_plausible_speed_ratio(slow, slower, fast, faster),
        )
        if ratio > LEEWAY * most:
            return (
                f"Disturbed: {fast.system} was {ratio:.2f} times as fast, and its steps allow {most:.2f} times at most."
            )
    return describe_slow_prefill_of_plain([trace for trace in local_traces if trace.prefill_seconds])


def describe_slow_prefill_of_plain(traces: list[Trace]) -> str:
    """A sentence where a lane that drafts nothing read the prompt for far longer than another one, else "".

    A drafter may read it too, so nothing is said of those that draft.
    """
    plain = [trace for trace in traces if all(len(step.tokens) == 1 for step in trace.steps)]
    for trace in plain:
        first = min(traces, key=lambda lane: lane.prefill_seconds)
        late = trace.prefill_seconds - first.prefill_seconds
        if trace.prefill_seconds > TIMES * first.prefill_seconds and late > WEIGHT * trace.seconds:
            return (
                f"Disturbed: {trace.system} read the prompt for {1000 * trace.prefill_seconds:,.0f} ms, "
                f"and {first.system} for {1000 * first.prefill_seconds:,.0f} ms."
            )
    return ""


def describe_batch_disturbance(
    system: str, round_seconds: list[float], round_seconds_by_run: list[list[float]], is_processor_busy: bool = False
) -> str:
    """`describe_disturbed_clocks_of_race` for one of several runs of the same texts at once, as seconds of every round.

    Rounds get shorter as texts end, so each is compared with its median over the `round_seconds_by_run`, of which this is one.
    """
    if is_processor_busy:
        return OTHERS
    usual = list(map(statistics.median, zip(*round_seconds_by_run, strict=False)))
    stalls = [(each, often) for each, often in zip(round_seconds, usual, strict=False) if each > TIMES * often]
    if sum(each - often for each, often in stalls) <= WEIGHT * sum(round_seconds):
        return ""
    return describe_stalls(system, [each for each, _ in stalls], len(round_seconds), max(stalls)[1])


def describe_stalls(system: str, stalled_seconds: list[float], step_count: int, usual_seconds: float) -> str:
    many = f"{len(stalled_seconds)} of {step_count} steps" if len(stalled_seconds) > 1 else f"one of {step_count} steps"
    longest = f"the longest for {1000 * max(stalled_seconds):,.0f} ms where {1000 * usual_seconds:,.1f} ms are usual"
    return f"Disturbed: {many} of {system} stalled, {longest}."


def decode_step_seconds(trace: Trace) -> list[float]:
    """The seconds of every step, prefill left out."""
    return [step.total_seconds - step.seconds.get("prefill", 0.0) for step in trace.steps]


def find_significant_stalls(step_seconds: list[float]) -> list[float]:
    """The steps that stalled, where they took so much of the time that figures are of them; else none."""
    low, middle, high = statistics.quantiles(step_seconds, n=4)
    stalls = [each for each in step_seconds if each > max(high + FAR * (high - low), TIMES * middle)]
    return stalls if sum(stalls) - middle * len(stalls) > WEIGHT * sum(step_seconds) else []


def tokens_per_second(trace: Trace, step_seconds: list[float]) -> float:
    """Tokens a second behind the prompt."""
    return len(trace.tokens) / sum(step_seconds) if sum(step_seconds) else 0.0


def largest_plausible_speed_ratio(
    slow_trace: Trace, slow_step_seconds: list[float], fast_trace: Trace, fast_step_seconds: list[float]
) -> float:
    """The most that the fast lane can gain: its tau by the other's, times the other's long steps by its own short ones."""
    long, short = statistics.quantiles(slow_step_seconds, n=4)[2], statistics.quantiles(fast_step_seconds, n=4)[0]
    return fast_trace.tau / slow_trace.tau * long / short if short else float("inf")
