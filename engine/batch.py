"""Batches: the parts of many texts. `engine.decode` writes these together with one target forward a round. Knows no page, no clock."""

from collections.abc import Iterator
from dataclasses import replace

from engine.decode import Round, decode_all
from engine.forward.batch import Batch
from engine.models.pairs import LoadedPair
from engine.record.costs import Costs
from engine.rounds.batch import BatchedRounds
from engine.rounds.round import HostRounds
from engine.sampling import Sampling
from engine.systems import System
from engine.target import Target
from engine.tree import LARGEST_TREE


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
    costs = shared(system.costs(pair), len(prompts)) if system.reads_costs else None
    parts = [system.build(pair, capacity, **system.shape(pair), costs=costs) for _ in prompts]
    features = parts[0][0].reads_features
    batch = Batch(pair.target, len(prompts), capacity, features)
    rounds = BatchedRounds(
        batch,
        [
            HostRounds(Target(batch, capacity, features), *each, sampling)
            for each, sampling in zip(parts, samplings, strict=True)
        ],
    )
    del parts  # a sequence that leaves frees its own
    yield from decode_all(rounds, prompts, max_new_tokens, pair.stop_ids, pair.context)


def shared(costs: Costs, size: int) -> Costs:
    """A sequence's share of the costs in a batch of that size, where all verify as many rows. Drafts are not shared."""
    return replace(costs, verify_ms={rows: costs.verify_at(size * rows) / size for rows in costs.verify_ms})
