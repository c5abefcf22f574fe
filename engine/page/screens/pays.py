"""Does it pay: the figures of `python -m engine pays` for a visitor's prompts, within limits. Knows races; knows no page.

And what if: the speedup that a draft tree would have with another acceptance, depth, width, draft cost or batch.
A round of B sequences verifies (1 + depth x width) B rows, and plain decoding takes B rows for one token each. With t(N), the time of
a forward over N rows, and c, the time of a draft level in plain tokens:

    E       = 1 + a + a^2 + ... + a^depth                       tokens a round (Leviathan et al. 2023)
    speedup = E t(B) / (t((1 + depth width) B) + depth c t(B))

Three things are assumed: every depth is accepted with the same chance a where the depth above was; drafting grows with the batch as
plain decoding does; and rows of several sequences cost what rows of one do. Prefill and the host's own work are left out.
`assets/page/lab/what-if-formula.js` computes the same; `tests/page/browser/lab/test_page_pays.py` holds them equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.measure import forced, racing, words
from engine.measure.prompts import FEWEST
from engine.measure.report import build_pays_report
from engine.models.pairs import LoadedPair
from engine.page.screens.own_prompts import shorten_prompt, validate_prompts
from engine.race import Settings
from engine.record.costs import Costs
from engine.record.parsing import format_value_for_error
from engine.record.quiet import MessageAndSignalGenerator, WorkSignal
from engine.record.trace import Trace
from engine.record.trace_statistics import pooled_decode_seconds_per_token, pooled_tau
from engine.rounds.pair_costs import PairCosts
from engine.systems import resolve_system_name

MOST_PROMPTS, MOST_TOKENS, MOST_SYSTEMS = 20, 72, 16
ALLOWED = f"{FEWEST} to {MOST_PROMPTS} prompts, at most {MOST_TOKENS} new tokens each"
SHOWN = 160  # characters of a prompt
COMMAND = "`python -m engine pays` takes more."
HALVINGS = 60  # of the range in which an acceptance is sought


def build_validated_pays_settings(
    prompts: object, systems: object, acceptance: object = 0, **settings: Any
) -> Settings:
    """How the races are run. Raises `ValueError` for what no race takes and for more than a page may ask."""
    if acceptance != 0:
        forced.validate_acceptance_length(acceptance)
    count = len(validate_prompts(prompts))
    if not FEWEST <= count <= MOST_PROMPTS:
        raise ValueError(
            f"“Does it pay?” needs {FEWEST} to {MOST_PROMPTS} prompts here, got {count}. "
            f"{'Add some.' if count < FEWEST else f'Leave some out; {COMMAND}'}"
        )
    validate_lossless_drafting_systems(systems)
    asked = Settings("a prompt", **settings)
    if asked.max_new_tokens > MOST_TOKENS:
        raise ValueError(
            f"“Does it pay?” writes at most {MOST_TOKENS} new tokens a prompt here, got {asked.max_new_tokens:,}. {COMMAND}"
        )
    return asked


def validate_lossless_drafting_systems(systems: object) -> list[str]:
    """The systems' names; an empty list stands for all that the pair allows. Raises `ValueError` for what cannot be asked about."""
    if not isinstance(systems, list | tuple) or not all(isinstance(each, str) for each in systems):
        raise ValueError(
            f'The systems must be a list of names such as ["tree", "auto"], got {format_value_for_error(systems)}.'
        )
    if len(systems) > MOST_SYSTEMS:
        raise ValueError(f"“Does it pay?” compares at most {MOST_SYSTEMS} systems here, got {len(systems)}. {COMMAND}")
    for at, name in enumerate(systems):
        if name in systems[:at]:
            raise ValueError(f"{format_value_for_error(name)} is named twice. Name every system once.")
        system = resolve_system_name(name)
        if not system.guesses or system.guarantee == "lossy":
            why = "keeps no text" if system.guesses else "guesses nothing"
            raise ValueError(
                f"{format_value_for_error(name)} {why}, so it cannot pay. Name systems that guess and keep the text."
            )
    return list(systems)


