"""`python -m engine bench --by length`: seconds a token up to 128 ... 900 written tokens, prefill included.

All lanes of a prompt take turns in one process; figures are medians over prompts. Stop tokens are ignored, so that every text gets its
full length. Lengths go as far as the pair's window.
"""

import statistics
from argparse import Namespace
from dataclasses import replace
from itertools import product

from tqdm import tqdm

from engine.measure.options import first_prompts, load_pair_of_options
from engine.measure.verdict import compute_ratios
from engine.models.chat import tokenise_prompt
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Race, Settings
from engine.record.trace import Trace
from engine.systems import find

LENGTHS = (128, 256, 512, 900)
FIRST = 32  # tokens of the first calls


def race_lanes(pair: LoadedPair, lanes: tuple[str, ...], prompt: list[int], tokens: int) -> list[Trace]:
    """What the lanes did in writing `tokens` tokens behind the prompt, greedily. Raises `ValueError` where they do not fit."""
    if len(prompt) + tokens > pair.context:
        raise ValueError(
            f"{len(prompt)} tokens of prompt and {tokens} new ones do not fit the context window of {pair.context}. "
            "Ask for less of either."
        )
    return Race(pair, Settings("forced", lanes, max_new_tokens=tokens), prompt).run_to_traces()


def measure_by_length(pair: LoadedPair, texts: list[str], lanes: tuple[str, ...]) -> list[dict]:
    """Rows by length and system: seconds a token up to there, prefill included, and the ratio to the baseline's."""
    prompts = [tokenise_prompt(pair, text) for text in texts]
    room = pair.context - max(map(len, prompts))
    lengths = [length for length in LENGTHS if length <= room] or [room]
    race_lanes(pair, lanes, prompts[0], min(lengths[0], FIRST))  # first calls
    seconds: dict[tuple[int, str], list[float]] = {place: [] for place in product(lengths, lanes)}
    for prompt in tqdm(prompts, desc="length", unit="prompt"):
        for trace in race_lanes(pair, lanes, prompt, lengths[-1]):
            written, clock = 0, 0.0
            waiting = list(lengths)
            for step in trace.steps:
                written, clock = written + len(step.burst), clock + step.total_seconds
                while waiting and written >= waiting[0]:
                    seconds[waiting.pop(0), trace.system].append(clock / written)
    return [
        {
            "tokens": length,
            "system": name,
            "s_per_token": statistics.median(found),
            "vs_baseline": statistics.median(compute_ratios(seconds[length, BASELINE], found)),
        }
        for (length, name), found in seconds.items()
    ]


def format_table(rows: list[dict]) -> str:
    """The rows for people."""
    head = f"{'tokens':>8}  {'system':<18}{'ms a token':>12}{'vs baseline':>13}"
    form = "{tokens:>8}  {system:<18}{ms:>12.2f}{vs_baseline:>12.2f}x"
    return "\n".join([head, *(form.format(**row, ms=1000 * row["s_per_token"]) for row in rows)])


def lanes_of(systems: str) -> tuple[str, ...]:
    """The baseline and the systems named, comma-separated. Raises `KeyError` or `ValueError` for what is no system."""
    return (BASELINE, *(find(name).name for name in systems.split(",") if name != BASELINE))


def main(options: Namespace) -> dict:
    prompts, lanes = first_prompts(options.domain, options.prompts), lanes_of(options.systems)
    pair = replace(load_pair_of_options(options), stop_ids=frozenset())
    rows = measure_by_length(pair, prompts, lanes)
    print(format_table(rows))
    return {"machine": pair.hardware, "pair": pair.title, "dtype": pair.dtype, "rows": rows}
