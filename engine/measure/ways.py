"""Ways: what writes a text beside the lanes, and what one call of it wrote. Knows seconds, tokens and texts; knows no engine."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from engine.decode import Round, decode
from engine.models.pairs import LoadedPair
from engine.race import BASELINE
from engine.record.trace import Trace, first_divergence
from engine.sampling import Sampling
from engine.systems import System, resolve_system_name
from engine.tree import LARGEST_TREE


@dataclass(frozen=True)
class WrittenText:
    """What one call wrote, and the seconds it took, prefill included.

    A server's tokens are not known. It sends a `text` of `server_token_count` tokens, and may tell its `server_forward_count`.
    """

    tokens: list[int]
    seconds: float
    text: str | None = None
    server_token_count: int = 0
    server_forward_count: int | None = None

    @property
    def seconds_per_token(self) -> float:
        return self.seconds / (len(self.tokens) if self.text is None else self.server_token_count)


# (pair, prompt_ids, max_tokens, temperature) -> new tokens, or what was written by one that knows its seconds itself
GenerateFunction = Callable[[LoadedPair, list[int], int, float], list[int] | WrittenText]
FIRST_TOKENS = 8  # of a first call, which nobody times


def run_and_time_generate_function(
    pair: LoadedPair, generate: GenerateFunction, prompt_ids: list[int], max_tokens: int, temperature: float
) -> WrittenText:
    start = time.perf_counter()
    written = generate(pair, prompt_ids, max_tokens, temperature)  # a list, so the device is done
    return written if isinstance(written, WrittenText) else WrittenText(written, time.perf_counter() - start)


def rotate_names(names: Iterable[str], first_index: int) -> list[str]:
    """The names, begun with another one every turn, so that each takes every place."""
    found = list(names)
    at = first_index % len(found)
    return found[at:] + found[:at]


def iterate_rounds(
    pair: LoadedPair, system: System, prompt_ids: list[int], max_tokens: int, sampling: Sampling
) -> Iterator[Round]:
    """A system's rounds behind the prompt in its own shape, up to so many tokens. They have no lane, no clock and no trace."""
    capacity = min(pair.context, len(prompt_ids) + max_tokens) + LARGEST_TREE
    rounds = system.open_rounds(pair, capacity, system.default_shape, sampling)
    return decode(rounds, prompt_ids, max_tokens, pair.stop_ids, pair.context)


def decode_plainly(pair: LoadedPair, prompt_ids: list[int], max_tokens: int, sampling: Sampling) -> list[int]:
    """The tokens that plain decoding writes behind the prompt, up to so many."""
    return [
        token
        for done in iterate_rounds(pair, resolve_system_name(BASELINE), prompt_ids, max_tokens, sampling)
        for token in done.burst
    ]


def correct_token_counts_of_equal_texts(
    plain_traces: list[Trace], written_texts: list[WrittenText]
) -> list[WrittenText]:
    """What others wrote, where a text that is plain decoding's has as many tokens as that. A server may count some that never came."""
    return [
        replace(each, server_token_count=len(trace.tokens))
        if each.text is not None and each.text == trace.text
        else each
        for trace, each in zip(plain_traces, written_texts, strict=True)
    ]


def tau_reported_by_server(written_texts: list[WrittenText]) -> float | None:
    """Tokens a pass over all that servers sent, None where a pass is not known and where there was none."""
    passes = [each.server_forward_count for each in written_texts if each.server_forward_count is not None]
    if len(passes) < len(written_texts) or not sum(passes):
        return None
    return sum(each.server_token_count for each in written_texts) / sum(passes)


def list_first_differences_from_plain(plain_traces: list[Trace], written_texts: list[WrittenText]) -> list[int]:
    """Where texts part from plain decoding's, counted from 1 in tokens or characters; nothing for equal ones."""
    places = []
    for trace, each in zip(plain_traces, written_texts, strict=True):
        ours, other = (trace.tokens, each.tokens) if each.text is None else (trace.text, each.text)
        if (at := first_divergence(ours, other)) is not None:
            places.append(at + 1)
    return places


def describe_divergence(engine_name: str, plain_traces: list[Trace], written_texts: list[WrittenText]) -> str:
    """A sentence on where an engine's greedy texts part from plain decoding's; "" where none does."""
    places = list_first_differences_from_plain(plain_traces, written_texts)
    if not places:
        return ""
    unit = "token" if written_texts[0].text is None else "character"
    prompts = f"{len(places)} of {len(plain_traces)} prompts"
    return f"{engine_name} writes another text for {prompts}, from {unit} {min(places)} on at the earliest."
