"""`engine.rounds.round` as one CUDA graph a round; held equal by tests/fast/test_equal_to_reference.py[rounds.round_gpu].

Draft, verify, accept and commit run on the device, and one copy goes to the host at the end. It serves parts that say `on_device`:
token match over the draft model's best-first tree, and plain decoding. Rounds on the host give the same tokens from the same noise.
"""

import time
from contextlib import nullcontext
from typing import Any

import torch

from engine.contracts import Acceptance, Drafter, Outcome, Policy, Verdict
from engine.forward.cuda_graphs import Captured, memory_pool
from engine.forward.devices import synchronise
from engine.forward.runner import Runner
from engine.forward.runner_gpu import StaticForward, static_capacity
from engine.forward.session import Session
from engine.forward.session_gpu import SIZES, Buckets
from engine.models.pairs import LoadedPair
from engine.rounds.best_first_gpu import DeviceDraft, DeviceTree
from engine.sampling import Sampling, gumbel_at
from engine.tree import DraftTree

PHASES = ("draft", "verify", "accept", "commit")
STATE = 5  # numbers that a round starts from, in the order of `DeviceRound.begin`


class Marks:
    """Moments within a round. On a GPU they are events, which a graph can hold; else they are readings of the clock."""

    def __init__(self, device: torch.device):
        self.device, self.cuda = device, device.type == "cuda"
        with torch.cuda.device(device) if self.cuda else nullcontext():  # an event belongs to the current device
            self.at: list[Any] = [
                torch.cuda.Event(enable_timing=True, external=True) if self.cuda else 0.0
                for _ in range(len(PHASES) + 1)
            ]

    def set(self, index: int) -> None:
        if self.cuda:
            self.at[index].record(torch.cuda.current_stream(self.device))
        else:
            self.at[index] = time.perf_counter()

    def split(self, seconds: float) -> dict[str, float]:
        """`seconds` by phase, in proportion to the time between the moments. All moments must have passed."""
        pairs = list(zip(self.at, self.at[1:], strict=False))
        spans = [start.elapsed_time(end) if self.cuda else end - start for start, end in pairs]
        total = sum(spans) or 1.0
        return {name: seconds * span / total for name, span in zip(PHASES, spans, strict=True)}


def reading(runner: Runner, capacity: int) -> Session:
    """A session for prompts. Graphs of many tokens read them where there are any, so that no length is new to the device."""
    return Session(runner, capacity, buckets=None if runner.eager else Buckets(runner, capacity, (), SIZES[-2:]))


