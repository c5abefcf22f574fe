"""SpecBlock drafter that learns while it serves: a cost-aware bandit decides when, and how much of the net, to update.

The verifier's feedback is free. Behind the accepted path stands the target's own token; where guesses for it were rejected, its
-log q is the surprise. Every `WINDOW` rounds the bandit picks an arm: skip, update the heads (LM head and rank head), or update the
full net. An update learns from the rounds with a rejection since the last choice.

The paper does not publish its reward; this one is ours. Tau and a round's seconds are measured over the window. An arm's rate is then
`HORIZON * (tau + gain) / (HORIZON * update_seconds_by_arm + cost)` tokens a second. The gain in tau is a running mean of what
followed the arm's earlier updates. It starts as a guess, in proportion to the window's surprise beyond the usual. The cost is the
seconds that the arm's updates took. The best rate wins, so an update is made only when its expected gain pays for it within
`HORIZON` rounds. Seconds decide, so two runs may decide differently. The text cannot differ, because a drafter never changes what
token match emits.

The weights are this drafter's own copy, so nothing reaches other lanes. Rows in the cache stay as an earlier net wrote them.
"""

import time
from copy import deepcopy
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from engine.contracts import Features
from engine.drafters.specblock import SpecBlockDrafter
from engine.models.pairs import LoadedPair
from engine.nets.specblock import SpecBlock, buckets_of_true_ranks
from engine.tree import DraftTree

SKIP, HEADS, FULL = "skip", "heads", "full"
WINDOW, HORIZON = 24, 400  # rounds between choices; rounds in which an update has to pay for itself
USUAL = 3.0  # nats of surprise a round on a familiar subject; on the embedded target 1 to 3, after a change of subject 7 to 9
FIRST_GAIN = {HEADS: 0.01, FULL: 0.02}  # guessed gain in tau for each nat of a round's surprise beyond `USUAL`
FIRST_COST = {HEADS: 1.0, FULL: 3.0}  # guessed cost in rounds, until one was measured
TRUST = 200  # a guessed gain weighs as much as this many measured ones
RATE = {HEADS: 5e-4, FULL: 5e-4}  # AdamW
DECAY = 0.8  # weight of a position relative to the one before it, as in training
MOST_EXAMPLES = 24


@dataclass(frozen=True)
class RejectedRound:
    """A round whose guesses were rejected: the root's `root_token`, its `root_features [4, H]`, and the
    `preceding_row_count` of its stream.

    `block_states [K, H]` are the first block's. `target_tokens` are the target's own tokens: the accepted path and the bonus.
    """

    root_token: int
    root_features: torch.Tensor
    preceding_row_count: int
    block_states: torch.Tensor
    target_tokens: list[int]


@dataclass
class UpdateBandit:
    """The arms' gains and costs so far, and the choice between them. Knows numbers only."""

    update_count_by_arm: dict[str, int] = field(default_factory=lambda: {HEADS: 0, FULL: 0})
    update_seconds_by_arm: dict[str, float] = field(default_factory=lambda: {HEADS: 0.0, FULL: 0.0})
    tau_gain_per_nat_by_arm: dict[str, float] = field(default_factory=lambda: dict(FIRST_GAIN))

    def expected_token_rate(self, arm: str, tau: float, round_seconds: float, surprise_nats: float) -> float:
        """Expected tokens a second over the horizon if this arm is taken. `surprise_nats` is in nats a round."""
        if arm == SKIP:
            return tau / round_seconds
        cost = (
            self.update_seconds_by_arm[arm] / self.update_count_by_arm[arm]
            if self.update_count_by_arm[arm]
            else FIRST_COST[arm] * round_seconds
        )
        spent = HORIZON * round_seconds + cost  # of an update its mean seconds so far, or the first guess
        return HORIZON * (tau + self.tau_gain_per_nat_by_arm[arm] * max(0.0, surprise_nats - USUAL)) / spent

    def choose_fastest_arm(self, tau: float, round_seconds: float, surprise_nats: float) -> str:
        """The arm with the best rate."""
        return max(
            (SKIP, HEADS, FULL), key=lambda arm: self.expected_token_rate(arm, tau, round_seconds, surprise_nats)
        )

    def update_gain_per_surprise_nat(self, arm: str, gained_tau: float, surprise_nats: float) -> None:
        """Note that an update by this arm, made at this surprise, was followed by `gained_tau` more tau."""
        weight = 1 / (TRUST + self.update_count_by_arm[arm])
        self.tau_gain_per_nat_by_arm[arm] += weight * (
            gained_tau / max(surprise_nats - USUAL, 0.1) - self.tau_gain_per_nat_by_arm[arm]
        )


