"""The decode loop: grow, verify, decide, commit. Everything in TreeRace is this loop with other parts; plain decoding is it with
a drafter that proposes nothing. Knows no text, no page and no other lane."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
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
        self.device, self.seconds = device, {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[name] = time.perf_counter() - start

    def lap(self) -> dict[str, float]:
        seconds, self.seconds = self.seconds, {}
        return seconds


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
    with watch.phase("prefill"):
        features = target.prefill(prompt[:-1])
        drafter.begin(prompt, features)
    root, left, end = prompt[-1], max_new_tokens, ""
    while not end:
        position = target.length
        window = context - 1 - position  # tokens that still fit behind the root
        with watch.phase("draft"):
            tree = policy.grow(drafter, root, position, sampling, min(left, window) - 1)
        with watch.phase("verify"):
            logits, features = target.verify(tree)
        with watch.phase("accept"):
            verdict = acceptance.decide(tree, logits, sampling, position)
        with watch.phase("commit"):
            target.commit(verdict.path)
            drafter.commit(tree, verdict.path, verdict.bonus, features)
            policy.learn(tree, verdict.path)
        burst, end = cut([tree.tokens[node] for node in verdict.path] + [verdict.bonus], stop_ids, left, window)
        yield Round(position, tree, logits, verdict, burst, end, watch.lap())
        root, left = verdict.bonus, left - len(burst)
