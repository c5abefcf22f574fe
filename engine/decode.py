"""The decode loop: round after round until the text ends. Everything in TreeRace is this loop with other rounds; plain decoding is it
with a drafter that proposes nothing. One text is a batch of one. Knows no page and no other lane.

What a round does is handed to it: `engine.rounds.round` grows, verifies, decides and commits with parts on the host,
`engine.rounds.round_gpu` with one graph on a GPU, `engine.batch` with one forward for many texts.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.contracts import RoundOutcome, Rounds

DEBUG = os.environ.get("DEBUG", "") not in ("", "0")  # every round is printed on the error stream
Step = Callable[[list[Any]], list[RoundOutcome]]  # makes the next round of those lanes whose text goes on


@dataclass(frozen=True, kw_only=True)
class Round(RoundOutcome):
    """One target forward and what came of it, behind the root's `position`. `end` is "" while decoding goes on."""

    position: int
    burst: list[int]
    end: str


@dataclass(eq=False)
class RunningSequence:
    """A text at work: its prompt's number, its root's place, how many tokens may follow, and seconds that its next round tells."""

    number: int
    rounds: Rounds
    position: int
    left: int
    before: dict[str, float] = field(default_factory=dict)


def cut_burst(burst: list[int], stop_ids: frozenset[int], tokens_left: int, context_left: int) -> tuple[list[int], str]:
    """The burst up to its first stop token, then up to `tokens_left` tokens, then up to `context_left`; and why decoding ends here, if
    it does.
    """
    for index, token in enumerate(burst[:tokens_left]):
        if token in stop_ids:
            return burst[: index + 1], "stop"
    if len(burst) >= tokens_left:
        return burst[:tokens_left], "length"
    return burst[:context_left], "context" if len(burst) >= context_left else ""


def decode(
    rounds: Rounds, prompt: list[int], max_new_tokens: int, stop_ids: frozenset[int], context: int
) -> Iterator[Round]:
    """Write up to `max_new_tokens` tokens after `prompt` (at least one token), a burst a round. `context` is the model's window."""
    for _, done in decode_lanes_in_turn(
        [rounds], [prompt], max_new_tokens, stop_ids, context, lambda _: [rounds.run_round()]
    ):
        yield done


def decode_lanes_in_turn(
    lanes: Iterable[Rounds],
    prompts: list[list[int]],
    max_new_tokens: int,
    stop_ids: frozenset[int],
    context: int,
    step: Step,
) -> Iterator[tuple[int, Round]]:
    """`decode` for every prompt at once, of `max_new_tokens` tokens each. Yields a prompt's number and its round."""
    numbered = enumerate(zip(lanes, prompts, strict=True))
    texts = [RunningSequence(number, rounds, len(prompt) - 1, max_new_tokens) for number, (rounds, prompt) in numbered]
    for text, prompt in zip(texts, prompts, strict=True):
        text.before = {"prefill": text.rounds.begin(prompt, min(text.position + max_new_tokens, context - 1))}
    while texts:
        for text, done in zip(list(texts), step([text.rounds for text in texts]), strict=True):
            path, bonus = done.verdict.path, done.verdict.bonus
            window = context - 1 - text.position  # tokens that still fit behind the root
            burst, end = cut_burst([done.tree.tokens[node] for node in path] + [bonus], stop_ids, text.left, window)
            if end:
                texts.remove(text)
            found = vars(done) | {"seconds": text.before | done.seconds}
            result = Round(**found, position=text.position, burst=burst, end=end)
            if DEBUG:
                print(format_round_timing_line(text.number, result), file=sys.stderr, flush=True)
            yield text.number, result
            text.position, text.left, text.before = text.position + len(path) + 1, text.left - len(burst), {}


def format_round_timing_line(number: int, round: Round) -> str:
    """A line on a round of the text of that number: its tree, its burst and its phases in milliseconds."""
    depth, kept = max(round.tree.depth), len(round.verdict.path)
    phases = ", ".join(f"{name} {1000 * seconds:.2f}" for name, seconds in round.seconds.items())
    size = f"{len(round.tree) - 1} guesses to depth {depth}, {kept} kept, {len(round.burst)} tokens"
    return f"text {number} at {round.position}: {size}; ms: {phases}{round.end and f'; end: {round.end}'}"
