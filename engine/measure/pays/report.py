"""Report: every figure of the races as plain values, as the last line prints them. Knows traces; prints nothing."""

from collections import Counter

from engine.measure.bench import seconds_per_token
from engine.measure.pays.racing import Outcome, Wish
from engine.measure.pays.verdict import CONFIDENCE, best_of, compared, interval, mean, ratios, resamples, verdict
from engine.models.pairs import LoadedPair
from engine.record.race_file import worst_of
from engine.record.trace import PHASES, Trace
from engine.systems import find

NAMED_PHASES = ("prefill", "draft", "verify")  # the others are the rest


def time_shares(traces: list[Trace]) -> dict[str, float]:
    """Shares of all the traces' time: prefill, draft, verify and the rest."""
    seconds = {phase: sum(trace.share(phase) * trace.seconds for trace in traces) for phase in PHASES}
    whole = sum(seconds.values())
    named = {phase: seconds[phase] / whole for phase in NAMED_PHASES}
    return {**named, "rest": sum(seconds[phase] for phase in PHASES if phase not in NAMED_PHASES) / whole}


def acceptance_by_depth(traces: list[Trace]) -> list[dict]:
    """For each depth the rounds whose accepted path had a guess there, and the share of them in which a guess was accepted.

    Depth 1 is the first guess behind the root. A round counts at a depth when all depths above it were accepted.
    """
    tried, accepted = Counter[int](), Counter[int]()
    for trace in traces:
        for step in trace.steps:
            for depth, node in enumerate([0, *step.path], 1):
                if node in step.parents:
                    tried[depth] += 1
                    accepted[depth] += len(step.path) >= depth
    return [
        {"depth": depth, "rounds": rounds, "accepted": accepted[depth] / rounds}
        for depth, rounds in sorted(tried.items())
    ]


def acceptance_by_rank(traces: list[Trace]) -> list[dict]:
    """For each rank among siblings, the first the drafter's favourite, the share of them that was accepted where their parent was.

    `guesses` counts the siblings of that rank whose parent was reached.
    """
    tried, accepted = Counter[int](), Counter[int]()
    for trace in traces:
        for step in trace.steps:
            for parent in (0, *step.path):
                siblings = [node for node, above in enumerate(step.parents) if above == parent and node]
                for rank, node in enumerate(sorted(siblings, key=lambda node: -step.score[node]), 1):
                    tried[rank] += 1
                    accepted[rank] += node in step.path
    return [
        {"rank": rank, "guesses": count, "accepted": accepted[rank] / count} for rank, count in sorted(tried.items())
    ]


def by_group(groups: list[str], traces: list[Trace], speedups: list[float]) -> list[dict]:
    """The figures of one system for each group of prompts: prompts, speedup, tau and how often the first guess was accepted.

    `groups` name each prompt's. A group is left out when it is "".
    """
    found = []
    for group in dict.fromkeys(filter(None, groups)):
        mine = [index for index, each in enumerate(groups) if each == group]
        lanes = [traces[index] for index in mine]
        first = next(iter(acceptance_by_depth(lanes)), None)
        found.append(
            {
                "group": group,
                "prompts": len(mine),
                "speedup": mean([speedups[index] for index in mine]),
                "tau": sum(len(trace.tokens) for trace in lanes) / sum(trace.forwards for trace in lanes),
                "accepted": None if first is None else first["accepted"],
            }
        )
    return found


def report(
    pair: LoadedPair,
    prompts: list[str],
    raced: list[int],
    refused: dict[int, str],
    wish: Wish,
    outcome: Outcome,
    groups: list[str] | None = None,
) -> dict:
    """The figures. `raced` are the indices of the prompts that the outcome is about; `refused` says why of each other one.

    `groups` name the group of every prompt, "" for none.
    Everything in seconds a token holds prefill. `drawn` resamples are the same for all systems.
    """
    drawn = resamples(len(raced), wish.seed)
    generated = [each.seconds_per_token for each in outcome.generated]
    rows = []
    for name, lane in outcome.raced.items():
        mine = [seconds_per_token(trace) for trace in lane.traces]
        plain = [seconds_per_token(trace) for trace in lane.plain]
        rows.append(
            {
                "name": name,
                "setting": outcome.settings[name],
                "guarantee": find(outcome.settings[name]).guarantee,
                "tried_seconds_per_token": outcome.tried[name],
                **compared(mine, plain, generated, drawn),
                "tau": sum(len(trace.tokens) for trace in lane.traces) / sum(trace.forwards for trace in lane.traces),
                "time": time_shares(lane.traces),
                "acceptance": acceptance_by_depth(lane.traces),
                "acceptance_by_rank": acceptance_by_rank(lane.traces),
                "identical": worst_of(lane.identical),
            }
        )
    best = best_of(rows)
    grouped = [(groups or [""] * len(prompts))[index] for index in raced]
    base = outcome.raced[best["name"]].plain
    plain = [seconds_per_token(trace) for trace in base]
    return {
        "answer": verdict(best),
        "best": best["name"],
        "pair": pair.title,
        "machine": pair.hardware,
        "dtype": pair.dtype,
        "temperature": wish.temperature,
        "tokens": wish.tokens,
        "seed": wish.seed,
        "memory": pair.memory is not None,
        "confidence": CONFIDENCE,
        "plain": {
            "tokens_per_s": 1 / mean(plain),
            "vs_generate": mean(ratios(generated, plain)),
            "vs_generate_interval": interval(ratios(generated, plain), drawn),
            "time": time_shares(base),
        },
        "systems": rows,
        "prompts": [
            {"index": index, "prompt": prompts[index], "speedup": speedup}
            for index, speedup in zip(raced, best["by_prompt"], strict=True)
        ],
        "groups": by_group(grouped, outcome.raced[best["name"]].traces, best["by_prompt"]),
        "refused": [{"index": index, "prompt": prompts[index], "why": why} for index, why in refused.items()],
    }
