"""`python -m engine growth`: how cost grows with the tokens written, the tree, the context, the model and the number of races.

Within a part everything that is compared runs interleaved in one process; figures are medians. Parts:
  memory   MiB of this process after each of many short races; it runs first, because memory given back by others would hide growth
  tokens   seconds a token up to 128 ... 900 written tokens, prefill included, of the baseline and of systems
  tree     ms of a verification by its number of nodes, behind a context of 128 tokens
  context  ms a round and a token behind a prompt of 64 ... 900 tokens, prefill excluded
Lengths and contexts go as far as the pair's window. Except in memory, stop tokens are ignored, so that every text gets its full length.
Each part prints a table for people when it is done. The last line is one JSON object. Ctrl-C ends the run with the parts that are done.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tqdm import tqdm

from engine.measure.footprint import resident_mib
from engine.measure.options import add_pair, first_prompts, held_out, load_given, refusals
from engine.models.chat import prompt_tokens
from engine.models.pairs import LoadedPair
from engine.race import Lane, Race, Settings, to_their_ends
from engine.rounds.timing import binary, interleaved
from engine.sampling import Sampling
from engine.systems import find
from engine.target import Target
from engine.tree import LARGEST_TREE

LENGTHS = (128, 256, 512, 900)
CONTEXTS = (64, 128, 256, 512, 900)
NODES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
BEHIND = 128  # tokens of context before a timed forward
SPAN = 32  # tokens written at each context
RACE_TOKENS = 16
FEWEST_RACES = 30  # the first ten warm up, the second ten are compared with the last ten


@dataclass(frozen=True)
class Run:
    """What every part may need. `systems` come without the baseline."""

    pair: LoadedPair
    prompts: list[str]
    systems: list[str]
    repeats: int
    races: int

    @property
    def lanes(self) -> tuple[str, ...]:
        return ("vanilla", *self.systems)

    @cached_property
    def endless(self) -> LoadedPair:
        """The pair without stop tokens. It is always the same object, because measurements are kept by pair."""
        return replace(self.pair, stop_ids=frozenset())

    def race(self, prompt: list[int], tokens: int) -> list[Lane]:
        """The lanes after writing exactly `tokens` tokens behind the prompt, greedily. The lane whose clock is behind goes next.

        Raises `ValueError` when prompt and tokens do not fit the context window.
        """
        if len(prompt) + tokens > self.pair.context:
            raise ValueError(
                f"{len(prompt)} tokens of prompt and {tokens} new ones do not fit the context window of {self.pair.context}. "
                "Ask for less of either."
            )
        settings = Settings("forced", self.lanes, max_new_tokens=tokens)
        return to_their_ends([Lane(self.endless, find(name), settings, Sampling(), prompt) for name in self.lanes])

    def long_prompt(self, first: int, length: int) -> list[int]:
        """The held-out texts in turn from number `first` on, repeated as needed, cut to `length` tokens."""
        ids: list[int] = []
        while len(ids) < length:
            ids += self.pair.tokenizer(self.prompts[first % len(self.prompts)] + "\n\n")["input_ids"]
            first += 1
        return ids[:length]


def by_tokens(run: Run) -> list[dict]:
    """Rows by length and system: seconds a token up to there, prefill included, and the ratio to the baseline's.

    One long race for each prompt gives all lengths.
    """
    prompts = [prompt_tokens(run.pair, prompt) for prompt in run.prompts]
    room = run.pair.context - max(map(len, prompts))
    lengths = [length for length in LENGTHS if length <= room] or [room]
    run.race(prompts[0], min(lengths[0], SPAN))  # first calls
    seconds: dict[tuple[int, str], list[float]] = {(length, name): [] for length in lengths for name in run.lanes}
    for prompt in tqdm(prompts, desc="tokens", unit="prompt"):
        for lane in run.race(prompt, lengths[-1]):
            written, clock = 0, 0.0
            waiting = list(lengths)
            for step in lane.trace.steps:
                written, clock = written + len(step.burst), clock + step.total_seconds
                while waiting and written >= waiting[0]:
                    seconds[waiting.pop(0), lane.system.name].append(clock / written)
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
    return statistics.median(b / m for b, m in zip(base, mine, strict=True))


def verification(target: Target, nodes: int) -> Callable[[], object]:
    """A verification of a tree of so many nodes, ready to be timed."""
    tree = binary(nodes)
    return lambda: target.verify(tree)


def by_tree(run: Run) -> list[dict]:
    """Rows by number of nodes: ms of a verification, and its ratio to one node's."""
    target = Target(run.pair.target, BEHIND + LARGEST_TREE)
    target.prefill(list(range(BEHIND)))
    tasks = {nodes: verification(target, nodes) for nodes in NODES}
    with run.pair.target.undisturbed():
        ms = interleaved(run.pair.target.device, tasks, run.repeats)
    return [{"nodes": nodes, "verify_ms": ms[nodes], "vs_one": ms[nodes] / ms[1]} for nodes in NODES]


