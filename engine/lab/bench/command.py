"""`python -m engine bench`: race systems over held-out prompts; a table for people, or its figures with --json.

All lanes of a prompt, `generate()` included, run in one process on the same weights, interleaved. Figures are ratios to the baseline,
medians over prompts. `--repeats` races every prompt so often; of each lane the run of the median time counts, and `runs` are the
speedups run by run. A race whose clocks were disturbed is run once more, and counted where that was disturbed too. `speedup` compares
seconds a token with prefill, `decode` without it. `total` compares the seconds of all prompts together, so long texts weigh more.
`least` is the worst prompt's speedup. `of limit` divides decode's speedup by tau / (t(N)/t(1) + draft share), the most that these
forwards allow. `favourites` is the tau of the favourites alone: what the first guess of every level would have kept from where each
round began. A chain with as many guesses may reach deeper than that. What is missing from 100% of the limit is lost outside the
forwards: in accepting, committing and Python. `--peers` adds what `transformers` itself offers (assisted generation, prompt lookup),
other engines and the servers of `--peer-server` to the same run.

`--acceptance 3.0` races nothing. It estimates from this machine's measured forwards what a tree or a chain would give with that many
tokens a round, such as a paper reports (`engine.measure.forced`).

Several texts (`--domains`) give a table each, and one that sets them side by side. `--domains chat` is for a target with a chat
template: up to 40 requests of five kinds. `--prompts FILE` takes a file of one's own.

`accelerate launch -m engine bench` splits the prompts over its processes, a GPU each, and prints one table over all of them. Where
processes share a CPU, they slow each other; tokens, tau and texts stay the same.
"""

import statistics
from argparse import Namespace
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

from tqdm import tqdm

from engine.measure import forced, peers, processes
from engine.measure.options import (
    apply_shape_option,
    constraint_of_options,
    load_pair_of_options,
    prompts_by_domain_of_options,
    refuse_chat_domain_without_template,
)
from engine.measure.other_engines import PeerGenerateFunctions, export_and_load_peer_engines, server_peers_of_options
from engine.measure.racing import (
    PROBES,
    PromptResult,
    choose_fastest_peer_variants,
    explain_unraceable,
    group_systems_by_race,
    median_run_of,
    run_races,
    run_to_result,
    settings_of_options,
)
from engine.measure.table import Column, format_table, format_text_identity
from engine.measure.ways import GenerateFunction, correct_token_counts_of_equal_texts
from engine.models.earlier_texts import AnswerMemory
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, SHAPE, Settings
from engine.record.disturbance import describe_count_of_disturbed_races
from engine.record.race_file import select_worst_comparison_result
from engine.record.trace import Trace
from engine.record.trace_statistics import pooled_favourites_tau, pooled_tau, pooled_time_shares_by_phase
from engine.systems import SYSTEMS, format_shape, resolve_system_name

LABELS = {"tokens": "same tokens", "law": "same distribution", "lossy": "lossy"}
BESIDE_PEERS = ("vanilla", "chain", "tree", "eagle", "mtp", "auto")  # those that the pair can run


def seconds_per_round(trace: Trace, phase: str) -> float:
    return trace.seconds * trace.phase_share(phase) / trace.target_forwards


def speedup_limit_from_forward_times(baseline: Trace, drafted: Trace) -> float:
    """The speedup that the forwards alone allow: tau / (t(N)/t(1) + draft share), both shares in units of a baseline verification."""
    one = seconds_per_round(baseline, "verify")
    return drafted.tau / (seconds_per_round(drafted, "verify") / one + seconds_per_round(drafted, "draft") / one)


def share_of_speedup_limit(baseline: Trace, drafted: Trace) -> float:
    """The measured speedup, prefill excluded, as a share of `speedup_limit_from_forward_times`."""
    return (
        baseline.decode_seconds_per_token
        / drafted.decode_seconds_per_token
        / speedup_limit_from_forward_times(baseline, drafted)
    )


