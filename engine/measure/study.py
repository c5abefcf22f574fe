"""`python -m engine study`: the field's claims, checked side by side on the held-out prompts; tables for people, one JSON object last.

It counts tokens, nodes and forwards and times nothing, so its figures are the same on any machine; `python -m engine bench` times.
"""

import argparse
import json
from statistics import mean, stdev

from tqdm import tqdm

from engine.acceptance import ACCEPTANCES
from engine.decode import decode
from engine.measure.options import add_pair, first_prompts, held_out, load_given, refusals
from engine.models.pairs import LoadedPair
from engine.race import Race, Settings, encoded
from engine.sampling import Sampling
from engine.systems import SYSTEMS, find
from engine.tree import LARGEST_TREE

TEMPERATURES = (0.0, 0.6, 1.0)
BUDGETS = (4, 8, 16, 32)  # nodes, the root included
EQUAL_BUDGET = ("specinfer", "spectr", "sequoia", "dyspec-threshold", "dyspec", "tree")
DEPTHS = (1, 2, 3, 4, 6)
EQUAL_DRAFTS = "rules at equal drafts"  # the claim that new rules accept more; its rows have a form of their own
RULE_TEMPERATURES = (0.6, 0.8, 1.0)
RULES = {  # by the system whose drafts are judged; the first rule is the one that the others are compared with
    "model/chain/speculative:4x1x5": ("speculative", "block"),
    "model/chain/speculative:8x1x9": ("speculative", "block"),
    "model/chains/k_seq:4x3x13": ("k_seq", "with_replacement", "gbv"),
    "model/widths/with_replacement:4x3x13": ("with_replacement",),
    "model/dyspec/without_replacement:5x4x8": ("without_replacement", "traversal"),
    "model/dyspec/without_replacement:8x4x24": ("without_replacement", "traversal"),
}
JUDGEMENTS = 6  # of each tree by each rule, with random numbers of their own


def count(pair: LoadedPair, prompts: list[str], system: str, tokens: int, temperature: float, **shape: int) -> dict:
    """One system over the prompts: its tokens (tau), nodes and draft forwards a target forward, and its draft forwards a token."""
    written = forwards = nodes = drafts = 0
    for prompt in prompts:
        settings = Settings(prompt, (system,), temperature=temperature, max_new_tokens=tokens, **shape)
        [lane] = (race := Race(pair, settings)).lanes
        for _ in race.run():
            pass
        written += len(lane.trace.tokens)
        forwards += lane.trace.forwards
        nodes += sum(len(step.tokens) for step in lane.trace.steps)
        drafts += lane.trace.draft_forwards
    return {
        "system": system,
        "temperature": temperature,
        **shape,
        "tau": written / forwards,
        "nodes_used": nodes / forwards,
        "draft_forwards": drafts / forwards,
        "draft_forwards_per_token": drafts / written,
    }


def cases(systems: list[str], temperatures: list[float]) -> dict[str, list[tuple[str, float, dict[str, int]]]]:
    """The runs of each claim, as (system, temperature, shape)."""
    found: dict[str, list[tuple[str, float, dict[str, int]]]] = {
        "tau by system": [(system, t, {}) for system in systems for t in temperatures],
        "equal budget": [
            (system, t, {"depth": 8, "width": 8, "nodes": nodes})
            for nodes in BUDGETS
            for system in EQUAL_BUDGET
            for t in temperatures
        ],
        "equal draft forwards": [
            (system, t, {"depth": depth, "width": 4, "nodes": 1 + 3 * depth})
            for depth in DEPTHS
            for system in ("model/chain/token_match", "tree")
            for t in temperatures
        ],
    }
    if "parallel-tree" in systems:
        found["one forward for all depths"] = [
            (system, t, {"depth": 5, "width": 4, "nodes": 12})
            for system in ("parallel-tree", "eagle", "tree")
            for t in temperatures
        ]
    if "specblock" in systems:
        found["rank-guided or fixed top-k"] = [
            (f"specblock/{policy}/token_match", t, {"depth": 8, "width": 6, "nodes": nodes})
            for nodes in BUDGETS[1:]
            for policy in ("rank_guided", "expand_rerank", "beam", "best_first")
            for t in temperatures
        ]
    return found


