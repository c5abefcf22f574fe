"""`python -m engine study`: what the papers claim, counted on the held-out prompts. A table of verdicts.

Each claim is confirmed, not confirmed, or not testable at this size. Two systems of the same shape write behind the very same
prompts, or two rules judge the very same trees. A gain is one's tokens a forward over the other's. It is confirmed when its 95 %
interval over prompts lies above 1 and reaches the published size.

It counts tokens, nodes and forwards and times nothing, so its figures are the same on any machine; `python -m engine bench` times.
--claims names rows of that table, such as block. For tau at a budget of one's own there is `python -m engine bench --nodes 16`.
"""

from argparse import Namespace
from typing import NamedTuple

from tqdm import tqdm

from engine.lab.study.claims import CLAIMS, DRAFT_FORWARD, Claim, SystemComparison
from engine.lab.study.counts import CachedStudyCounts, TextCounts, sum_counts
from engine.measure.options import load_pair_of_options, prompts_by_domain_of_options
from engine.measure.racing import explain_unraceable
from engine.measure.verdict import bootstrap_interval_of_geometric_mean, draw_bootstrap_indices, geometric_mean
from engine.measure.words import TOO_FEW
from engine.race import BASELINE, Settings
from engine.systems import resolve_system_name

ROWS = tuple(dict.fromkeys(claim.system for claim in CLAIMS))
HEAD = ("claim", "source", "counted", "verdict", "why")
CONFIRMED, NOT_CONFIRMED, NOT_TESTABLE = "confirmed", "not confirmed", "not testable at this size"


class PairedGain(NamedTuple):
    """`ratio` is `more` over `than`, `low` and `high` are the ends of its interval. All three are geometric means over prompts.

    `published` is the paper's least ratio, 1 for any gain. Each interval is a 95 % one, so one in twenty is wrong by chance alone.
    """

    more: float
    than: float
    ratio: float
    low: float
    high: float
    prompts: int
    published: float


def bootstrap_gain_over_prompts(
    figures_by_prompt: list[float], compared_figures_by_prompt: list[float], published_ratio: float = 1.0
) -> PairedGain:
    """From two lists of counts by prompt, all above 0, by a bootstrap over prompts. The same counts give the same interval."""
    quotients = [mine / other for mine, other in zip(figures_by_prompt, compared_figures_by_prompt, strict=True)]
    low, high = bootstrap_interval_of_geometric_mean(quotients, draw_bootstrap_indices(len(quotients), seed=0))
    return PairedGain(
        geometric_mean(figures_by_prompt),
        geometric_mean(compared_figures_by_prompt),
        geometric_mean(quotients),
        low,
        high,
        len(quotients),
        published_ratio,
    )


def describe_gain_shortfall(gain: PairedGain) -> str:
    """What the gain lacks for its claim, "" when it lacks nothing: all of the interval above 1, some of it at the published size."""
    if gain.high < 1:
        return "it is a loss"
    if gain.low <= 1:
        return f"the interval holds 1, so {gain.prompts} prompts show no gain"
    if gain.high < gain.published:
        return f"there is a gain, but a smaller one than the published {gain.published:g} times"
    return ""


def judge_claim_by_gains(gains: dict[str, PairedGain], untestable_reason: str = "") -> tuple[str, str]:
    """What is said of a claim, and why. All `gains` must hold. `untestable_reason` says why the claim cannot be tested, whatever
    they are.
    """
    if untestable_reason:
        return NOT_TESTABLE, untestable_reason
    fewest = min(found.prompts for found in gains.values())
    if fewest < TOO_FEW:
        return NOT_TESTABLE, f"An interval over {fewest} prompts says too little. Give at least {TOO_FEW}."
    if wrong := [f"{name}: {words}" for name, found in gains.items() if (words := describe_gain_shortfall(found))]:
        return NOT_CONFIRMED, "; ".join(wrong)
    sizes = [f"{found.published:g}" for found in gains.values() if found.published > 1]
    reached = f" and reaches the published {sizes[0]} times" if sizes else ""
    return CONFIRMED, f"{'The' if len(gains) == 1 else 'Every'} interval lies above 1{reached}."


def compute_tokens_per_forward(counts_by_temperature: list[list[TextCounts]], forward_kind: str) -> list[float]:
    """Tokens a forward, or a draft forward, text by text. `counts_by_temperature` are by temperature and text."""
    sums = [sum_counts(of_text) for of_text in zip(*counts_by_temperature, strict=True)]
    drafted = forward_kind == DRAFT_FORWARD
    # One token drafts nothing
    return [each.tokens / max(1, each.draft_forwards if drafted else each.target_forwards) for each in sums]