def race_prompts_and_compute_figures(
    pair: LoadedPair,
    prompts: list[str],
    settings: Settings,
    other_peers: PeerGenerateFunctions | None = None,
    runs_per_prompt: int = 1,
) -> dict:
    """Race plain decoding and the systems of the settings over the prompts. Returns the figures as --json prints them.

    With `other_peers`, they and every way of calling `generate()` run on every prompt, without a constraint; else only the plain one
    runs. Of the settings of one way the best on the first prompts runs.
    """
    names = [name for name in settings.systems if name != BASELINE]
    if processes.count_processes() > 1:  # each measures costs of its own, and all must race the same shapes
        pair = pair.with_shapes(
            processes.broadcast_from_first_process(choose_best_shapes_of_calibrated_systems(pair, names))
        )
    ways: dict[str, GenerateFunction] = {peers.PLAIN: peers.generate_with_transformers}
    if other_peers:
        other_peers = peers.merge_transformers_generate_with(pair, other_peers)
        ways |= run_to_result(choose_fastest_peer_variants(pair, prompts[:PROBES], other_peers, settings))
    share = processes.select_items_of_this_process(prompts, pair.target)
    total = len(share) * runs_per_prompt * (1 + len(group_systems_by_race(names)))
    with tqdm(desc="races", unit="race", total=total, disable=not processes.is_first_process()) as bar:
        mine = run_to_result(
            run_races(pair, share, names, settings, peer_functions=ways, runs_per_prompt=runs_per_prompt), bar.update
        )
    runs = processes.gather_items_of_all_processes(mine, pair.target)
    base = [median_run_of(each.results_by_setting[BASELINE]).trace for each in runs]
    written = {
        way: [
            median_run_of(
                correct_token_counts_of_equal_texts([trace] * runs_per_prompt, each.peer_texts_by_name[way]),
                "seconds_per_token",
            )
            for trace, each in zip(base, runs, strict=True)
        ]
        for way in ways
    }
    figures = {
        "shape": settings.explicit_shape,
        "machine": pair.hardware,
        "pair": pair.title,
        "dtype": pair.dtype,
        "temperature": settings.temperature,
        "prompts": len(prompts),
        "processes": processes.count_processes(),
        "repeats": runs_per_prompt,
        "races": sum(len(each.results_by_setting[BASELINE]) for each in runs),
        "disturbed": sum(bool(result.disturbance) for each in runs for result in each.results_by_setting[BASELINE]),
        "tokens": settings.max_new_tokens,
        "memory": pair.memory is not None,
        "constraint": settings.constraint,
        "guesses": settings.guesses,
        "baseline": {
            "tokens_per_s": 1 / statistics.median(trace.seconds_per_token for trace in base),
            "vs_generate": statistics.median(
                other.seconds_per_token / trace.seconds_per_token
                for other, trace in zip(written[peers.PLAIN], base, strict=True)
            ),
        },
        "systems": [
            compute_system_figures(name, [each.results_by_setting[name] for each in runs]) for name in settings.systems
        ],
    }
    if not other_peers or not processes.is_first_process():
        return figures
    traces = {BASELINE: base} | {
        name: [median_run_of(each.results_by_setting[name]).trace for each in runs] for name in names
    }
    return (
        figures | peers.measure_tau_and_build_peer_rows(pair, figures, traces, written) | {"others": other_peers.notes}
    )


def compute_system_figures(system_name: str, runs_by_prompt: list[list[PromptResult]]) -> dict:
    """A system's figures, from all runs of every prompt: of each lane the one of the median time counts."""
    own = [median_run_of(each).trace for each in runs_by_prompt]
    plain = [median_run_of(each, "plain_trace.seconds").plain_trace for each in runs_by_prompt]
    clock, forwards = sum(trace.seconds for trace in own), sum(trace.target_forwards for trace in own)
    beside, shares = list(zip(plain, own, strict=True)), pooled_time_shares_by_phase(own)
    speedups = [base.seconds_per_token / trace.seconds_per_token for base, trace in beside]
    by_run = (
        [result.plain_trace.seconds_per_token / result.trace.seconds_per_token for result in run]
        for run in zip(*runs_by_prompt, strict=True)
    )
    return {
        "name": system_name,
        "shape": own[0].shape if resolve_system_name(system_name).guesses else "",
        "tau": pooled_tau(own),
        "favourites_tau": pooled_favourites_tau(own),
        "speedup": statistics.median(speedups),
        "least_speedup": min(speedups),
        "total_speedup": sum(base.seconds for base in plain) / clock,
        "decode_speedup": statistics.median(
            base.decode_seconds_per_token / trace.decode_seconds_per_token for base, trace in beside
        ),
        "runs": list(map(statistics.median, by_run)),
        "of_limit": statistics.median(share_of_speedup_limit(base, trace) for base, trace in beside),
        "identical": select_worst_comparison_result(
            [result.text_verdict for each in runs_by_prompt for result in each]
        ),
        "too_wide": describe_children_beyond_width(system_name, own),
        "nodes": sum(len(step.tokens) for trace in own for step in trace.steps) / forwards,
        "draft_forwards": sum(trace.draft_forwards for trace in own) / forwards,
        "draft_ms": 1000 * shares["draft"] * clock / forwards,
        "draft_share": shares["draft"],
        "verify_share": shares["verify"],
    }


