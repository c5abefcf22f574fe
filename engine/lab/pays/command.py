"""`python -m engine pays`: tell whether speculative decoding pays for your own prompts.

Every lossless system that the pair allows, `auto` included, races over the file's prompts. Plain decoding and `generate()` run
beside it, interleaved. On the first three prompts each system's default shape is raced against two smaller ones. The best of them then
runs over all prompts. The verdict is about the best lossless system:

- "yes": the 95 % interval of its speedup begins above 1.
- "no": the interval ends below 1, or the speedup is below 1.
- "only": anything else; then only some prompts gain.

A speedup compares seconds a token, prefill included. Over prompts it is the geometric mean; its interval is a bootstrap over prompts.
The best of many systems is chosen after the fact, so where several are close the interval is a little too kind.
Over fewer than ten prompts an interval is too narrow.

`--peers` runs beside it what transformers itself offers, and llama.cpp and OpenVINO GenAI where they are installed. Of their settings
the best on the first three prompts runs over all. `--peer-server ADDRESS` adds a server that runs already, which gets the same prompts.

`--server ADDRESS` measures a server that runs already, with its guesses and without
(`engine.lab.pays.served`). It prints a row that
can be shared.

`accelerate launch -m engine pays` splits the prompts over its processes, a GPU each; all of them run the same settings.

`--batch 1,4,16,32` then decodes so many prompts at once, with the best setting and `auto`. `--acceptance 3.0` estimates what every best
setting would give with so many tokens a round. Behind long contexts guessing is measured by a file of long prompts.
"""

import json
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from tqdm import tqdm

from engine.lab.pays import batch, served
from engine.measure import forced, peers, processes, served_words, words
from engine.measure.options import (
    CHAT_FILE,
    apply_shape_option,
    constraint_of_options,
    load_pair_of_options,
    refuse_chat_domain_without_template,
)
from engine.measure.other_engines import PeerGenerateFunctions, export_and_load_peer_engines, server_peers_of_options
from engine.measure.prompts import read_prompt_files
from engine.measure.racing import (
    choose_settings_and_race_in_steps,
    choose_systems,
    count_progress_pieces,
    run_to_result,
    settings_of_options,
    split_raceable_and_refused,
)
from engine.measure.report import build_pays_report
from engine.measure.table import Column, format_table
from engine.models.earlier_texts import AnswerMemory

# Options of a pair in memory: what is raced, with which models, under which constraint; and those of a server
RACED = ("systems", "acceptance", "memory", "peers", "peer_server", "shape")
LOADED = ("pair", "target", "draft", "drafter", "quantisation", "device")
BOUND = ("json_schema", "regex", "grammar")
REMOTE = ("plain", "server_model", "machine")


def main(options: Namespace) -> dict | None:
    if options.server is not None:
        return measure_and_judge_server(options)
    for name in REMOTE:
        if getattr(options, name) is not None:
            raise ValueError(f"{format_option_name(name)} needs --server, the address of a server that runs already.")
    figures = race_and_judge_prompts(options)
    if not processes.is_first_process():
        return None
    print(words.format_pays_report(figures))
    for name, told in (("batch", format_batches), ("acceptance", format_estimates)):
        if name in figures:
            print("", *told(figures[name]), sep="\n")
    return figures


def race_and_judge_prompts(options: Namespace) -> dict:
    """The figures, with the verdict's sentence. Raises `ValueError` for a file, a system or a value that cannot be raced."""
    given = read_prompt_files(options.prompts or [CHAT_FILE])
    prompts = [each.text for each in given]
    sizes = batch.parse_ascending_numbers("--batch", options.batch, batch.LARGEST_BATCH) if options.batch else []
    tau = None if options.acceptance is None else forced.validate_acceptance_length(options.acceptance)
    named = tuple(name.strip() for name in options.systems.split(",")) if options.systems else ()
    asked = settings_of_options(options, named, constraint=constraint_of_options(options))
    servers = server_peers_of_options(options, asked.constraint)
    options.device = processes.choose_device_of_this_process(options.device)
    pair = apply_shape_option(options, load_pair_of_options(options))
    refuse_chat_domain_without_template(pair, options.domains or "")
    pair = replace(pair, memory=AnswerMemory()) if options.memory else pair
    systems = choose_systems(pair, options.systems, asked.constraint)
    raced, refused = split_raceable_and_refused(pair, prompts, asked)
    texts = [prompts[index] for index in raced]
    with export_and_load_peer_engines(pair, servers) if options.peers else nullcontext() as found_others:
        others = peers.merge_transformers_generate_with(pair, found_others) if found_others else PeerGenerateFunctions()
        total = count_progress_pieces(
            len(systems),
            len(processes.select_items_of_this_process(texts, pair.target)),
            len(others.variant_names_by_group),
        )
        with tqdm(total=total, desc="races", unit="race") as bar:
            outcome = run_to_result(choose_settings_and_race_in_steps(pair, texts, systems, asked, others), bar.update)
    figures = build_pays_report(pair, prompts, raced, refused, asked, outcome, [each.group for each in given])
    found = (
        {"verdict": words.describe_pays_verdict(figures)}
        | figures
        | ({"others": others.notes} if options.peers else {})
    )
    if not processes.is_first_process() and pair.target.processes == 1:  # what follows is the first process's work
        return found
    if sizes:
        found["batch"] = batch.measure_throughput_by_batch_size(
            pair, texts, batch.select_best_token_exact_setting_and_auto(figures["systems"]), sizes, asked
        )
    if tau is not None:
        found["acceptance"] = forced.estimate_speedups_or_refusals(
            pair, [row["setting"] for row in figures["systems"]], tau
        )
    return found


