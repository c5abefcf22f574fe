"""Rounds of several sequences with one target forward for all.

Each sequence has its own drafter, policy, rule and cache. Drafts grow sequence by sequence; an engine that serves models would batch
them too. So where drafts are forwards, a batch gains less here than it could.
"""

from dataclasses import replace

import torch

from engine.contracts import Outcome
from engine.forward.batch import Asked, Batch
from engine.rounds.round import HostRounds
from engine.rounds.stopwatch import Stopwatch


class BatchedRounds:
    """`engine.contracts.RoundsTogether` over one batch. `running` are the sequences that have not left it."""

    def __init__(self, batch: Batch, sequences: list[HostRounds]):
        """The targets of all `sequences` belong to the `batch`."""
        self.batch, self.running = batch, list(sequences)

    def begin(self, prompts: list[list[int]], last: list[int]) -> list[float]:
        """Read every sequence's prompt, one after another. Returns the seconds that each took."""
        return [each.begin(prompt, end) for each, prompt, end in zip(self.running, prompts, last, strict=True)]

    @torch.inference_mode()
    def next(self) -> list[Outcome]:
        """The next round of all that run. The seconds of the shared forward are split evenly, so that sums are the batch's own."""
        trees = [each.grow() for each in self.running]
        drafted = [each.watch.seconds for each in self.running]
        watch = Stopwatch(self.batch.runner.device)
        watch.start()
        asked = zip(self.running, trees, strict=True)
        answers = self.batch.forward([Asked(each.target.session, *each.target.asked(tree)) for each, tree in asked])
        share = watch.lap("verify") / len(self.running)
        outcomes = []
        for each, tree, answer, seconds in zip(self.running, trees, answers, drafted, strict=True):
            each.watch.start()
            outcome = each.settle(tree, *answer)
            outcomes.append(replace(outcome, seconds={**seconds, "verify": share, **outcome.seconds}))
        return outcomes

    def leave(self, place: int) -> None:
        """Take a sequence out of the batch. Its rows leave the forwards."""
        self.batch.leave(self.running.pop(place).target.session)