class AdaptiveSpecBlockDrafter(SpecBlockDrafter):
    title = "adapting SpecBlock"
    about = "The block drafter, which goes on learning from the target while it serves."
    source = "SpecBlock's cost-aware adaptation; the reward is our own"

    def __init__(self, pair: LoadedPair, capacity: int):
        with torch.inference_mode(False):
            super().__init__(pair, capacity)
            # Its compiled loops read addresses of the shared weights, so they are made anew
            self.net: SpecBlock = (
                deepcopy(self.net, {id(self.net.compiled): None}).requires_grad_(True).pack_compiled_on_cpu()
            )
            heads = [self.net.unembed, *self.net.rank_in.parameters(), *self.net.rank_out.parameters()]
            self.optimizers = {
                HEADS: torch.optim.AdamW(heads, lr=RATE[HEADS], weight_decay=0.0),
                FULL: torch.optim.AdamW(self.net.parameters(), lr=RATE[FULL], weight_decay=0.0),
            }
        self.bandit = UpdateBandit()
        self.last: tuple[str, float, float] | None = None  # the arm, tau and surprise of the previous window
        self.reset_window_statistics()

    def reset_window_statistics(self) -> None:
        self.examples: list[RejectedRound] = []
        self.rounds, self.tokens, self.surprise, self.spent = 0, 0, 0.0, 0.0
        self.since: float | None = None

    def begin(self, prompt: list[int], features: Features = None) -> None:
        super().begin(prompt, features)
        self.examples = []  # they point into the cache of the prompt before
        self.since = None

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        now = time.perf_counter()
        if self.since is not None:  # the first round's time is not known
            self.rounds, self.tokens = self.rounds + 1, self.tokens + len(path) + 1
            self.spent += now - self.since
        self.record_surprise_and_example_if_rejected(tree, path, bonus)
        super().commit(tree, path, bonus, features)
        if self.rounds >= WINDOW:
            self.update_bandit_and_maybe_train()
        self.since = time.perf_counter()

    def record_surprise_and_example_if_rejected(self, tree: DraftTree, path: list[int], bonus: int) -> None:
        """Keep what this round teaches, if guesses for the token behind the path were rejected."""
        end = path[-1] if path else 0
        answer = self.places.get(tree.creation_indices[end])
        if answer is None or not tree.children(end) or 0 not in self.places:
            return
        first, (block, offset) = self.places[0][0], answer
        if offset < self.depth:
            self.surprise -= float(block.log_q[offset, bonus])
        wanted = [tree.tokens[node] for node in path] + [bonus]
        self.examples.append(RejectedRound(tree.tokens[0], self.root_features, self.stream - 1, first.states, wanted))

    def read_pending_and_draft_root_block(self) -> None:
        self.root_features = self.features[-1]
        super().read_pending_and_draft_root_block()

    def update_bandit_and_maybe_train(self) -> None:
        """Choose an arm for the window that ends here and carry it out. The update's seconds count as part of the round."""
        tau, seconds, surprise = self.tokens / self.rounds, self.spent / self.rounds, self.surprise / self.rounds
        if self.last is not None and self.last[0] != SKIP:
            arm, before, surprised = self.last
            self.bandit.update_gain_per_surprise_nat(arm, tau - before, surprised)
        arm = self.bandit.choose_fastest_arm(tau, seconds, surprise) if self.examples else SKIP
        if arm != SKIP:
            start = time.perf_counter()
            with torch.inference_mode(False), torch.enable_grad():
                self.train_one_step(arm, self.examples[-MOST_EXAMPLES:])
            self.bandit.update_count_by_arm[arm] += 1
            self.bandit.update_seconds_by_arm[arm] += time.perf_counter() - start
        self.last = arm, tau, surprise
        self.reset_window_statistics()

    def train_one_step(self, arm: str, examples: list[RejectedRound]) -> None:
        """One optimiser step on these rounds. The labels are the target's tokens up to the first rejected guess."""
        net, count, device = self.net, self.depth, self.net.embedding.device
        states = (
            torch.stack([each.block_states.clone() for each in examples])
            if arm == HEADS
            else self.recompute_block_states_with_gradients(examples)
        )
        taught = [
            (e, k, token) for e, each in enumerate(examples) for k, token in enumerate(each.target_tokens[:count])
        ]
        rows, positions, wanted = torch.tensor(taught, device=device).unbind(-1)
        used = states[rows, positions]
        logits = net.logits(used)
        plain = logits.detach()
        weights = DECAY ** positions.float()
        loss = (F.cross_entropy(logits, wanted, reduction="none") * weights).sum() / weights.sum()
        loss = loss + F.cross_entropy(
            net.rank_head_logits(used, plain.log_softmax(-1)), buckets_of_true_ranks(plain, wanted)
        )
        self.optimizers[arm].zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        self.optimizers[arm].step()
        net.zero_grad(set_to_none=True)
        net.pack_compiled_on_cpu()

    def recompute_block_states_with_gradients(self, examples: list[RejectedRound]) -> torch.Tensor:
        """States `[n, K, H]` of the examples' first blocks, computed anew with gradients in one forward over the cached rows."""
        net, count, device = self.net, self.depth, self.net.embedding.device
        rows, total = self.stream, len(examples) * self.depth
        past = [tuple(half[None, :, :rows].clone() for half in layer) for layer in self.cache.kv]
        condition = net.fuse_features(torch.stack([each.root_features.clone() for each in examples]))
        x, before = net.block_inputs_and_predecessors(
            condition, torch.tensor([each.root_token for each in examples], device=device)
        )
        number = torch.arange(total, device=device)
        own = (number // count == (number // count)[:, None]) & (number <= number[:, None])
        behind = torch.tensor([each.preceding_row_count for each in examples], device=device).repeat_interleave(count)
        stream = torch.arange(rows, device=device) < behind[:, None]
        positions = self.first + behind + number % count
        states = net(x[None], before, positions, torch.cat([stream, own], 1), past)
        return states[0].unflatten(0, (len(examples), count))