def measure_gain_and_nodes_per_forward(
    study_counts: CachedStudyCounts, claim: Claim, comparison: SystemComparison, temperatures: tuple[float, ...]
) -> tuple[PairedGain, list[float]]:
    """One comparison of a claim over all texts: the gain, and both systems' nodes a forward where each grows its own trees."""
    if comparison.tree_system:
        by_rule = [
            study_counts.counts_of_rules(
                comparison.tree_system, (comparison.claimed_better, comparison.compared_with), t
            )
            for t in temperatures
        ]
        both = [[of_both[place] for of_both in by_rule] for place in range(2)]
    else:
        both = [
            [
                study_counts.counts_of_system(
                    name, t, claim.on_repeating_texts, claim.with_answer_memory, claim.constraint
                )
                for t in temperatures
            ]
            for name in (comparison.claimed_better, comparison.compared_with)
        ]
    more, than = (compute_tokens_per_forward(counts, comparison.forward_kind) for counts in both)
    totals = [] if comparison.tree_system else [sum_counts([sum_counts(texts) for texts in counts]) for counts in both]
    return bootstrap_gain_over_prompts(more, than, comparison.published_ratio), [
        total.nodes / total.target_forwards for total in totals
    ]


def measure_and_judge_claim(study_counts: CachedStudyCounts, claim: Claim, temperatures: tuple[float, ...]) -> dict:
    """The claim's row, as --json prints it. Nothing is counted where the pair cannot run a system that the claim needs."""
    endless = "A constraint needs a stop token, and this pair has none." if claim.constraint else ""
    reasons = filter(
        None,
        (explain_unraceable(study_counts.pair, resolve_system_name(name)) for name in claim.systems_of_all_comparisons),
    )
    row = {
        "row": claim.system,
        "claim": claim.statement,
        "source": resolve_system_name(claim.system).source,
        "texts": "asked again" if claim.on_repeating_texts else "held out",
        "memory": claim.with_answer_memory,
        "constraint": claim.constraint,
        "temperatures": temperatures,
    }
    if missing := next(reasons, "" if study_counts.pair.stop_ids else endless):
        return row | {"counted": [], "verdict": NOT_TESTABLE, "why": missing}
    found = {
        beside.name: measure_gain_and_nodes_per_forward(study_counts, claim, beside, temperatures)
        for beside in claim.comparisons
    }
    says, why = judge_claim_by_gains({name: each for name, (each, _) in found.items()}, claim.untestable_reason)
    counted = [{"name": name} | each._asdict() | {"nodes": nodes} for name, (each, nodes) in found.items()]
    return row | {"counted": counted, "verdict": says, "why": why}


def format_claim_row(row: dict) -> str:
    """A row of the printed table."""
    how = [
        f"T = {', '.join(f'{t:g}' for t in row['temperatures'])}",
        row["texts"],
        "with memory" if row["memory"] else "",
        "under a JSON schema" if row["constraint"] else "",
    ]
    figures = (
        "; ".join([*map(describe_comparison, row["counted"]), ", ".join(filter(None, how))])
        if row["counted"]
        else "nothing"
    )
    cells = f"{row['row']}: {row['claim']}", row["source"], figures, row["verdict"], row["why"]
    return "| " + " | ".join(cells) + " |"


def describe_comparison(row: dict) -> str:
    """A comparison: both counts, the gain, its interval."""
    nodes = " with {:.1f} and {:.1f} nodes".format(*row["nodes"]) if row["nodes"] else ""
    span = f"{row['ratio']:.3f} times ({row['low']:.3f} to {row['high']:.3f})"
    return f"{row['name']}: {row['more']:.2f} and {row['than']:.2f} tokens{nodes}, {span}"


def select_claims(claim_names: str | None) -> list[Claim]:
    """The claims of those names, separated by commas; all for None. Raises `ValueError` for an unknown name."""
    if claim_names is None:
        return list(CLAIMS)
    names = [name.strip() for name in claim_names.split(",")]
    for name in names:
        if name not in ROWS:
            raise ValueError(f"Unknown claim {name!r}. Available: {', '.join(ROWS)}.")
    return [claim for claim in CLAIMS if claim.system in names]


def main(options: Namespace) -> dict:
    claims = select_claims(options.claims)
    prompts = [prompt for texts in prompts_by_domain_of_options(options).values() for prompt in texts]
    for temperature in options.temperatures or (0.0,):
        Settings("a prompt", (BASELINE,), temperature=temperature, max_new_tokens=options.tokens)
    pair = load_pair_of_options(options).with_shapes({})
    counting, rows = CachedStudyCounts(pair, prompts, options.tokens), []
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|", flush=True)
    for claim in tqdm(claims, desc="claims", unit="claim"):
        rows.append(measure_and_judge_claim(counting, claim, tuple(options.temperatures or claim.temperatures)))
        tqdm.write(format_claim_row(rows[-1]))
    figures = {"pair": pair.title, "machine": pair.hardware, "dtype": pair.dtype, "prompts": len(prompts)}
    return figures | {"tokens": options.tokens, "claims": rows}
