"""`python -m engine bench`: race systems over held-out prompts; a table for people, one JSON object on the last line.

All lanes of a prompt, `generate()` included, run in one process on the same weights, interleaved. Figures are ratios to the baseline,
medians over prompts. `--repeats` races every prompt so often; of each lane the run of the median time counts. `speedup` compares
seconds a token with prefill, `decode` without it. `total` compares the seconds of all prompts together, so long texts weigh more.
`least` is the worst prompt's speedup. `of limit` divides decode's speedup by tau / (t(N)/t(1) + draft share), the most that these
forwards allow. What is missing from 100% is lost outside the forwards: in accepting, committing and Python. `--peers` adds what
`transformers` itself offers (assisted generation, prompt lookup) to the same run.

Several texts (`--domains`) give a table each, and one that sets them side by side.

`accelerate launch -m engine bench` splits the prompts over its processes, a GPU each, and prints one table over all of them. Where
processes share a CPU, they slow each other; tokens, tau and texts stay the same.
"""

import argparse
import json
import statistics
from dataclasses import dataclass, replace

from tqdm import tqdm

from engine.measure import peers, processes
from engine.measure.options import add_memory, add_pair, first_prompts, held_out, load_given, refusals
from engine.models.earlier_texts import Memory
from engine.models.pairs import LoadedPair
from engine.race import SHAPE, Race, Settings
from engine.record.race_file import worst_of
from engine.record.trace import Trace
from engine.systems import SYSTEMS, find

LABELS = {"tokens": "same tokens", "law": "same distribution", "lossy": "lossy"}
BESIDE_PEERS = ("vanilla", "chain", "tree", "eagle", "auto")  # systems that are compared with the peers


def seconds_per_token(trace: Trace) -> float:
    return trace.seconds / len(trace.tokens)


def decode_seconds_per_token(trace: Trace) -> float:
    """Without prefill."""
    return trace.seconds * (1 - trace.share("prefill")) / len(trace.tokens)