def by_context(run: Run) -> list[dict]:
    """Rows by context and system: ms a round and a token there, tau, and how much they grew since the smallest context."""
    contexts = [context for context in CONTEXTS if context + SPAN <= run.pair.context]
    if not contexts:
        raise ValueError(
            f"The smallest context, {CONTEXTS[0]} tokens and {SPAN} new ones, does not fit the window of {run.pair.context}. "
            "Leave the part context out."
        )
    run.race(run.long_prompt(0, contexts[0]), SPAN)  # first calls
    rounds: dict[tuple[int, str], list[float]] = {(context, name): [] for context in contexts for name in run.lanes}
    tokens: dict[tuple[int, str], list[float]] = {key: [] for key in rounds}
    taus: dict[tuple[int, str], list[float]] = {key: [] for key in rounds}
    for first in tqdm(range(len(run.prompts)), desc="context", unit="prompt"):
        for context in contexts:
            for lane in run.race(run.long_prompt(first, context), SPAN):
                trace, key = lane.trace, (context, lane.system.name)
                decoding = 1000 * trace.seconds * (1 - trace.share("prefill"))
                rounds[key].append(decoding / trace.forwards)
                tokens[key].append(decoding / len(trace.tokens))
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


def by_races(run: Run) -> list[dict]:
    """One row: resident MiB after each short race, and by how much the last ten exceed the second ten."""
    if run.races < FEWEST_RACES:
        raise ValueError(
            f"--races must be at least {FEWEST_RACES}, got {run.races}: the second ten are compared with the last ten."
        )
    mib = []
    for index in tqdm(range(run.races), desc="memory", unit="race"):
        settings = Settings(run.prompts[index % len(run.prompts)], run.lanes, max_new_tokens=RACE_TOKENS, seed=index)
        for _ in Race(run.pair, settings).run():
            pass
        mib.append(resident_mib())
    second, last = statistics.median(mib[10:20]), statistics.median(mib[-10:])
    return [
        {
            "races": run.races,
            "first": mib[0],
            "second_ten": second,
            "last_ten": last,
            "growth": last - second,
            "mib": mib,
        }
    ]


PARTS: dict[str, Callable[[Run], list[dict]]] = {
    "memory": by_races,
    "tokens": by_tokens,
    "tree": by_tree,
    "context": by_context,
}


def table(part: str, rows: list[dict]) -> str:
    """A part's rows for people."""
    if part == "tokens":
        head = f"{'tokens':>8}  {'system':<18}{'ms a token':>12}{'vs baseline':>13}"
        lines = [
            f"{row['tokens']:>8}  {row['system']:<18}{1000 * row['s_per_token']:>12.2f}{row['vs_baseline']:>12.2f}x"
            for row in rows
        ]
    elif part == "tree":
        head = f"{'nodes':>8}{'verify ms':>12}{'t(N)/t(1)':>12}"
        lines = [f"{row['nodes']:>8}{row['verify_ms']:>12.2f}{row['vs_one']:>12.2f}" for row in rows]
    elif part == "context":
        head = f"{'context':>8}  {'system':<18}{'ms a round':>12}{'grew':>8}{'ms a token':>12}{'grew':>8}{'tau':>7}"
        lines = [
            f"{row['context']:>8}  {row['system']:<18}{row['round_ms']:>12.2f}{row['round_growth']:>7.2f}x"
            f"{row['token_ms']:>12.2f}{row['token_growth']:>7.2f}x{row['tau']:>7.2f}"
            for row in rows
        ]
    else:
        [row] = rows
        head = f"{'races':>8}{'first MiB':>12}{'second ten':>12}{'last ten':>12}{'growth MiB':>12}"
        lines = [
            f"{row['races']:>8}{row['first']:>12.1f}{row['second_ten']:>12.1f}{row['last_ten']:>12.1f}{row['growth']:>+12.1f}"
        ]
    return "\n".join([part, head, *lines])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m engine growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--systems", default="tree,auto", help="beside the baseline, comma-separated; tree,auto if left out"
    )
    parser.add_argument(
        "--domain", choices=held_out(), default="stories", help="of the parts tokens, context and memory"
    )
    parser.add_argument("--prompts", type=int, default=5, help="held-out prompts of the parts tokens and context")
    parser.add_argument("--repeats", type=int, default=25, help="timings of the part tree; the median counts")
    parser.add_argument("--races", type=int, default=100, help="of the part memory")
    add_pair(parser)
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}.")
    figures: dict[str, Any] = {}
    interrupted = False
    try:
        with refusals(parser):
            prompts = first_prompts(options.domain, options.prompts)
            pair = load_given(options)
            beside = [find(name).name for name in options.systems.split(",") if name != "vanilla"]
            run = Run(pair, prompts, beside, options.repeats, options.races)
            figures |= {"machine": pair.hardware, "pair": pair.title, "dtype": pair.dtype, "parts": {}}
            for part in filter(options.parts.__contains__, PARTS):
                rows = PARTS[part](run)
                figures["parts"][part] = rows
                print(table(part, rows), end="\n\n", flush=True)
    except KeyboardInterrupt:
        interrupted = True
    print(json.dumps(figures | {"interrupted": interrupted}))
    if interrupted:
        sys.exit(130)
