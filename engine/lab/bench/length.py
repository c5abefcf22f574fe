"""`python -m engine bench --by length`: seconds a token up to 128 ... 900 written tokens, prefill included.

All lanes of a prompt take turns in one process; figures are medians over prompts. Stop tokens are ignored, so that every text gets its
full length. Lengths go as far as the pair's window.
"""

import statistics
from argparse import Namespace
from dataclasses import replace
from itertools import product

from tqdm import tqdm

from engine.measure.options import load_pair_of_options, prompts_by_domain_of_options
from engine.measure.racing import group_systems_by_race, run_races, run_to_result
from engine.measure.table import Column, format_table
from engine.measure.verdict import compute_speedups_by_prompt
from engine.models.chat import tokenise_prompt
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Settings
from engine.systems import resolve_system_name

LENGTHS = (128, 256, 512, 900)


def measure_seconds_per_token_by_written_length(
    pair: LoadedPair, prompt_texts: list[str], baseline_and_systems: list[str]
) -> list[dict]:
    """Rows by length and system: seconds a token up to there, prefill included, and the ratio to the baseline's."""
    prompts = [tokenise_prompt(pair, text) for text in prompt_texts]
    room = pair.context - max(map(len, prompts))
    lengths = [length for length in LENGTHS if length <= room] or [room]
    seconds: dict[tuple[int, str], list[float]] = {place: [] for place in product(lengths, baseline_and_systems)}
    settings = Settings("a prompt", max_new_tokens=lengths[-1])
    with tqdm(
        desc="races", unit="race", total=len(prompts) * len(group_systems_by_race(baseline_and_systems[1:]))
    ) as bar:
        runs = run_to_result(run_races(pair, prompts, baseline_and_systems[1:], settings), bar.update)
    for [result, *_] in (each.results_by_setting[name] for each in runs for name in baseline_and_systems):
        written, clock = 0, 0.0
        waiting = list(lengths)
        for step in result.trace.steps:
            written, clock = written + len(step.burst), clock + step.total_seconds
            while waiting and written >= waiting[0]:
                seconds[waiting.pop(0), result.trace.system].append(clock / written)
    return [
        {
            "tokens": length,
            "system": name,
            "s_per_token": statistics.median(found),
            "vs_baseline": statistics.median(compute_speedups_by_prompt(seconds[length, BASELINE], found)),
        }
        for (length, name), found in seconds.items()
    ]


TABLE: list[Column] = [
    ("system", "{system}"),
    ("tokens", "{tokens}"),
    ("ms a token", lambda row: f"{1000 * row['s_per_token']:.2f}"),
    ("vs baseline", "{vs_baseline:.2f}x"),
]


def parse_systems_after_baseline(systems: str) -> list[str]:
    """The baseline and the systems named, comma-separated. Raises `KeyError` or `ValueError` for what is no system."""
    return [BASELINE, *(resolve_system_name(name).name for name in systems.split(",") if name != BASELINE)]


def main(options: Namespace) -> dict:
    prompts = [prompt for texts in prompts_by_domain_of_options(options).values() for prompt in texts]
    lanes = parse_systems_after_baseline(options.systems)
    pair = replace(load_pair_of_options(options), stop_ids=frozenset())
    rows = measure_seconds_per_token_by_written_length(pair, prompts, lanes)
    print(*format_table(TABLE, rows), sep="\n")
    return {"machine": pair.hardware, "pair": pair.title, "dtype": pair.dtype, "rows": rows}