def middle(traces: list[Trace]) -> Trace:
    """The one of the median time."""
    return sorted(traces, key=lambda trace: trace.seconds)[len(traces) // 2]


def seconds_per_round(trace: Trace, phase: str) -> float:
    return trace.seconds * trace.share(phase) / trace.forwards


def limit(base: Trace, mine: Trace) -> float:
    """The speedup that the forwards alone allow: tau / (t(N)/t(1) + draft share), both shares in units of a baseline verification."""
    one = seconds_per_round(base, "verify")
    return mine.tau / (seconds_per_round(mine, "verify") / one + seconds_per_round(mine, "draft") / one)


def of_limit(base: Trace, mine: Trace) -> float:
    """The measured speedup, prefill excluded, as a share of `limit`."""
    return decode_seconds_per_token(base) / decode_seconds_per_token(mine) / limit(base, mine)


@dataclass(frozen=True)
class Prompted:
    """What was raced of one prompt: by lane its trace and whether its text was the baseline's, by way what `generate()` wrote."""

    traces: dict[str, Trace]
    identical: dict[str, bool | str]
    written: dict[str, peers.Written]


def run(
    pair: LoadedPair,
    prompts: list[str],
    systems: list[str],
    tokens: int,
    temperature: float,
    seed: int,
    shape: dict[str, int],
    with_peers: bool = False,
    repeats: int = 1,
) -> dict:
    """Race `vanilla` and the systems over the prompts. Returns the figures as the last line prints them.

    What `shape` does not set is each system's own. `with_peers` runs every way of calling `generate()` on every prompt, else only the
    plain one runs. Of `repeats` runs of a prompt each lane and each way counts its own run of the median time.
    """
    names = ["vanilla", *(name for name in systems if name != "vanilla")]
    ways = peers.ways(pair) if with_peers else {peers.PLAIN: peers.plain}
    first = pair.tokenizer("Story: Once upon a time")["input_ids"]
    for way in ways.values():
        peers.timed(pair, way, first, 8, temperature)  # first calls
    mine: list[Prompted] = []
    for index, prompt in enumerate(
        tqdm(processes.share(prompts, pair.target), desc="prompts", unit="prompt", disable=not processes.leads())
    ):
        settings = Settings(prompt, tuple(names), **shape, temperature=temperature, max_new_tokens=tokens, seed=seed)
        races, calls = [], {way: [] for way in ways}
        for repeat in range(repeats):
            race = Race(pair, settings)
            for _ in race.run():
                pass
            races.append(race)
            turn = (index + repeat) % len(ways)
            for way in [*ways][turn:] + [*ways][:turn]:  # every way takes every place
                ids = race.lanes[0].trace.prompt_tokens
                calls[way].append(peers.timed(pair, ways[way], ids, tokens, temperature))
        results = [race.result()["lanes"] for race in races]
        lanes = list(enumerate(names))
        mine.append(
            Prompted(
                {name: middle([race.lanes[number].trace for race in races]) for number, name in lanes},
                {name: worst_of([result[number]["identical"] for result in results]) for number, name in lanes},
                {
                    name: sorted(found, key=lambda each: each.seconds_per_token)[repeats // 2]
                    for name, found in calls.items()
                },
            )
        )
    raced = processes.together(mine, pair.target)
    traces = {name: [each.traces[name] for each in raced] for name in names}
    identical = {name: [each.identical[name] for each in raced] for name in names}
    written = {way: [each.written[way] for each in raced] for way in ways}
    base = [seconds_per_token(trace) for trace in traces["vanilla"]]
    rows = []
    for name in systems:
        own = traces[name]
        clock, forwards = sum(trace.seconds for trace in own), sum(trace.forwards for trace in own)
        beside = list(zip(traces["vanilla"], own, strict=True))
        rows.append(
            {
                "name": name,
                "tau": sum(len(trace.tokens) for trace in own) / forwards,
                "speedup": statistics.median(seconds_per_token(b) / seconds_per_token(trace) for b, trace in beside),
                "least_speedup": min(seconds_per_token(b) / seconds_per_token(trace) for b, trace in beside),
                "total_speedup": sum(b.seconds for b, _ in beside) / clock,
                "decode_speedup": statistics.median(
                    decode_seconds_per_token(b) / decode_seconds_per_token(trace) for b, trace in beside
                ),
                "of_limit": statistics.median(of_limit(b, trace) for b, trace in beside),
                "identical": worst_of(identical[name]),
                "nodes": sum(len(step.tokens) for trace in own for step in trace.steps) / forwards,
                "draft_forwards": sum(trace.draft_forwards for trace in own) / forwards,
                "draft_ms": 1000 * sum(trace.share("draft") * trace.seconds for trace in own) / forwards,
                "draft_share": sum(trace.share("draft") * trace.seconds for trace in own) / clock,
                "verify_share": sum(trace.share("verify") * trace.seconds for trace in own) / clock,
            }
        )
    generated = [each.seconds_per_token for each in written[peers.PLAIN]]
    figures = {
        "shape": shape,
        "machine": pair.hardware,
        "pair": pair.title,
        "dtype": pair.dtype,
        "temperature": temperature,
        "prompts": len(prompts),
        "processes": processes.count(),
        "repeats": repeats,
        "tokens": tokens,
        "memory": pair.memory is not None,
        "baseline": {
            "tokens_per_s": 1 / statistics.median(base),
            "vs_generate": statistics.median(g / b for g, b in zip(generated, base, strict=True)),
        },
        "systems": rows,
    }
    compares = with_peers and processes.leads()
    return figures | (peers.compare(pair, figures, traces, written) if compares else {})


def table(figures: dict) -> str:
    """The figures for people. Nodes, draft forwards and draft milliseconds are means per round, which is one target forward."""
    lines = [
        f"{figures['pair']}, {figures['machine']}, {figures['dtype']}, T = {figures['temperature']:g}, "
        f"{figures['prompts']} prompts, up to {figures['tokens']} tokens"
        + (f", the median of {figures['repeats']} runs each" if figures["repeats"] > 1 else "")
        + (f", split over {figures['processes']} processes" if figures["processes"] > 1 else "")
        + (", with a memory of earlier prompts" if figures["memory"] else ""),
        f"baseline: {figures['baseline']['tokens_per_s']:.0f} tokens/s, "
        f"{figures['baseline']['vs_generate']:.2f}x generate()",
        "",
        f"{'system':<18}{'tau':>6}{'speedup':>9}{'decode':>8}{'total':>8}{'least':>8}{'of limit':>10}{'identical':>11}{'nodes':>7}"
        f"{'drafts':>8}{'draft ms':>10}{'draft':>7}{'verify':>8}",
    ]
    for row in figures["systems"]:
        lines.append(
            f"{row['name']:<18}{row['tau']:>6.2f}{row['speedup']:>8.2f}x{row['decode_speedup']:>7.2f}x{row['total_speedup']:>7.2f}x{row['least_speedup']:>7.2f}x{row['of_limit']:>10.0%}"
            f"{peers.SAME[row['identical']]:>11}{row['nodes']:>7.1f}{row['draft_forwards']:>8.2f}{row['draft_ms']:>10.2f}"
            f"{row['draft_share']:>7.0%}{row['verify_share']:>8.0%}"
        )
    return "\n".join(lines)


def side_by_side(found: dict[str, dict]) -> str:
    """One table over the texts of `found`: for each its tau, its speedup, and the share of a lane's time that drafting took."""
    lines = [
        f"{'':<36}" + "".join(f"{domain:>24}" for domain in found),
        f"{'system':<18}{'output':<18}" + f"{'tau':>9}{'speedup':>9}{'draft':>6}" * len(found),
    ]
    for rows in zip(*(figures["systems"] for figures in found.values()), strict=True):
        name = rows[0]["name"]
        cells = (f"{row['tau']:>9.2f}{row['speedup']:>8.2f}x{row['draft_share']:>6.0%}" for row in rows)
        lines.append(f"{name:<18}{LABELS[find(name).guarantee]:<18}" + "".join(cells))
    return "\n".join(lines)


def beside_peers(pair: LoadedPair) -> list[str]:
    """The systems that are compared with the peers: the best known ones, as far as the pair can run them."""
    able = []
    for name in BESIDE_PEERS:
        try:
            system = SYSTEMS[name]
            system.build(pair, pair.context, system.depth, system.width, system.nodes)
            able.append(name)
        except ValueError:  # the pair lacks a draft model or a trained drafter
            continue
    return able


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m engine bench", description=__doc__)
    parser.add_argument(
        "--systems",
        help="names or mixes (drafter/policy/rule), comma-separated, or all; "
        f"tree when left out, with --peers {', '.join(BESIDE_PEERS)} as far as the pair has them",
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="measure transformers' assisted generation and prompt lookup in the same run",
    )
    parser.add_argument("--list", action="store_true", help="name all systems, one a line with its label, and stop")
    parser.add_argument(
        "--domains", default="stories", help="texts, comma-separated, or all, of " + ", ".join(held_out())
    )
    parser.add_argument("--prompts", type=int, default=20, help="how many held-out prompts a text")
    parser.add_argument("--repeats", type=int, default=1, help="races of every prompt, an odd number")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens a prompt")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    for name in SHAPE:
        parser.add_argument(f"--{name}", type=int, help="the same for all systems; each system's own when left out")
    add_memory(parser)
    add_pair(parser)
    options = parser.parse_args(arguments)
    if options.list:
        print(
            "\n".join(f"{system.name:<18}{LABELS[system.guarantee]:<20}{system.title}" for system in SYSTEMS.values())
        )
        return
    if options.repeats < 1 or options.repeats % 2 == 0:
        parser.error(f"--repeats must be an odd number, 1 or more, got {options.repeats}.")
    with refusals(parser):
        domains = list(held_out()) if options.domains == "all" else options.domains.split(",")
        prompts = {domain: first_prompts(domain, options.prompts) for domain in domains}
        shape = {name: value for name in SHAPE if (value := getattr(options, name)) is not None}
        options.device = processes.own_device(options.device)
        pair = load_given(options)
        pair = replace(pair, memory=Memory()) if options.memory else pair
        if options.systems is None:
            systems = beside_peers(pair) if options.peers else ["tree"]
        else:
            systems = list(SYSTEMS) if options.systems == "all" else options.systems.split(",")
        found = {}
        for domain, texts in prompts.items():
            found[domain] = figures = {"domain": domain} | run(
                pair,
                texts,
                systems,
                options.tokens,
                options.temperature,
                options.seed,
                shape,
                options.peers,
                options.repeats,
            )
            if processes.leads():
                print(f"{domain}: {table(figures)}", end="\n\n", flush=True)
                if options.peers:
                    print(peers.table(figures), end="\n\n", flush=True)
    if not processes.leads():
        return
    if len(found) > 1:
        print(side_by_side(found), end="\n\n")
    print(json.dumps(figures if len(found) == 1 else {"domains": found}))
