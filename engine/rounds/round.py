"""A lane's rounds with parts on the host: grow, verify, decide, commit; and the watch that times their phases."""

import time

import torch

from engine.contracts import NO_GUESSES, Acceptance, Drafter, Policy, RoundOutcome
from engine.forward.devices import wait_for_device
from engine.forward.spread import adopt_first_process_value
from engine.rounds.guiding import ConstraintGuidedDrafter, Mask, mask_forbidden_logits
from engine.sampling import Sampling
from engine.target import Target
from engine.tree import DraftTree


class PhaseStopwatch:
    """Times phases after waiting for the device, so that no phase pays for another's kernels."""

    def __init__(self, device: torch.device):
        self.device = device

    def reset_and_start(self) -> None:
        self.seconds: dict[str, float] = {}
        self.since = time.perf_counter()

    def wait_for_device_and_end_phase(self, phase_name: str) -> float:
        """End the phase of that name and begin the next one. Returns its seconds."""
        wait_for_device(self.device)
        now = time.perf_counter()
        self.seconds[phase_name], self.since = now - self.since, now
        return self.seconds[phase_name]


LAST = "One token is left to write, and the target writes it without a guess."
UNSURE = "The drafter had no guess that is likely enough."


class HostRoundRunner:
    """`engine.contracts.RoundRunner` with parts on the host. `constraint_mask(guide, tree, logits)` keeps what the target answers to a
    constraint.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        policy: Policy,
        rule: Acceptance,
        sampling: Sampling,
        constraint_mask: Mask = mask_forbidden_logits,
    ):
        self.target, self.drafter, self.policy, self.rule = target, drafter, policy, rule
        self.sampling, self.mask = sampling, constraint_mask
        self.guide = sampling.constraint.create_guide_at_text_start() if sampling.constraint else None
        if self.guide and self.guide.draft_masking != "free":
            self.drafter = ConstraintGuidedDrafter(drafter, self.guide)
        self.drafter.bind_target_cache(target.session.cache)
        self.watch = PhaseStopwatch(target.session.runner.device)

    @property
    def draft_forward_count(self) -> int:
        return self.drafter.draft_forward_count

    @torch.inference_mode()
    def prefill_and_return_seconds(self, prompt: list[int], last_position: int) -> float:
        self.root, self.last = prompt[-1], last_position
        self.watch.reset_and_start()
        self.drafter.begin(prompt, self.target.prefill_and_return_features(prompt[:-1]))
        return adopt_first_process_value(
            self.target.session.runner.model, self.watch.wait_for_device_and_end_phase("prefill")
        )

    @torch.inference_mode()
    def run_round(self) -> RoundOutcome:
        tree = self.grow_and_validate_round_tree()
        logits, features = self.target.verify(tree)
        self.watch.wait_for_device_and_end_phase("verify")
        return self.accept_and_commit(tree, logits, features)

    def grow_and_validate_round_tree(self) -> DraftTree:
        """The round's tree. It begins the round's clock and ends the phase "draft"."""
        position = self.target.committed_rows
        self.room = self.last - position - 1
        self.watch.reset_and_start()
        tree = self.policy.grow(self.drafter, self.root, position, self.sampling, self.room)
        self.watch.wait_for_device_and_end_phase("draft")
        self.refuse_unknown_tokens(tree)
        return tree

    def accept_and_commit(self, tree: DraftTree, logits: torch.Tensor, features: torch.Tensor | None) -> RoundOutcome:
        """What comes of a verified tree. It ends the phases "accept" and "commit"."""
        watch = self.watch
        if self.guide:
            logits = self.mask(self.guide, tree, logits)
        verdict = self.rule.decide(tree, logits, self.sampling, self.target.committed_rows)
        if self.guide:
            self.guide.advance([*(tree.tokens[node] for node in verdict.path), verdict.bonus])
        watch.wait_for_device_and_end_phase("accept")
        self.target.commit(verdict.path)
        self.drafter.observe_target_logits(tree, logits, verdict.path)
        self.drafter.commit(tree, verdict.path, verdict.bonus, features)
        self.policy.learn_from_accepted_path(tree, verdict.path)
        silence, unused = (
            self.explain_no_guess(tree),
            self.policy.explain_unused_nodes(tree, self.room, self.drafter.stop_ids),
        )
        watch.wait_for_device_and_end_phase("commit")
        self.root = verdict.bonus
        seconds = adopt_first_process_value(self.target.session.runner.model, watch.seconds)
        return RoundOutcome(tree, logits, verdict, seconds, self.target.session.replayed, silence, unused)

    def explain_no_guess(self, tree: DraftTree) -> str:
        """Why the tree holds no guess, "" where it holds some and for a drafter that never guesses."""
        if len(tree) > 1 or self.drafter.guess_origin == NO_GUESSES:
            return ""
        return LAST if self.room < 1 else self.policy.no_guess_reason or self.drafter.no_guess_reason or UNSURE

    def refuse_unknown_tokens(self, tree: DraftTree) -> None:
        """Raises `ValueError` for guesses that the target has no token for. The policy has checked all else."""
        vocab, highest = self.target.session.runner.vocab, max(tree.tokens[1:], default=0)
        widths = {len(row) for row in tree.q_rows.values()} - {vocab}
        if highest >= vocab or widths:
            answered = f"log-probabilities of {widths.pop():,} tokens" if widths else f"token {highest:,}"
            raise ValueError(
                f"The {self.drafter.title} drafter answered {answered}, and the target has {vocab:,}. "
                f"Its `log_q` must return log-probabilities [nodes, {vocab}]."
            )
