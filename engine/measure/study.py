"""`python -m engine study`: the field's claims, checked side by side on the held-out prompts; tables for people, one JSON object last.

It counts tokens, nodes and forwards and times nothing, so its figures are the same on any machine; `python -m engine bench` times.
"""

import argparse
import json

from tqdm import tqdm

from engine.measure.options import add_pair, first_prompts, held_out, load_given, refusals
from engine.models.pairs import LoadedPair
from engine.race import Race, Settings
from engine.systems import SYSTEMS

TEMPERATURES = (0.0, 0.6, 1.0)
BUDGETS = (4, 8, 16, 32)  # nodes, the root included
EQUAL_BUDGET = ("specinfer", "spectr", "sequoia", "dyspec-threshold", "dyspec", "tree")
DEPTHS = (1, 2, 3, 4, 6)


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
    parser.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES)
    parser.add_argument("--prompts", type=int, default=8, help="held-out prompts a domain")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens a prompt")
    options = parser.parse_args(arguments)
    with refusals(parser):
        pair = load_given(options)
        claims = cases(list(SYSTEMS), options.temperatures)
        for name in (options.claims or "").split(",") if options.claims else ():
            if name not in claims:
                raise ValueError(f"Unknown claim {name!r}. Available: {', '.join(claims)}.")
        chosen = {
            name: runs for name, runs in claims.items() if not options.claims or name in options.claims.split(",")
        }
        found: dict[str, dict[str, list[dict]]] = {}
        for claim, runs in chosen.items():
            for domain in options.domains.split(","):
                prompts = first_prompts(domain, options.prompts)
                rows = [
                    count(pair, prompts, system, options.tokens, temperature, **shape)
                    for system, temperature, shape in tqdm(runs, desc=f"{claim}, {domain}", unit="run")
                ]
                found.setdefault(claim, {})[domain] = rows
                print(table(claim, domain, rows), end="\n\n", flush=True)
    print(json.dumps({"pair": pair.title, "machine": pair.hardware, "dtype": pair.dtype, "claims": found}))