def measure_whether_speculation_pays(
    pair: LoadedPair, prompts: list[str], systems: list[str], acceptance: float = 0, **settings: Any
) -> MessageAndSignalGenerator:
    """Races the systems, or all that the pair allows, as the command does. Closing the iterator frees everything.

    Yields plain values between quiet steps. The first carries "start"; "done" counts pieces of work out of "of", and
    "doing" says what comes next. The last carries "end" with the figures, the best system's "costs" and its "point" for the what-if.
    An `acceptance` length above 0 adds what every best setting would give with so many tokens a round, under that name.
    """
    asked = build_validated_pays_settings(prompts, systems, acceptance, **settings)
    raced, refused = racing.split_raceable_and_refused(pair, prompts, asked)
    chosen = validate_lossless_drafting_systems(systems) or racing.choose_systems(pair, None, asked.constraint)
    for name in chosen:
        if reason := racing.explain_unraceable(pair, resolve_system_name(name)):
            raise ValueError(reason)
    work, done = racing.choose_settings_and_race_in_steps(pair, [prompts[index] for index in raced], chosen, asked), 0
    total = racing.count_progress_pieces(len(chosen), len(raced))
    yield {"start": True, "prompts": len(raced), "systems": len(chosen), **describe_progress(0, total, chosen)}
    try:
        while True:
            try:
                step = next(work)
            except StopIteration as end:
                outcome = end.value
                break
            done += step is WorkSignal.PIECE
            yield describe_progress(done, total, chosen) if step is WorkSignal.PIECE else WorkSignal.STEP
    finally:
        work.close()
    figures = build_pays_report(
        pair, [shorten_prompt(prompt, SHOWN) for prompt in prompts], raced, refused, asked, outcome
    )
    settings_of = [row["setting"] for row in figures["systems"]]
    estimated = (
        {"acceptance": forced.estimate_speedups_or_refusals(pair, settings_of, acceptance)} if acceptance else {}
    )
    yield {
        "end": True,
        "verdict": words.describe_pays_verdict(figures),
        **figures,
        **compute_initial_what_if_slider_values(pair, outcome, figures),
        **estimated,
    }


def describe_progress(pieces_done: int, pieces_in_all: int, systems: list[str]) -> dict:
    if pieces_done < len(systems):
        doing = f"Trying settings of {resolve_system_name(systems[pieces_done]).title}"
    else:
        each = 1 + len(racing.group_systems_by_race(systems))  # generate() and the races of a prompt
        prompts = (pieces_in_all - len(systems)) // each
        doing = f"Racing prompt {min((pieces_done - len(systems)) // each + 1, prompts)} of {prompts}"
    return {"done": pieces_done, "of": pieces_in_all, "doing": doing}


def compute_initial_what_if_slider_values(
    pair: LoadedPair, race_results: racing.RaceResults, pays_report: dict
) -> dict:
    """The starting values of the page's sliders: the costs of forwards here, and the operating point of the best system."""
    best = next(row for row in pays_report["systems"] if row["name"] == pays_report["best"])
    costs = PairCosts(pair).get_or_measure_costs(resolve_system_name(best["setting"]).drafter)
    traces, plain, *_ = map(list, zip(*race_results.results_by_system[best["name"]], strict=True))
    point = SpeedupModelInputs.from_traces(traces, plain)
    decoding = pooled_decode_seconds_per_token(plain) / pooled_decode_seconds_per_token(traces)
    measured = {"expected": predict_speedup(costs, point), "decoding": decoding, "speedup": best["speedup"]}
    titles = {row["name"]: resolve_system_name(row["setting"]).title for row in pays_report["systems"]}
    return {"titles": titles, "costs": costs.to_dict(), "point": vars(point) | measured}


@dataclass(frozen=True)
class SpeedupModelInputs:
    """A tree at work. `acceptance` is a share, `depth` and `width` are means, `draft` is a level's time in plain tokens."""

    acceptance: float
    depth: float
    width: float
    draft: float
    batch: int = 1

    @classmethod
    def from_traces(cls, speculative_traces: list[Trace], baseline_traces: list[Trace]) -> "SpeedupModelInputs":
        """The point that races measured: a system's lanes, and the baseline's of the same races."""
        steps = [step for trace in speculative_traces for step in trace.steps]
        levels = sum(tree_depth_of(step.parents) for step in steps)  # below the roots
        token = pooled_decode_seconds_per_token(baseline_traces)
        depth = levels / len(steps)
        return cls(
            acceptance=solve_acceptance_for_tau(pooled_tau(speculative_traces), depth),
            depth=depth,
            width=sum(len(step.parents) - 1 for step in steps) / levels if levels else 1.0,
            draft=sum(step.seconds.get("draft", 0.0) for step in steps) / levels / token if levels else 0.0,
        )


def tree_depth_of(parents: Sequence[int]) -> int:
    """The depth of a tree; `parents[0] == -1`, and parents come before children."""
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    return max(depths)


def expected_tokens_per_round(acceptance: float, depth: float) -> float:
    """E: the burst's mean length, bonus included. A mean depth need not be whole."""
    if acceptance == 1:
        return depth + 1
    return (1 - acceptance ** (depth + 1)) / (1 - acceptance)


def solve_acceptance_for_tau(tokens_per_round: float, depth: float) -> float:
    """Solves for the acceptance rate at which rounds of this depth yield so many tokens, by bisection; at most 1."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens_per_round(middle, depth) < tokens_per_round else (low, middle)
    return high


def predict_speedup(costs: Costs, model_inputs: SpeedupModelInputs) -> float | None:
    """How many times plain decoding's speed; None where the round has more rows than were measured."""
    rows = (1 + model_inputs.depth * model_inputs.width) * model_inputs.batch
    if rows > max(costs.verify_ms):
        return None
    plain = costs.interpolate_verify_ms(model_inputs.batch)
    taken = costs.interpolate_verify_ms(rows) + model_inputs.depth * model_inputs.draft * plain
    return expected_tokens_per_round(model_inputs.acceptance, model_inputs.depth) * plain / taken
