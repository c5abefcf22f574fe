"""Batches: many texts, which `engine.decode` writes with one target forward a round. Knows no page, no clock.

Drafts grow sequence by sequence; an engine that serves models would batch them too. So where drafts are forwards, a batch gains less
here than it could.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from engine.contracts import FREE, RoundOutcome
from engine.decode import Round, decode_prompts_in_lockstep
from engine.forward.batch import RowRequest, SharedForwardBatch
from engine.models.pairs import LoadedPair
from engine.record.costs import Costs
from engine.rounds.round import HostRoundRunner, PhaseStopwatch
from engine.sampling import Sampling
from engine.systems import System
from engine.target import Target
from engine.tree import LARGEST_TREE


def decode_batch_round_by_round(
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
    costs = (
        divide_costs_by_batch_size(system.get_or_measure_costs(pair), len(prompts))
        if system.needs_costs(pair)
        else FREE
    )
    parts = [system.build_parts(pair, capacity, **system.best_shape_for(pair), costs=costs) for _ in prompts]
    features = parts[0][0].reads_features
    batch = SharedForwardBatch(pair.target, len(prompts), capacity, features)
    begun = zip(parts, samplings, strict=True)
    del parts  # a sequence that ends frees its own
    sequences = (HostRoundRunner(Target(batch, capacity, features), *each, sampling) for each, sampling in begun)
    step = partial(run_round_of_every_sequence, batch)
    yield from decode_prompts_in_lockstep(sequences, prompts, max_new_tokens, pair.stop_ids, pair.context, step)


@torch.inference_mode()
def run_round_of_every_sequence(batch: SharedForwardBatch, running_rounds: list[HostRoundRunner]) -> list[RoundOutcome]:
    """The next round of all that run; the rows of others leave the batch. The shared forward's seconds are split evenly."""
    sessions = [each.target.session for each in running_rounds]
    for session in [each for each in batch.sessions if each not in sessions]:
        batch.remove_session(session)
    trees = [each.grow_and_validate_round_tree() for each in running_rounds]
    drafted = [each.watch.seconds for each in running_rounds]
    watch = PhaseStopwatch(batch.runner.device)
    watch.reset_and_start()
    asked = zip(running_rounds, trees, strict=True)
    answers = batch.forward(
        [
            RowRequest(each.target.session, *each.target.build_tokens_positions_and_node_mask(tree))
            for each, tree in asked
        ]
    )
    share = watch.wait_for_device_and_end_phase("verify") / len(running_rounds)
    outcomes = []
    for each, tree, answer, seconds in zip(running_rounds, trees, answers, drafted, strict=True):
        each.watch.reset_and_start()
        outcome = each.accept_and_commit(tree, *answer)
        outcomes.append(replace(outcome, seconds={**seconds, "verify": share, **outcome.seconds}))
    return outcomes


def divide_costs_by_batch_size(costs: Costs, batch_size: int) -> Costs:
    """A sequence's share of the costs in a batch of that size, where all verify as many rows. Drafts are not shared."""
    return replace(
        costs, verify_ms={rows: costs.interpolate_verify_ms(batch_size * rows) / batch_size for rows in costs.verify_ms}
    )