def format_option_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def measure_and_judge_server(options: Namespace) -> dict:
    """Measures a server that runs already; prints the report and the row. Raises `ValueError` for what makes no sense beside it."""
    for name in RACED + LOADED + BOUND:
        if getattr(options, name) not in (None, False):
            raise ValueError(
                f"{format_option_name(name)} is about a model that is loaded here. Leave it out beside --server."
            )
    if options.spread != "none":
        raise ValueError("--spread is about a model that is loaded here. Leave it out beside --server.")
    prompts = [each.text for each in read_prompt_files(options.prompts or [CHAT_FILE])]
    given = served.SIZES if options.batch is None else options.batch
    sizes = batch.parse_ascending_numbers("--batch", given, batch.LARGEST_BATCH)
    asked = settings_of_options(options)
    arms = served.build_plain_and_speculative_arms(options.server, options.plain, options.server_model or "")
    points = served.measure_speedup_by_concurrency(arms, prompts, sizes, asked, not options.raw)
    row = served.build_shareable_server_row(arms, options.machine, len(prompts), asked, not options.raw, points)
    row = {"verdict": served_words.describe_server_verdict(row)} | row
    print(*served_words.format_server_report(row), "", json.dumps(row), sep="\n")
    return row


BATCH_CELLS: list[tuple[str, Callable[[dict], str]]] = [
    ("/s", "{tokens_per_s:.0f}".format_map),
    ("speedup", "{speedup:.2f}x".format_map),
    ("tau", "{tau:.2f}".format_map),
    ("identical", lambda point: describe_equality_with_plain_texts(point)),
]


def format_batches(figures: dict) -> list[str]:
    """A table of batch sizes, then a sentence for every setting and for every size that was left out."""
    if not figures["settings"]:
        return ["No batch was decoded: none of the raced systems writes plain decoding's own tokens."]
    rows = figures["settings"]
    columns: list[Column] = [("batch", "{batch}"), ("plain/s", "{plain_tokens_per_s:.0f}")]
    sizes = [{**points[0], "points": points} for points in zip(*(row["points"] for row in rows), strict=True)]
    for at, row in enumerate(rows):
        for head, cell in BATCH_CELLS:
            columns.append(
                (
                    row["setting"] + head if head == "/s" else head,
                    lambda size, at=at, cell=cell: cell(size["points"][at]),
                )
            )
    lines = ["Many prompts at once, in tokens/s of all together:", *format_table(columns, sizes)]
    lines += [describe_losing_batch_size(row) for row in rows if row["points"]]
    lines += [
        f"A batch of {each['batch']} with {row['setting']}: {each['disturbed']}"
        for row in rows
        for each in row["points"]
        if each["disturbed"]
    ]
    if figures["cycled"]:
        lines.append(f"Batches beyond {figures['prompts']} decode the same prompts again with other seeds.")
    return lines + [f"A batch of {each['batch']} was left out: {each['why']}" for each in figures["refused"]]


def describe_equality_with_plain_texts(point: dict) -> str:
    """Whether all texts are those of decoding alone, or how many are not; near-ties are differences that rounding explains."""
    if point["identical"]:
        return "yes"
    return f"{point['near_ties']} tied" if point["near_ties"] == point["unlike"] else f"{point['unlike']} NOT"


def describe_losing_batch_size(row: dict) -> str:
    """At which size a setting falls behind plain decoding."""
    where = (
        f"a batch of {row['crossing']}"
        if row["crossing"]
        else f"none of the batches up to {row['points'][-1]['batch']}"
    )
    return f"{row['setting']} falls behind plain decoding at {where}."


def format_estimates(figures: dict) -> list[str]:
    """A sentence for every setting that can have so many tokens a round, then why the others cannot."""
    return [*(forced.describe_estimates(figures["rows"]) if figures["rows"] else []), *figures["refused"]]