def choose_best_shapes_of_calibrated_systems(pair: LoadedPair, systems: list[str]) -> dict[str, str]:
    """The best shape here of every system whose shapes were counted on the pair."""
    found = {
        system.name: system
        for system in map(resolve_system_name, systems)
        if system.calibrated_mean_rounds_by_shape(pair)
    }
    return {name.partition("!")[0]: system.get_or_measure_costs(pair).best_shape for name, system in found.items()}


def describe_children_beyond_width(system_name: str, traces: list[Trace]) -> str:
    """A sentence where a node has more children than the width, else "". A policy's `needs` may replace the width."""
    system = resolve_system_name(system_name)
    width, policy = traces[0].width, system.parts[1]
    steps = [step for trace in traces for step in trace.steps]
    most = max((max(Counter(step.parents[1:]).values(), default=0) for step in steps), default=0)
    if most <= width or policy.required_capability:
        return ""
    excess = f"it put {most} guesses behind one node, where {width} may stand."
    return f"{system_name}: its policy {system.policy} ignores its width: {excess}"


FIGURES: list[Column] = [
    ("system", "{name}"),
    ("shape", "{shape}"),
    ("tau", "{tau:.2f}"),
    ("favourites", "{favourites_tau:.2f}"),
    ("speedup", "{speedup:.2f}x"),
    ("decode", "{decode_speedup:.2f}x"),
    ("total", "{total_speedup:.2f}x"),
    ("least", "{least_speedup:.2f}x"),
    ("of limit", "{of_limit:.0%}"),
    ("identical", format_text_identity),
    ("nodes", "{nodes:.1f}"),
    ("drafts", "{draft_forwards:.2f}"),
    ("draft ms", "{draft_ms:.2f}"),
    ("draft", "{draft_share:.0%}"),
    ("verify", "{verify_share:.0%}"),
]


def format_bench_report(figures: dict) -> str:
    """The figures for people. Nodes, draft forwards and draft milliseconds are means per round, which is one target forward."""
    lines = [
        f"{figures['pair']}, {figures['machine']}, {figures['dtype']}, T = {figures['temperature']:g}, "
        f"{figures['prompts']} prompts, up to {figures['tokens']} tokens"
        + (f", the median of {figures['repeats']} runs each" if figures["repeats"] > 1 else "")
        + (f", split over {figures['processes']} processes" if figures["processes"] > 1 else "")
        + (", with a memory of earlier prompts" if figures["memory"] else "")
        + (f", under a constraint, guesses {figures['guesses']}" if figures["constraint"] else ""),
        f"baseline: {figures['baseline']['tokens_per_s']:.0f} tokens/s, "
        f"{figures['baseline']['vs_generate']:.2f}x generate()",
        "",
        *format_table(FIGURES, figures["systems"]),
    ]
    if figures["repeats"] > 1:
        spread = (f"{row['name']} {min(row['runs']):.2f} to {max(row['runs']):.2f}" for row in figures["systems"])
        lines.append(f"speedup in {figures['repeats']} runs: {', '.join(spread)}")
    if said := describe_count_of_disturbed_races(figures["disturbed"], figures["races"], "races"):
        lines.append(said.strip())
    return "\n".join(lines + [row["too_wide"] for row in figures["systems"] if row["too_wide"]])


