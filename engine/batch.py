"""Batched decoding: the loop of `engine.decode` for many prompts at once, one target forward a round. Knows no page and no clock.

A sequence that ends leaves the batch, so rounds get smaller. Plain decoding is the same with drafters that propose nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.decode import Round, cut
from engine.forward.batch import Batch
from engine.models.pairs import LoadedPair
from engine.record.costs import Costs
from engine.rounds.batch import BatchedRounds
from engine.rounds.round import HostRounds
from engine.rounds.timing import costs_of
from engine.sampling import Sampling
from engine.systems import System
from engine.target import Target
from engine.tree import LARGEST_TREE


@dataclass
class Sequence:
    """A text at work. `before` holds the seconds that are told with its next round."""

    number: int
    rounds: HostRounds
    position: int
    left: int
    before: dict[str, float]


def decode_together(
    pair: LoadedPair, system: System, prompts: list[list[int]], samplings: list[Sampling], max_new_tokens: int
) -> Iterator[tuple[int, Round]]:
    """Write up to `max_new_tokens` tokens after every prompt (at least one token each). Yields a prompt's number and its round.

    Each sequence has the system's own parts, and its own sampling. `auto` reckons with the costs of a batch of that size until the end.
    Closing the iterator frees every cache. Raises `ValueError` for a system that does not keep plain decoding's tokens, and when the
    pair does not allow it.
    """
    if system.guarantee != "tokens":
        raise ValueError(f"Batches are decoded with the rule token match, and {system.name} has {system.acceptance}.")
    capacity = min(pair.context, max(map(len, prompts)) + max_new_tokens) + LARGEST_TREE
    costs = shared(costs_of(pair, system.drafter), len(prompts)) if system.reads_costs else None
    shape = {"depth": system.depth, "width": system.width, "nodes": system.nodes}
    parts = [system.build(pair, capacity, **shape, costs=costs) for _ in prompts]
    features = parts[0][0].reads_features
    batch = Batch(pair.target, len(prompts), capacity, features)
    every = [
        HostRounds(Target(batch, capacity, features), *each, sampling)
        for each, sampling in zip(parts, samplings, strict=True)
    ]
    del parts
    rounds = BatchedRounds(batch, every)
    ends = [len(prompt) - 1 for prompt in prompts]
    read = rounds.begin(prompts, [min(end + max_new_tokens, pair.context - 1) for end in ends])
    running = [
        Sequence(number, each, end, max_new_tokens, {"prefill": seconds})
        for number, (each, end, seconds) in enumerate(zip(every, ends, read, strict=True))
    ]
    del every
    while running:
        for sequence, done in zip(list(running), rounds.next(), strict=True):
            path, bonus = done.verdict.path, done.verdict.bonus
            window = pair.context - 1 - sequence.position
            tokens = [done.tree.tokens[node] for node in path] + [bonus]
            burst, end = cut(tokens, pair.stop_ids, sequence.left, window)
            seconds = sequence.before | done.seconds
            if end:
                rounds.leave(sequence.rounds)
                running.remove(sequence)
            yield sequence.number, Round(sequence.position, done.tree, done.logits, done.verdict, burst, end, seconds)
            sequence.position, sequence.left, sequence.before = (
                sequence.position + len(tokens),
                sequence.left - len(burst),
                {},
            )


def shared(costs: Costs, size: int) -> Costs:
    """A sequence's share of the costs in a batch of that size, where all verify as many rows. Drafts are not shared."""
    return replace(costs, verify_ms={rows: costs.verify_at(size * rows) / size for rows in costs.verify_ms})
