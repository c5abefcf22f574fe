"""The decode loop: grow, verify, decide, commit. Everything in TreeRace is this loop with other parts; plain decoding is it with
a drafter that proposes nothing. Knows no text, no page and no other lane."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from engine.acceptance import Acceptance, Verdict
from engine.drafters import Drafter
from engine.policies import Policy
from engine.sampling import Sampling
from engine.target import Target
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


class Stopwatch:
    """Times phases after waiting for the device, so that no phase pays for another's kernels."""

    def __init__(self, device: torch.device):
        self.device, self.waits = device, device.type == "cuda"

    def start(self) -> None:
        self.seconds, self.since = {}, time.perf_counter()

    def lap(self, name: str) -> float:
        """The phase of that name ends here and the next one begins; its seconds."""
        if self.waits:
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        self.seconds[name], self.since = now - self.since, now
        return self.seconds[name]


def cut(burst: list[int], stop_ids: frozenset[int], left: int, window: int) -> tuple[list[int], str]:
    """The burst up to its first stop token, then up to `left` tokens, then up to `window`; and why decoding ends here, if it does."""
    for index, token in enumerate(burst[:left]):
        if token in stop_ids:
            return burst[: index + 1], "stop"
    if len(burst) >= left:
        return burst[:left], "length"
    return burst[:window], "context" if len(burst) >= window else ""


@torch.inference_mode()
def decode(
    target: Target,
    drafter: Drafter,
    policy: Policy,
    acceptance: Acceptance,
    prompt: list[int],
    sampling: Sampling,
    max_new_tokens: int,
    stop_ids: frozenset[int],
    context: int,
) -> Iterator[Round]:
    """Write up to `max_new_tokens` tokens after `prompt` (at least one token), a burst a round. `context` is the model's window."""
    watch = Stopwatch(target.session.runner.device)
    watch.start()
    features = target.prefill(prompt[:-1])
    drafter.begin(prompt, features)
    watch.lap("prefill")
    root, left, end = prompt[-1], max_new_tokens, ""
    while not end:
        position = target.length
        window = context - 1 - position  # tokens that still fit behind the root
        tree = policy.grow(drafter, root, position, sampling, min(left, window) - 1)
        watch.lap("draft")
        logits, features = target.verify(tree)
        watch.lap("verify")
        verdict = acceptance.decide(tree, logits, sampling, position)
        watch.lap("accept")
        target.commit(verdict.path)
        drafter.commit(tree, verdict.path, verdict.bonus, features)
        policy.learn(tree, verdict.path)
        watch.lap("commit")
        burst, end = cut([tree.tokens[node] for node in verdict.path] + [verdict.bonus], stop_ids, left, window)
        yield Round(position, tree, logits, verdict, burst, end, watch.seconds)
        root, left = verdict.bonus, left - len(burst)
        watch.start()