def format_domains_side_by_side(figures_by_domain: dict[str, dict]) -> str:
    """One table over all domains' texts: for each its tau, its speedup, and the share of a lane's time that drafting took."""
    columns: list[Column] = [
        ("system", "{name}"),
        ("output", lambda row: LABELS[resolve_system_name(row["name"]).guarantee]),
    ]
    rows = [dict(row) for row in next(iter(figures_by_domain.values()))["systems"]]
    for domain, figures in figures_by_domain.items():
        for row, found in zip(rows, figures["systems"], strict=True):
            row[domain] = found
        for head, name, form in (("tau", "tau", ".2f"), ("speedup", "speedup", ".2f"), ("draft", "draft_share", ".0%")):
            columns.append(
                (f"{domain} {head}", lambda row, at=(domain, name), form=form: f"{row[at[0]][at[1]]:{form}}")
            )
    return "\n".join(format_table(columns, rows))


def select_runnable_and_print_left_out(pair: LoadedPair, systems: list[str]) -> list[str]:
    """Those of the systems that the pair can run. Of the others it prints why not."""
    reasons = {name: explain_unraceable(pair, resolve_system_name(name)) for name in systems}
    for name, reason in reasons.items():
        if reason and processes.is_first_process():
            print(f"{name} is left out. {reason}")
    return [name for name, reason in reasons.items() if not reason]


def estimate_and_print_speedups(
    pair: LoadedPair, systems: list[str], shape_overrides: dict[str, int], assumed_tau: float
) -> dict:
    """Prints and returns what the systems would give at `assumed_tau`. What `shape_overrides` leaves out is each system's best."""
    rows = []
    for name in systems:
        system = resolve_system_name(name)
        asked = system.best_shape_for(pair) | shape_overrides
        setting = name if not shape_overrides and asked == system.default_shape else f"{name}:{format_shape(asked)}"
        rows.append(forced.estimate_speedup_of_setting(pair, setting, assumed_tau))
    if processes.is_first_process():
        print(f"{pair.title}, {pair.hardware}, {pair.dtype}", *forced.describe_estimates(rows), sep="\n")
    return {"machine": pair.hardware, "pair": pair.title, "dtype": pair.dtype, "estimates": rows}


def main(options: Namespace) -> dict | None:
    if options.list:
        for system in SYSTEMS.values():
            print(f"{system.name:<18}{LABELS[system.guarantee]:<20}{system.title}")
        return None
    if options.repeats < 1 or options.repeats % 2 == 0:
        raise ValueError(f"--repeats must be an odd number, 1 or more, got {options.repeats}.")
    prompts = prompts_by_domain_of_options(options)
    every = options.systems == "all"
    named = options.systems and (list(SYSTEMS) if every else options.systems.split(","))
    asked = settings_of_options(  # refuses what no race takes, before a model is loaded
        options,
        tuple(named or ()),
        constraint=constraint_of_options(options),
        guesses=options.guesses,
        **{name: getattr(options, name) for name in SHAPE},
    )
    if options.acceptance is not None and options.peers:
        raise ValueError(f"--acceptance {options.acceptance:g} races nothing, and --peers races: give one of them.")
    assumed = None if options.acceptance is None else forced.validate_acceptance_length(options.acceptance)
    servers = server_peers_of_options(options, asked.constraint)
    options.device = processes.choose_device_of_this_process(options.device)
    pair = apply_shape_option(options, load_pair_of_options(options))
    refuse_chat_domain_without_template(pair, options.domains)
    if every:
        named = select_runnable_and_print_left_out(pair, named)
    if assumed is not None:
        return estimate_and_print_speedups(pair, named or ["tree", "chain"], asked.explicit_shape, assumed)
    pair = replace(pair, memory=AnswerMemory()) if options.memory else pair
    if not named:
        named = (
            [name for name in BESIDE_PEERS if not explain_unraceable(pair, SYSTEMS[name])]
            if options.peers
            else ["tree"]
        )
    asked = replace(asked, systems=tuple(named))
    found = {}
    with export_and_load_peer_engines(pair, servers) if options.peers else nullcontext() as others:
        for domain, texts in prompts.items():
            raced = race_prompts_and_compute_figures(pair, texts, asked, others, options.repeats)
            found[domain] = figures = {"domain": domain} | raced
            if processes.is_first_process():
                print(f"{domain}: {format_bench_report(figures)}", end="\n\n", flush=True)
                if options.peers:
                    print(peers.format_peers(figures), end="\n\n", flush=True)
    if not processes.is_first_process():
        return None
    if len(found) > 1:
        print(format_domains_side_by_side(found), end="\n\n")
    return figures if len(found) == 1 else {"domains": found}