class DeviceRound:
    """Both caches of a lane and the round over them. Its shape is fixed, so one lane after another can use it."""

    def __init__(
        self,
        target: Runner,
        draft: Runner | None,
        capacity: int,
        depth: int,
        width: int,
        nodes: int,
        greedy: bool,
        stop_ids: frozenset[int] = frozenset(),
    ):
        """`draft` None is plain decoding, whatever the shape. `capacity` is a lane's: rows for the text and a largest tree."""
        self.runner, self.greedy, device = target, greedy, target.device
        self.draft, self.depth = None, 0
        room = static_capacity(capacity)
        if draft is not None:
            room = static_capacity(capacity + depth * nodes)  # a level drafts at most `nodes` nodes
            self.drafting = reading(draft, room)
            self.draft = DeviceDraft(
                StaticForward(draft, self.drafting.cache), target.vocab, depth, width, nodes, stop_ids
            )
            self.depth = depth
        self.target = reading(target, room)
        self.verify = StaticForward(target, self.target.cache)
        self.steps = torch.arange(self.depth + 1, device=device)
        self.state = torch.zeros(STATE, dtype=torch.int64, device=device)
        self.temperature = torch.ones(1, device=device)
        self.marks = Marks(device)
        self.captured = Captured(self.run, target, memory_pool(target))
        self.sessions = [self.target, *([self.drafting] if draft is not None else [])]
        self.whole = bool(target.eager) or self.captured.graph is not None
        held = [each.buckets.size if each.buckets else each.cache.kv.nbytes for each in self.sessions]
        self.size = sum(held) + self.captured.size
        self.host: torch.Tensor | None = None

    @torch.inference_mode()
    def begin(self, prompt: list[int], sampling: Sampling, last: int) -> None:
        """Prefill the models. No token will be drafted behind position `last`."""
        for session in self.sessions:
            session.cache.clear()
            session.prefill(prompt[:-1])
        self.state.copy_(torch.tensor([len(prompt) - 1, prompt[-2:][0], prompt[-1], last, sampling.seed]))
        self.temperature.fill_(sampling.temperature or 1.0)

    def run(self) -> tuple[torch.Tensor, torch.Tensor]:
        """One round on the device. Returns what `unpacked` reads, as float64, and the logits `[N, V]`."""
        base, previous, root, last, seed = self.state.split(1)
        noise = None if self.greedy else gumbel_at(seed, base + 1 + self.steps, self.runner.vocab)
        self.marks.set(0)
        if self.draft:
            tree = self.draft.grow(previous, root, base, last - base - 1, self.temperature, noise)
        else:
            tree = DeviceTree.rooted(root)
        self.marks.set(1)
        positions = torch.where(tree.score > 0, base + tree.depth, base)
        slots = base + torch.arange(len(tree.tokens), device=base.device)
        logits, _ = self.verify(tree.tokens, positions, slots, self.verify.behind(base, tree.lineage))
        self.marks.set(2)
        drawn = self.drawn(logits, tree, noise)
        path, count, node = self.followed(tree, drawn)
        bonus = drawn.index_select(0, node)
        self.marks.set(3)
        self.commit(tree, path, count, base)
        alive, columns = (tree.score > 0).sum().view(1), (tree.tokens, tree.parents, tree.depth, tree.score, tree.q)
        packed = torch.cat([alive, count, bonus, path, *columns])
        self.state.copy_(torch.cat([base + 1 + count, tree.tokens.index_select(0, node), bonus, last, seed]))
        self.marks.set(4)
        return packed, logits

    def drawn(self, logits: torch.Tensor, tree: DeviceTree, noise: torch.Tensor | None) -> torch.Tensor:
        """The token `[N]` that the target draws behind every node."""
        scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if noise is not None:
            scores = scores / self.temperature + noise.index_select(0, tree.depth)
        return scores.argmax(-1)

    def followed(self, tree: DeviceTree, drawn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token match. Returns the accepted nodes `[depth]` from the root down, their number `[1]` and the last of them `[1]`.

        Places behind the last accepted node hold 0, and with none accepted the last is the root.
        """
        node = torch.zeros_like(drawn[:1])
        count, path = node.clone(), [node[:0]]
        for _ in range(self.depth):
            carried = drawn.index_select(0, node)
            here = (tree.parents == node) & (tree.tokens == carried) & (tree.score > 0)
            child, found = here.long().argmax(0, keepdim=True), here.any(0, keepdim=True)
            path.append(torch.where(found, child, torch.zeros_like(child)))
            node, count = torch.where(found, child, node), count + found
        return torch.cat(path), count, node

    def commit(self, tree: DeviceTree, path: torch.Tensor, count: torch.Tensor, base: torch.Tensor) -> None:
        """Move the path's rows to the places behind the root's row, in both caches. Places behind the path keep their rows."""
        places = base + self.steps[1:]
        accepted = self.steps[:-1] < count
        moves = [(self.target.cache.kv, path)]
        if self.draft:
            moves.append((self.drafting.cache.kv, tree.slots.index_select(0, path)))
        for kv, rows in moves if self.depth else ():
            kv.index_copy_(3, places, kv.index_select(3, torch.where(accepted, base + rows, places)))

    @torch.inference_mode()
    def __call__(self) -> Outcome:
        start = time.perf_counter()
        packed, logits = self.captured()
        if self.host is None:
            self.host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=packed.is_cuda)
        self.host.copy_(packed, non_blocking=True)
        if packed.is_cuda:
            torch.cuda.current_stream(packed.device).synchronize()
        tree, verdict = self.unpacked(self.host.tolist())
        seconds = self.marks.split(time.perf_counter() - start)
        return Outcome(tree, logits[: len(tree)].clone(), verdict, seconds)

    def unpacked(self, values: list[float]) -> tuple[DraftTree, Verdict]:
        alive, count, bonus = (int(value) for value in values[:3])
        path, columns = values[3 : 3 + self.depth], values[3 + self.depth :]
        size = len(columns) // 5
        *whole, score, q = (columns[at : at + alive] for at in range(0, len(columns), size))
        tokens, parents, depth = (list(map(int, each)) for each in whole)
        tree = DraftTree(tokens, parents, depth, score, q, list(range(alive)))
        return tree, Verdict(list(map(int, path[:count])), bonus)


class DeviceRounds:
    """`engine.contracts.Rounds` of one lane on a GPU. `forwards` counts the draft's forwards, as a drafter does."""

    def __init__(self, pair: LoadedPair, drafts: bool, capacity: int, shape: dict[str, int], sampling: Sampling):
        """`drafts` False is plain decoding, whatever the shape."""
        self.sampling, self.forwards = sampling, 0
        draft, sizes = (pair.draft, shape.values()) if drafts else (None, (0, 0, 0))
        asked = draft, static_capacity(capacity), *sizes, sampling.greedy, pair.stop_ids
        self.round = pair.target.lender.lend(("round", *asked), lambda: DeviceRound(pair.target, *asked), self)

    def begin(self, prompt: list[int], last: int) -> float:
        start = time.perf_counter()
        self.round.begin(prompt, self.sampling, last)
        synchronise(self.round.runner.device)
        return time.perf_counter() - start

    def next(self) -> Outcome:
        self.forwards += self.round.depth
        return self.round()


def on_device(
    pair: LoadedPair, drafter: type[Drafter], policy: type[Policy], rule: type[Acceptance], sampling: Sampling
) -> bool:
    """Whether device rounds serve a lane of these parts and can draw its noise on the device."""
    parts = (drafter, policy, rule) if drafter.guesses else (drafter, rule)
    able = all(part.on_device for part in parts) and (pair.draft is not None or not drafter.guesses)
    runners = (pair.target, pair.draft) if drafter.guesses else (pair.target,)
    plain = all(not each or not (each.window or each.spread or each.recurrent) for each in runners)
    return able and plain and sampling.device is not None and sampling.open_ended
