"""The decode loop: round after round until the text ends. Everything in TreeRace is this loop with other rounds; plain decoding is it
with a drafter that proposes nothing. Knows no text, no page and no other lane.

What a round does is handed to it: `engine.rounds.round` grows, verifies, decides and commits with parts on the host,
`engine.rounds.round_gpu` with one graph on a GPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from engine.contracts import Rounds, Verdict
from engine.tree import DraftTree


@dataclass(frozen=True)
class Round:
    """One target forward and what came of it. `logits` is `[N, V]`; `seconds` is by phase; `end` is "" while decoding goes on."""

    position: int
    tree: DraftTree
    logits: torch.Tensor
    verdict: Verdict
    burst: list[int]
    end: str
    seconds: dict[str, float]


def cut(burst: list[int], stop_ids: frozenset[int], left: int, window: int) -> tuple[list[int], str]:
    """The burst up to its first stop token, then up to `left` tokens, then up to `window`; and why decoding ends here, if it does."""
    for index, token in enumerate(burst[:left]):
        if token in stop_ids:
            return burst[: index + 1], "stop"
    if len(burst) >= left:
        return burst[:left], "length"
    return burst[:window], "context" if len(burst) >= window else ""


def decode(
    rounds: Rounds, prompt: list[int], max_new_tokens: int, stop_ids: frozenset[int], context: int
) -> Iterator[Round]:
    """Write up to `max_new_tokens` tokens after `prompt` (at least one token), a burst a round. `context` is the model's window."""
    position, left, end = len(prompt) - 1, max_new_tokens, ""
    before = {"prefill": rounds.begin(prompt, last=min(position + left, context - 1))}
    while not end:
        done = rounds.next()
        path, bonus = done.verdict.path, done.verdict.bonus
        window = context - 1 - position  # tokens that still fit behind the root
        burst, end = cut([done.tree.tokens[node] for node in path] + [bonus], stop_ids, left, window)
        yield Round(position, done.tree, done.logits, done.verdict, burst, end, before | done.seconds)
        position, left, before = position + len(path) + 1, left - len(burst), {}
