"""`python -m engine bench --by length` and `--by context`: how the time of a token grows with the text before it.

All lanes of a prompt take turns in one process; figures are medians over prompts. Stop tokens are ignored, so that every text gets its
full length. Lengths and contexts go as far as the pair's window.
  length   seconds a token up to 128 ... 900 written tokens, prefill included
  context  ms a round and a token behind a prompt of 64 ... 900 tokens, prefill excluded
"""

import statistics
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from itertools import product

from tqdm import tqdm

from engine.measure.options import first_prompts, load_given
from engine.measure.verdict import ratios
from engine.models.chat import prompt_tokens
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Race, Settings
from engine.record.trace import Trace
from engine.systems import find

LENGTHS = (128, 256, 512, 900)
CONTEXTS = (64, 128, 256, 512, 900)
SPAN = 32  # tokens written at each context


def race(pair: LoadedPair, lanes: tuple[str, ...], prompt: list[int], tokens: int) -> list[Trace]:
    """What the lanes did in writing `tokens` tokens behind the prompt, greedily. Raises `ValueError` where they do not fit."""
    if len(prompt) + tokens > pair.context:
        raise ValueError(
            f"{len(prompt)} tokens of prompt and {tokens} new ones do not fit the context window of {pair.context}. "
            "Ask for less of either."
        )
    return Race(pair, Settings("forced", lanes, max_new_tokens=tokens), prompt).traces()


def long_prompt(pair: LoadedPair, prompts: list[str], first: int, length: int) -> list[int]:
    """The held-out texts in turn from number `first` on, repeated as needed, cut to `length` tokens."""
    ids: list[int] = []
    while len(ids) < length:
        ids += pair.tokenizer(prompts[first % len(prompts)] + "\n\n")["input_ids"]
        first += 1
    return ids[:length]


def by_length(pair: LoadedPair, texts: list[str], lanes: tuple[str, ...]) -> list[dict]:
    """Rows by length and system: seconds a token up to there, prefill included, and the ratio to the baseline's."""
    prompts = [prompt_tokens(pair, text) for text in texts]
    room = pair.context - max(map(len, prompts))
    lengths = [length for length in LENGTHS if length <= room] or [room]
    race(pair, lanes, prompts[0], min(lengths[0], SPAN))  # first calls
    seconds: dict[tuple[int, str], list[float]] = {place: [] for place in product(lengths, lanes)}
    for prompt in tqdm(prompts, desc="length", unit="prompt"):
        for trace in race(pair, lanes, prompt, lengths[-1]):
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
            "vs_baseline": statistics.median(ratios(seconds[length, BASELINE], found)),
        }
        for (length, name), found in seconds.items()
    ]


def round_ms(trace: Trace) -> float:
    return 1000 * trace.decode_seconds / trace.forwards


def token_ms(trace: Trace) -> float:
    return 1000 * trace.decode_seconds_per_token


def growth(ms: Callable[[Trace], float], least: list[Trace], here: list[Trace]) -> float:
    """The median over prompts of how many times as long it takes here."""
    return 1 / statistics.median(ratios([*map(ms, least)], [*map(ms, here)]))


def by_context(pair: LoadedPair, texts: list[str], lanes: tuple[str, ...]) -> list[dict]:
    """Rows by context and system: ms a round and a token there, tau, and how much they grew since the smallest context."""
    contexts = [context for context in CONTEXTS if context + SPAN <= pair.context]
    if not contexts:
        raise ValueError(
            f"The smallest context, {CONTEXTS[0]} tokens and {SPAN} new ones, does not fit the window of {pair.context}. "
            "Measure by length."
        )
    race(pair, lanes, long_prompt(pair, texts, 0, contexts[0]), SPAN)  # first calls
    raced: dict[tuple[int, str], list[Trace]] = {place: [] for place in product(contexts, lanes)}
    for first in tqdm(range(len(texts)), desc="context", unit="prompt"):
        for context in contexts:
            for trace in race(pair, lanes, long_prompt(pair, texts, first, context), SPAN):
                raced[context, trace.system].append(trace)
    return [
        {
            "context": context,
            "system": name,
            "round_ms": statistics.median(map(round_ms, traces)),
            "token_ms": statistics.median(map(token_ms, traces)),
            "tau": statistics.median(trace.tau for trace in traces),
            "round_growth": growth(round_ms, raced[contexts[0], name], traces),
            "token_growth": growth(token_ms, raced[contexts[0], name], traces),
        }
        for (context, name), traces in raced.items()
    ]


def table(by: str, rows: list[dict]) -> str:
    """The rows for people."""
    if by == "length":
        head = f"{'tokens':>8}  {'system':<18}{'ms a token':>12}{'vs baseline':>13}"
        form = "{tokens:>8}  {system:<18}{ms:>12.2f}{vs_baseline:>12.2f}x"
    else:
        head = f"{'context':>8}  {'system':<18}{'ms a round':>12}{'grew':>8}{'ms a token':>12}{'grew':>8}{'tau':>7}"
        form = "{context:>8}  {system:<18}{round_ms:>12.2f}{round_growth:>7.2f}x{token_ms:>12.2f}{token_growth:>7.2f}x{tau:>7.2f}"
    return "\n".join([head, *(form.format(**row, ms=1000 * row.get("s_per_token", 0)) for row in rows)])


def lanes_of(systems: str) -> tuple[str, ...]:
    """The baseline and the systems named, comma-separated. Raises `KeyError` or `ValueError` for what is no system."""
    return (BASELINE, *(find(name).name for name in systems.split(",") if name != BASELINE))


def main(options: Namespace) -> dict:
    prompts, lanes = first_prompts(options.domain, options.prompts), lanes_of(options.systems)
    pair = replace(load_given(options), stop_ids=frozenset())
    rows = (by_length if options.by == "length" else by_context)(pair, prompts, lanes)
    print(table(options.by, rows))
    return {"machine": pair.hardware, "pair": pair.title, "dtype": pair.dtype, "rows": rows}
