"""Forced: what rounds of a shape would give if each yielded so many tokens. Knows measured costs; runs no race.

A paper reports how many tokens a round yields. What that is worth depends on the machine: with t(N), the time of a forward over N rows,

    speedup = tokens a round x t(1) / (t(N) + drafting)

Serving engines force an acceptance length to the same end. vLLM's `synthetic_acceptance_length` and SGLang's `SGLANG_SIMULATE_ACC_LEN`
count the target's own token, as here. TensorRT-LLM's `TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS` does not, so it is one less.
Prefill, accepting and the host's own work are left out.
"""

from engine.measure.racing import explain_unraceable
from engine.models.pairs import LoadedPair
from engine.race import Settings
from engine.record.parsing import quote
from engine.rounds.pair_costs import PairCosts
from engine.rounds.timing import CONTEXT
from engine.systems import System, find_system

LONGEST = 1_000  # tokens a round
ESTIMATED = (
    f"These are estimates from forwards that were timed on this machine behind up to {CONTEXT} tokens. Nothing was raced. "
    "Prefill, accepting and the host's own work are left out."
)


def validate_acceptance_length(tau: object) -> float:
    """The acceptance length. Raises `ValueError` for one that no round can have."""
    if isinstance(tau, bool) or not isinstance(tau, int | float) or not 1 <= tau <= LONGEST:
        raise ValueError(
            f"The acceptance length must be a number of tokens a round, from 1, the target's own alone, to {LONGEST:,}; "
            f"got {quote(tau)}."
        )
    return float(tau)


def longest_burst_of(system: System) -> int:
    """The longest burst that a round of this system can emit: one accepted guess a level, and the bonus."""
    return 1 + (min(system.depth, system.nodes - 1) if system.branches else system.depth)


def estimate_speedup_of_setting(pair: LoadedPair, setting: str, tau: float) -> dict:
    """What rounds of this setting would give at `tau` tokens each, as plain values. Times are in forwards over one row.

    Raises `ValueError` for a setting without a shape of its own, one that the pair does not allow, and one that cannot yield so many.
    """
    Settings("a prompt", (setting,))
    system = find_system(setting)
    why = explain_unraceable(pair, system)
    if not system.guesses:
        why = f"{setting} guesses nothing, so its rounds yield one token. Name a system that guesses."
    elif system.sizes_trees:
        why = f"{setting} sizes every tree itself, so it has no shape to estimate. Name one, as in tree:4x4x8."
    elif not why and tau > longest_burst_of(system):
        why = f"A round of {setting} yields at most {longest_burst_of(system)} tokens, the target's own included, so never {tau:g}. "
        why += "Name a deeper shape."
    if why:
        raise ValueError(why)
    costs = PairCosts(pair).costs_of(system.drafter)
    rows = system.nodes if system.branches else 1 + system.depth
    return {
        "setting": setting,
        "acceptance": tau,
        "rows": rows,
        "levels": system.depth,
        "verify": costs.verify_ms_at(rows) / costs.verify_ms_at(1),
        "draft": costs.draft_ms(system.depth) / costs.verify_ms_at(1),
        "break_even": costs.break_even_tau(rows, system.depth),
        "speedup": tau / costs.break_even_tau(rows, system.depth),
    }


def estimate_speedups_or_refusals(pair: LoadedPair, settings: list[str], tau: float) -> dict:
    """What every setting would give at `tau` tokens a round, and of each that cannot have them why not."""
    found: dict[str, list] = {"rows": [], "refused": []}
    for setting in settings:
        try:
            found["rows"].append(estimate_speedup_of_setting(pair, setting, tau))
        except ValueError as error:
            found["refused"].append(str(error))
    return found


def describe_estimates(rows: list[dict]) -> list[str]:
    """A sentence for every estimate, then what an estimate is."""
    lines = [
        f"{row['setting']}: with {row['acceptance']:g} tokens a round this machine would give {row['speedup']:.2f}x plain "
        f"decoding. A round checks {row['rows']} rows in {row['verify']:.2f} plain forwards and drafts {row['levels']} levels in "
        f"{row['draft']:.2f}, so it needs {row['break_even']:.2f} tokens to break even."
        for row in rows
    ]
    return [*lines, ESTIMATED]
