"""The decode loop: round after round until the text ends. Everything in TreeRace is this loop with other rounds; plain decoding is it
with a drafter that proposes nothing. One text is a batch of one. Knows no page and no other lane.

What a round does is handed to it: `engine.rounds.round` grows, verifies, decides and commits with parts on the host,
`engine.rounds.round_gpu` with one graph on a GPU, `engine.rounds.batch` with one forward for many texts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from engine.contracts import Outcome, Rounds, RoundsTogether, Verdict
from engine.tree import DraftTree


@dataclass(frozen=True)
class Round:
    """One target forward and what came of it. `logits` is `[N, V]`; `seconds` is by phase; `end` is "" while decoding goes on.

    `replayed` is that of `engine.contracts.Outcome`.
    """

    position: int
    tree: DraftTree
    logits: torch.Tensor
    verdict: Verdict
    burst: list[int]
    end: str
    seconds: dict[str, float]
    replayed: int = 0


@dataclass(eq=False)
class Text:
    """A text at work: its prompt's number, its root's place, how many tokens may follow, and seconds that its next round tells."""

    number: int
    position: int
    left: int
    before: dict[str, float]


class Alone:
    """The rounds of one text, as those of a batch of one."""

    def __init__(self, rounds: Rounds):
        self.rounds = rounds

    def begin(self, prompts: list[list[int]], last: list[int]) -> list[float]:
        return [self.rounds.begin(prompts[0], last[0])]

    def next(self) -> list[Outcome]:
        return [self.rounds.next()]

    def leave(self, place: int) -> None:
        """Nothing is shared that could be left."""


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
    for _, done in decode_all(Alone(rounds), [prompt], max_new_tokens, stop_ids, context):
        yield done


def decode_all(
    rounds: RoundsTogether, prompts: list[list[int]], max_new_tokens: int, stop_ids: frozenset[int], context: int
) -> Iterator[tuple[int, Round]]:
    """`decode` for every prompt at once. Yields a prompt's number and its round. A text that ends leaves the rounds of the others."""
    ends = [len(prompt) - 1 for prompt in prompts]
    read = rounds.begin(prompts, [min(end + max_new_tokens, context - 1) for end in ends])
    begun = enumerate(zip(ends, read, strict=True))
    texts = [Text(number, end, max_new_tokens, {"prefill": seconds}) for number, (end, seconds) in begun]
    while texts:
        for text, done in zip(list(texts), rounds.next(), strict=True):
            path, bonus = done.verdict.path, done.verdict.bonus
            window = context - 1 - text.position  # tokens that still fit behind the root
            burst, end = cut([done.tree.tokens[node] for node in path] + [bonus], stop_ids, text.left, window)
            if end:
                rounds.leave(texts.index(text))
                texts.remove(text)
            seconds = text.before | done.seconds
            found = done.tree, done.logits, done.verdict
            yield text.number, Round(text.position, *found, burst, end, seconds, done.replayed)
            text.position, text.left, text.before = text.position + len(path) + 1, text.left - len(burst), {}
