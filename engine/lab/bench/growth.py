"""`python -m engine bench --by length` and `--by context`: how the time of a token grows with the text before it.

All lanes of a prompt take turns in one process; figures are medians over prompts. Stop tokens are ignored, so that every text gets its
full length. Lengths and contexts go as far as the pair's window.
  length   seconds a token up to 128 ... 900 written tokens, prefill included
  context  ms a round and a token behind a prompt of 64 ... 900 tokens, prefill excluded
"""

import statistics
from argparse import Namespace
from dataclasses import dataclass, replace
from functools import cached_property

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


@dataclass(frozen=True)
class GrowthRaces:
    """What is raced: the baseline first among the lanes."""

    pair: LoadedPair
    prompts: list[str]
    lanes: tuple[str, ...]

    @cached_property
    def endless(self) -> LoadedPair:
        """The pair without stop tokens. It is always the same object, because measurements are kept by pair."""
        return replace(self.pair, stop_ids=frozenset())

    def race(self, prompt: list[int], tokens: int) -> list[Trace]:
        """What the lanes did in writing exactly `tokens` tokens behind the prompt, greedily. The lane whose clock is behind goes next.

        Raises `ValueError` when prompt and tokens do not fit the context window.
        """
        if len(prompt) + tokens > self.pair.context:
            raise ValueError(
                f"{len(prompt)} tokens of prompt and {tokens} new ones do not fit the context window of {self.pair.context}. "
                "Ask for less of either."
            )
        return Race(self.endless, Settings("forced", self.lanes, max_new_tokens=tokens), prompt).traces()

    def long_prompt(self, first: int, length: int) -> list[int]:
        """The held-out texts in turn from number `first` on, repeated as needed, cut to `length` tokens."""
        ids: list[int] = []
        while len(ids) < length:
            ids += self.pair.tokenizer(self.prompts[first % len(self.prompts)] + "\n\n")["input_ids"]
            first += 1
        return ids[:length]


def by_length(run: GrowthRaces) -> list[dict]:
    """Rows by length and system: seconds a token up to there, prefill included, and the ratio to the baseline's.

    One long race for each prompt gives all lengths.
    """
    prompts = [prompt_tokens(run.pair, prompt) for prompt in run.prompts]
    room = run.pair.context - max(map(len, prompts))
    lengths = [length for length in LENGTHS if length <= room] or [room]
    run.race(prompts[0], min(lengths[0], SPAN))  # first calls
    seconds: dict[tuple[int, str], list[float]] = {(length, name): [] for length in lengths for name in run.lanes}
    for prompt in tqdm(prompts, desc="length", unit="prompt"):
        for trace in run.race(prompt, lengths[-1]):
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
            "s_per_token": statistics.median(seconds[length, name]),
            "vs_baseline": ratio(seconds[length, "vanilla"], seconds[length, name]),
        }
        for length in lengths
        for name in run.lanes
    ]


def ratio(base: list[float], mine: list[float]) -> float:
    """The median over prompts of how many times faster `mine` is."""
    return statistics.median(ratios(base, mine))


def by_context(run: GrowthRaces) -> list[dict]:
    """Rows by context and system: ms a round and a token there, tau, and how much they grew since the smallest context."""
    contexts = [context for context in CONTEXTS if context + SPAN <= run.pair.context]
    if not contexts:
        raise ValueError(
            f"The smallest context, {CONTEXTS[0]} tokens and {SPAN} new ones, does not fit the window of {run.pair.context}. "
            "Measure by length."
        )
    run.race(run.long_prompt(0, contexts[0]), SPAN)  # first calls
    rounds: dict[tuple[int, str], list[float]] = {(context, name): [] for context in contexts for name in run.lanes}
    tokens: dict[tuple[int, str], list[float]] = {key: [] for key in rounds}
    taus: dict[tuple[int, str], list[float]] = {key: [] for key in rounds}
    for first in tqdm(range(len(run.prompts)), desc="context", unit="prompt"):
        for context in contexts:
            for trace in run.race(run.long_prompt(first, context), SPAN):
                key = context, trace.system
                rounds[key].append(1000 * trace.decode_seconds / trace.forwards)
                tokens[key].append(1000 * trace.decode_seconds_per_token)
                taus[key].append(trace.tau)
    smallest = contexts[0]
    return [
        {
            "context": context,
            "system": name,
            "round_ms": statistics.median(rounds[context, name]),
            "token_ms": statistics.median(tokens[context, name]),
            "tau": statistics.median(taus[context, name]),
            "round_growth": 1 / ratio(rounds[smallest, name], rounds[context, name]),
            "token_growth": 1 / ratio(tokens[smallest, name], tokens[context, name]),
        }
        for context in contexts
        for name in run.lanes
    ]


def table(by: str, rows: list[dict]) -> str:
    """The rows for people."""
    if by == "length":
        head = f"{'tokens':>8}  {'system':<18}{'ms a token':>12}{'vs baseline':>13}"
        lines = [
            f"{row['tokens']:>8}  {row['system']:<18}{1000 * row['s_per_token']:>12.2f}{row['vs_baseline']:>12.2f}x"
            for row in rows
        ]
    else:
        head = f"{'context':>8}  {'system':<18}{'ms a round':>12}{'grew':>8}{'ms a token':>12}{'grew':>8}{'tau':>7}"
        lines = [
            f"{row['context']:>8}  {row['system']:<18}{row['round_ms']:>12.2f}{row['round_growth']:>7.2f}x"
            f"{row['token_ms']:>12.2f}{row['token_growth']:>7.2f}x{row['tau']:>7.2f}"
            for row in rows
        ]
    return "\n".join([head, *lines])


def lanes_of(systems: str) -> tuple[str, ...]:
    """The baseline and the systems named, comma-separated. Raises `KeyError` or `ValueError` for what is no system."""
    return (BASELINE, *(find(name).name for name in systems.split(",") if name != BASELINE))


def main(options: Namespace) -> dict:
    prompts, lanes = first_prompts(options.domain, options.prompts), lanes_of(options.systems)
    run = GrowthRaces(load_given(options), prompts, lanes)
    rows = by_length(run) if options.by == "length" else by_context(run)
    print(table(options.by, rows))
    return {"machine": run.pair.hardware, "pair": run.pair.title, "dtype": run.pair.dtype, "rows": rows}
