"""The decode loop: round after round until the text ends. Everything in TreeRace is this loop with other rounds; plain decoding is it
with a drafter that proposes nothing. One text is a batch of one. Knows no page and no other lane.

What a round does is handed to it: `engine.rounds.round` grows, verifies, decides and commits with parts on the host,
`engine.rounds.round_gpu` with one graph on a GPU, `engine.batch` with one forward for many texts.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from engine.contracts import RoundOutcome, RoundRunner

DEBUG = os.environ.get("DEBUG", "") not in ("", "0")  # every round is printed on the error stream
RunNextRounds = Callable[
    [list[RoundRunner]], list[RoundOutcome]
]  # makes the next round of those lanes whose text goes on


@dataclass(frozen=True, kw_only=True)
class Round(RoundOutcome):
    """One target forward and what came of it, behind the root's `position`. `end` is "" while decoding goes on."""

    position: int
    burst: list[int]
    end: str


@dataclass(eq=False)
class RunningSequence:
    """A text at work: its prompt's number, its root's place, how many tokens may follow, and seconds that its next round tells."""

    prompt_index: int
    rounds: RoundRunner
    root_position: int
    tokens_left: int
    seconds_before_next_round: dict[str, float] = field(default_factory=dict)


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
    rounds: RoundRunner, prompt: list[int], max_new_tokens: int, stop_ids: frozenset[int], context_length: int
) -> Iterator[Round]:
    """Write up to `max_new_tokens` tokens after `prompt` (at least one token), a burst a round. `context_length` is the model's
    window.
    """
    for _, done in decode_prompts_in_lockstep(
        [rounds], [prompt], max_new_tokens, stop_ids, context_length, lambda _: [rounds.run_round()]
    ):
        yield done


def decode_prompts_in_lockstep(
    lane_rounds: Iterable[RoundRunner],
    prompts: list[list[int]],
    max_new_tokens: int,
    stop_ids: frozenset[int],
    context_length: int,
    run_next_rounds: RunNextRounds,
) -> Iterator[tuple[int, Round]]:
    """`decode` for every prompt at once, of `max_new_tokens` tokens each. Yields a prompt's number and its round."""
    numbered = enumerate(zip(lane_rounds, prompts, strict=True))
    texts = [RunningSequence(number, rounds, len(prompt) - 1, max_new_tokens) for number, (rounds, prompt) in numbered]
    for text, prompt in zip(texts, prompts, strict=True):
        text.seconds_before_next_round = {
            "prefill": text.rounds.prefill_and_return_seconds(
                prompt, min(text.root_position + max_new_tokens, context_length - 1)
            )
        }
    while texts:
        for text, done in zip(list(texts), run_next_rounds([text.rounds for text in texts]), strict=True):
            path, bonus = done.verdict.path, done.verdict.bonus
            window = context_length - 1 - text.root_position  # tokens that still fit behind the root
            burst, end = cut_burst(
                [done.tree.tokens[node] for node in path] + [bonus], stop_ids, text.tokens_left, window
            )
            if end:
                texts.remove(text)
            found = vars(done) | {"seconds": text.seconds_before_next_round | done.seconds}
            result = Round(**found, position=text.root_position, burst=burst, end=end)
            if DEBUG:
                print(format_round_timing_line(text.prompt_index, result), file=sys.stderr, flush=True)
            yield text.prompt_index, result
            text.root_position, text.tokens_left, text.seconds_before_next_round = (
                text.root_position + len(path) + 1,
                text.tokens_left - len(burst),
                {},
            )


def format_round_timing_line(prompt_index: int, round: Round) -> str:
    """A line on a round of the text of that number: its tree, its burst and its phases in milliseconds."""
    depth, kept = max(round.tree.depth), len(round.verdict.path)
    phases = ", ".join(f"{name} {1000 * seconds:.2f}" for name, seconds in round.seconds.items())
    size = f"{len(round.tree) - 1} guesses to depth {depth}, {kept} kept, {len(round.burst)} tokens"
    return f"text {prompt_index} at {round.position}: {size}; ms: {phases}{round.end and f'; end: {round.end}'}"
