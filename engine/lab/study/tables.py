"""Tables: systems side by side at equal budgets, domain by domain. Knows what is run and how it is printed; judges nothing."""

from collections.abc import Iterator, Sequence
from statistics import mean, stdev

from tqdm import tqdm

from engine.lab.study.counts import count_rules_on_same_trees, count_system, sum_counts
from engine.measure.racing import explain_unraceable
from engine.models.pairs import LoadedPair
from engine.race import SHAPE
from engine.systems import SYSTEMS, find

TEMPERATURES = (0.0, 0.6, 1.0)
BUDGETS = (4, 8, 16, 32)  # nodes, the root included
EQUAL_BUDGET = ("specinfer", "spectr", "sequoia", "dyspec-threshold", "dyspec", "tree")
DEPTHS = (1, 2, 3, 4, 6)
EQUAL_DRAFTS = "rules at equal drafts"  # its rows have a form of their own
RULE_TEMPERATURES = (0.6, 0.8, 1.0)
RULES = {  # by the system whose drafts are judged; the first rule is the one that the others are compared with
    "model/chain/speculative:4x1x5": ("speculative", "block"),
    "model/chain/speculative:8x1x9": ("speculative", "block"),
    "model/chains/k_seq:4x3x13": ("k_seq", "with_replacement", "gbv"),
    "model/widths/with_replacement:4x3x13": ("with_replacement",),
    "model/dyspec/without_replacement:5x4x8": ("without_replacement", "traversal"),
    "model/dyspec/without_replacement:8x4x24": ("without_replacement", "traversal"),
}


def count_row(pair: LoadedPair, prompts: list[str], system: str, tokens: int, temperature: float, **shape: int) -> dict:
    """One system over the prompts: its tokens (tau), nodes and draft forwards a target forward, and its draft forwards a token."""
    total = sum_counts(count_system(pair, prompts, system, tokens, temperature, **shape))
    return {
        "system": system,
        "temperature": temperature,
        **shape,
        "tau": total.tokens / total.forwards,
        "nodes_used": total.nodes / total.forwards,
        "draft_forwards": total.draft_forwards / total.forwards,
        "draft_forwards_per_token": total.draft_forwards / total.tokens,
    }


def list_cases() -> dict[str, list[tuple[str, dict[str, int]]]]:
    """The systems and shapes of each table but `EQUAL_DRAFTS`."""
    policies = [f"specblock/{name}/token_match" for name in ("rank_guided", "expand_rerank", "beam", "best_first")]
    chain_and_tree = ("model/chain/token_match", "tree")
    return {
        "tau by system": [(system, {}) for system in SYSTEMS],
        "equal budget": [
            (each, {"depth": 8, "width": 8, "nodes": nodes}) for nodes in BUDGETS for each in EQUAL_BUDGET
        ],
        "equal draft forwards": [
            (system, {"depth": depth, "width": 4, "nodes": 1 + 3 * depth})
            for depth in DEPTHS
            for system in chain_and_tree
        ],
        "one forward for all depths": [
            (system, {"depth": 5, "width": 4, "nodes": 12}) for system in ("parallel-tree", "eagle", "tree")
        ],
        "rank-guided or fixed top-k": [
            (each, {"depth": 8, "width": 6, "nodes": nodes}) for nodes in BUDGETS[1:] for each in policies
        ],
    }


def build_tables(
    pair: LoadedPair, name: str, prompts: dict[str, list[str]], tokens: int, temperatures: Sequence[float] | None
) -> Iterator[tuple[str, list[dict], str]]:
    """By domain the domain, its rows, and both as text, which says what is left out. The rules take prompts of all domains together."""
    if name == EQUAL_DRAFTS:
        together = [prompt for texts in prompts.values() for prompt in texts]
        of_rules = [(system, t) for t in temperatures or RULE_TEMPERATURES for system in RULES]
        bar = tqdm(of_rules, desc=name, unit="run")
        rows = [row for system, t in bar for row in compare_rules(pair, together, system, tokens, t)]
        yield (domains := ", ".join(prompts)), rows, format_rule_table(domains, rows)
        return
    runs = [(system, t, shape) for system, shape in list_cases()[name] for t in temperatures or TEMPERATURES]
    reasons = {system: explain_unraceable(pair, find(system)) for system, _, _ in runs}
    for domain, texts in prompts.items():
        bar = tqdm([run for run in runs if not reasons[run[0]]], desc=f"{name}, {domain}", unit="run")
        rows = [count_row(pair, texts, system, tokens, temperature, **shape) for system, temperature, shape in bar]
        left_out = [f"{system} is left out. {why}" for system, why in reasons.items() if why]
        yield domain, rows, "\n".join([format_table(name, domain, rows), *left_out])


def compare_rules(pair: LoadedPair, prompts: list[str], system: str, tokens: int, temperature: float) -> list[dict]:
    """The rules of `RULES` on the very same trees: expected tokens a round, the gain over the first rule and its standard error."""
    texts = count_rules_on_same_trees(pair, prompts, system, RULES[system], tokens, temperature)
    found = {rule: [length for rounds in of_rule for length in rounds] for rule, of_rule in texts.items()}
    base = found[RULES[system][0]]
    rows = []
    for rule, lengths in found.items():
        more = [each - other for each, other in zip(lengths, base, strict=True)]
        gain, error = mean(more) / mean(base), stdev(more) / len(more) ** 0.5 / mean(base)
        figures = {"tokens": mean(lengths), "gain": gain, "error": error}
        rows.append({"drafts": system, "temperature": temperature, "rule": rule, **figures})
    return rows


def format_rule_table(domain: str, rows: list[dict]) -> str:
    lines = [
        f"{EQUAL_DRAFTS}, {domain}",
        f"{'drafts':<40}{'T':>5}  {'rule':<20}{'tokens a round':>15}{'gain':>9}{'error':>8}",
    ]
    for row in rows:
        judged_by = f"{row['drafts']:<40}{row['temperature']:>5.1f}  {row['rule']:<20}"
        lines.append(f"{judged_by}{row['tokens']:>15.3f}{row['gain']:>+9.1%}{row['error']:>8.1%}")
    return "\n".join(lines)


def format_table(name: str, domain: str, rows: list[dict]) -> str:
    shaped = [each for each in SHAPE if rows and each in rows[0]]
    head = f"{'system':<32}{'T':>5}" + "".join(f"{each:>7}" for each in shaped)
    lines = [f"{name}, {domain}", head + f"{'tau':>8}{'used':>8}{'drafts':>8}{'a token':>9}"]
    for row in rows:
        lines.append(
            f"{row['system']:<32}{row['temperature']:>5.1f}"
            + "".join(f"{row[each]:>7}" for each in shaped)
            + f"{row['tau']:>8.2f}{row['nodes_used']:>8.1f}{row['draft_forwards']:>8.2f}{row['draft_forwards_per_token']:>9.2f}"
        )
    return "\n".join(lines)