def judged(pair: LoadedPair, prompts: list[str], system: str, tokens: int, temperature: float) -> list[dict]:
    """The rules of `RULES` on the very same trees: expected tokens a round, the gain over the first rule and its standard error."""
    mix, sampling, found = find(system), Sampling(temperature), {rule: [] for rule in RULES[system]}
    shape = {name: getattr(mix, name) for name in ("depth", "width", "nodes")}
    for prompt in prompts:
        text = encoded(pair, prompt)
        rounds = mix.rounds(pair, min(pair.context, len(text) + tokens) + LARGEST_TREE, shape, sampling)
        for done in decode(rounds, text, tokens, pair.stop_ids, pair.context):
            for rule, lengths in found.items():
                tries = (Sampling(temperature, seed=seed) for seed in range(1, JUDGEMENTS + 1))
                part = ACCEPTANCES[rule]()
                lengths.append(
                    mean(1 + len(part.decide(done.tree, done.logits, each, done.position).path) for each in tries)
                )
    base = found[RULES[system][0]]
    rows = []
    for rule, lengths in found.items():
        more = [each - other for each, other in zip(lengths, base, strict=True)]
        gain, error = mean(more) / mean(base), stdev(more) / len(more) ** 0.5 / mean(base)
        rows.append(
            {
                "drafts": system,
                "temperature": temperature,
                "rule": rule,
                "tokens": mean(lengths),
                "gain": gain,
                "error": error,
            }
        )
    return rows


def rule_table(domain: str, rows: list[dict]) -> str:
    lines = [
        f"{EQUAL_DRAFTS}, {domain}",
        f"{'drafts':<40}{'T':>5}  {'rule':<20}{'tokens a round':>15}{'gain':>9}{'error':>8}",
    ]
    for row in rows:
        judged_by = f"{row['drafts']:<40}{row['temperature']:>5.1f}  {row['rule']:<20}"
        lines.append(f"{judged_by}{row['tokens']:>15.3f}{row['gain']:>+9.1%}{row['error']:>8.1%}")
    return "\n".join(lines)


def table(claim: str, domain: str, rows: list[dict]) -> str:
    shaped = [name for name in ("depth", "width", "nodes") if name in rows[0]]
    head = f"{'system':<32}{'T':>5}" + "".join(f"{name:>7}" for name in shaped)
    lines = [f"{claim}, {domain}", head + f"{'tau':>8}{'used':>8}{'drafts':>8}{'a token':>9}"]
    for row in rows:
        lines.append(
            f"{row['system']:<32}{row['temperature']:>5.1f}"
            + "".join(f"{row[name]:>7}" for name in shaped)
            + f"{row['tau']:>8.2f}{row['nodes_used']:>8.1f}{row['draft_forwards']:>8.2f}{row['draft_forwards_per_token']:>9.2f}"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m engine study", description=__doc__)
    add_pair(parser)
    parser.add_argument("--claims", help="comma-separated names of claims; all when left out")
    parser.add_argument("--domains", default="stories,code,word problems", help="of " + ", ".join(held_out()))
    parser.add_argument("--temperatures", type=float, nargs="+", help="each claim's own when left out")
    parser.add_argument("--prompts", type=int, default=8, help="held-out prompts a domain")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens a prompt")
    options = parser.parse_args(arguments)
    with refusals(parser):
        pair = load_given(options)
        claims = cases(list(SYSTEMS), options.temperatures or list(TEMPERATURES)) | {EQUAL_DRAFTS: []}
        for name in (options.claims or "").split(",") if options.claims else ():
            if name not in claims:
                raise ValueError(f"Unknown claim {name!r}. Available: {', '.join(claims)}.")
        chosen = {
            name: runs for name, runs in claims.items() if not options.claims or name in options.claims.split(",")
        }
        found: dict[str, dict[str, list[dict]]] = {}
        for claim, runs in chosen.items():
            if claim == EQUAL_DRAFTS:
                domains = options.domains.split(",")
                prompts = [prompt for domain in domains for prompt in first_prompts(domain, options.prompts)]
                of_rules = [(system, t) for t in options.temperatures or RULE_TEMPERATURES for system in RULES]
                rows = [
                    row
                    for system, t in tqdm(of_rules, desc=claim, unit="run")
                    for row in judged(pair, prompts, system, options.tokens, t)
                ]
                found[claim] = {", ".join(domains): rows}
                print(rule_table(", ".join(domains), rows), end="\n\n", flush=True)
                continue
            for domain in options.domains.split(","):
                prompts = first_prompts(domain, options.prompts)
                rows = [
                    count(pair, prompts, system, options.tokens, temperature, **shape)
                    for system, temperature, shape in tqdm(runs, desc=f"{claim}, {domain}", unit="run")
                ]
                found.setdefault(claim, {})[domain] = rows
                print(table(claim, domain, rows), end="\n\n", flush=True)
    print(json.dumps({"pair": pair.title, "machine": pair.hardware, "dtype": pair.dtype, "claims": found}))
