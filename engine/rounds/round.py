"""A lane's rounds with parts on the host: grow, verify, decide, commit."""

import torch

from engine.contracts import Acceptance, Drafter, Outcome, Policy
from engine.forward.spread import agreed
from engine.rounds.guiding import GuidedDrafter, Mask, masked
from engine.rounds.stopwatch import Stopwatch
from engine.sampling import Sampling
from engine.target import Target
from engine.tree import DraftTree


class HostRounds:
    """`engine.contracts.Rounds` with a target, a drafter, a policy and a rule on the host.

    Where the sampling has a constraint, `mask(guide, tree, logits)` keeps to it what the target answered.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        policy: Policy,
        acceptance: Acceptance,
        sampling: Sampling,
        mask: Mask = masked,
    ):
        self.target, self.drafter, self.policy = target, drafter, policy
        self.acceptance, self.sampling, self.mask = acceptance, sampling, mask
        self.guide = sampling.constraint.guide() if sampling.constraint else None
        if self.guide and self.guide.guesses != "free":
            self.drafter = GuidedDrafter(drafter, self.guide)
        self.drafter.reading(target.session.cache)
        self.watch = Stopwatch(target.session.runner.device)

    @property
    def forwards(self) -> int:
        return self.drafter.forwards

    @torch.inference_mode()
    def begin(self, prompt: list[int], last: int) -> float:
        self.root, self.last = prompt[-1], last
        self.watch.start()
        self.drafter.begin(prompt, self.target.prefill(prompt[:-1]))
        return agreed(self.target.session.runner.model, self.watch.lap("prefill"))

    @torch.inference_mode()
    def next(self) -> Outcome:
        tree = self.grow()
        logits, features = self.target.verify(tree)
        self.watch.lap("verify")
        return self.settle(tree, logits, features)

    def grow(self) -> DraftTree:
        """The round's tree. It begins the round's clock and ends the phase "draft"."""
        position = self.target.length
        self.watch.start()
        tree = self.policy.grow(self.drafter, self.root, position, self.sampling, self.last - position - 1)
        self.watch.lap("draft")
        self.check(tree)
        return tree

    def settle(self, tree: DraftTree, logits: torch.Tensor, features: torch.Tensor | None) -> Outcome:
        """What comes of a verified tree. It ends the phases "accept" and "commit"."""
        watch = self.watch
        if self.guide:
            logits = self.mask(self.guide, tree, logits)
        verdict = self.acceptance.decide(tree, logits, self.sampling, self.target.length)
        if self.guide:
            self.guide.advance([*(tree.tokens[node] for node in verdict.path), verdict.bonus])
        watch.lap("accept")
        self.target.commit(verdict.path)
        if self.drafter.reads_logits:
            self.drafter.see(tree, logits, verdict.path)
        self.drafter.commit(tree, verdict.path, verdict.bonus, features)
        self.policy.learn(tree, verdict.path)
        watch.lap("commit")
        self.root = verdict.bonus
        seconds = agreed(self.target.session.runner.model, watch.seconds)
        return Outcome(tree, logits, verdict, seconds, self.target.session.replayed)

    def check(self, tree: DraftTree) -> None:
        """Raises `ValueError` for guesses that the target has no token for. The policy has checked all else."""
        vocab, highest = self.target.session.runner.vocab, max(tree.tokens[1:], default=0)
        widths = {len(row) for row in tree.q_rows.values()} - {vocab}
        if highest >= vocab or widths:
            answered = f"log-probabilities of {widths.pop():,} tokens" if widths else f"token {highest:,}"
            raise ValueError(
                f"The {self.drafter.title} drafter answered {answered}, and the target has {vocab:,}. "
                f"Its `log_q` must return log-probabilities [nodes, {vocab}]."
            )
