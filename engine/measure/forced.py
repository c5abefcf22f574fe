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
from engine.record.parsing import format_value_for_error
from engine.rounds.pair_costs import PairCosts
from engine.rounds.timing import CONTEXT
from engine.systems import System, resolve_system_name

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
            f"got {format_value_for_error(tau)}."
        )
    return float(tau)


def longest_burst_of(system: System) -> int:
    """The longest burst that a round of this system can emit: one accepted guess a level, and the bonus."""
    return 1 + (min(system.depth, system.nodes - 1) if system.can_branch else system.depth)


def estimate_speedup_of_setting(pair: LoadedPair, system_setting: str, assumed_tau: float) -> dict:
    """What rounds of this setting would give at `assumed_tau` tokens each, as plain values. Times are in forwards over one row.

    Raises `ValueError` for a setting without a shape of its own, one that the pair does not allow, and one that cannot yield so many.
    """
    Settings("a prompt", (system_setting,))
    system = resolve_system_name(system_setting)
    why = explain_unraceable(pair, system)
    if not system.guesses:
        why = f"{system_setting} guesses nothing, so its rounds yield one token. Name a system that guesses."
    elif system.sizes_trees:
        why = f"{system_setting} sizes every tree itself, so it has no shape to estimate. Name one, as in tree:4x4x8."
    elif not why and assumed_tau > longest_burst_of(system):
        why = (
            f"A round of {system_setting} yields at most {longest_burst_of(system)} tokens, the target's own included, "
        )
        why += f"so never {assumed_tau:g}. Name a deeper shape."
    if why:
        raise ValueError(why)
    costs = PairCosts(pair).get_or_measure_costs(system.drafter)
    rows = system.nodes if system.can_branch else 1 + system.depth
    return {
        "setting": system_setting,
        "acceptance": assumed_tau,
        "rows": rows,
        "levels": system.depth,
        "verify": costs.interpolate_verify_ms(rows) / costs.interpolate_verify_ms(1),
        "draft": costs.draft_ms(system.depth) / costs.interpolate_verify_ms(1),
        "break_even": costs.break_even_tau(rows, system.depth),
        "speedup": assumed_tau / costs.break_even_tau(rows, system.depth),
    }


def estimate_speedups_or_refusals(pair: LoadedPair, system_settings: list[str], assumed_tau: float) -> dict:
    """What every setting would give at `assumed_tau` tokens a round, and of each that cannot have them why not."""
    found: dict[str, list] = {"rows": [], "refused": []}
    for setting in system_settings:
        try:
            found["rows"].append(estimate_speedup_of_setting(pair, setting, assumed_tau))
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
