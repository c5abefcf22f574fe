"""`engine.rounds.round` as one CUDA graph a round; held equal by tests/fast/test_equal_to_reference.py[rounds.round_gpu].

Draft, verify, accept and commit run on the device, and one copy goes to the host at the end. Where no graph can be captured the same
function runs eagerly, and waits no more often. It serves token match over the drafters of `engine.drafters.on_device` and the
policies of `engine.policies.shared.growing_gpu`. Rounds on the host give the same tokens from the same noise.
"""

import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from engine.contracts import Policy, RoundOutcome, Verdict
from engine.drafters.on_device import ON_DEVICE
from engine.drafters.on_device.parts import DrafterOnDevice, can_run_static_forwards
from engine.forward.cuda_graphs import CapturedOrEagerFunction, graph_memory_pool
from engine.forward.devices import wait_for_device
from engine.forward.runner import Runner
from engine.forward.runner_gpu import StaticForward, round_up_static_capacity, visible_slots
from engine.forward.session import open_prompt_session
from engine.models.pairs import LoadedPair
from engine.policies.shared.growing_gpu import DeviceTree, DeviceTreeGrower
from engine.policies.shared.growth_terms import TreeGrowthTerms
from engine.rounds.round import LAST, UNSURE
from engine.sampling import Sampling, compute_gumbel_by_position
from engine.tree import DraftTree

PHASES = ("draft", "verify", "accept", "commit")
STATE = 4  # numbers that a round starts from, in the order of `CapturedDeviceRound.prefill_and_set_state`


class PhaseTimestamps:
    """Moments within a round. On a GPU they are events, which a graph can hold; else they are readings of the clock."""

    def __init__(self, device: torch.device):
        self.device, self.cuda = device, device.type == "cuda"
        with torch.cuda.device(device) if self.cuda else nullcontext():  # an event belongs to the current device
            self.at: list[Any] = [
                torch.cuda.Event(enable_timing=True, external=True) if self.cuda else 0.0
                for _ in range(len(PHASES) + 1)
            ]

    def record_timestamp(self, boundary: int) -> None:
        if self.cuda:
            self.at[boundary].record(torch.cuda.current_stream(self.device))
        else:
            self.at[boundary] = time.perf_counter()

    def split_seconds_by_phase(self, total_seconds: float) -> dict[str, float]:
        """`total_seconds` by phase, in proportion to the time between the moments. All moments must have passed."""
        pairs = list(zip(self.at, self.at[1:], strict=False))
        spans = [start.elapsed_time(end) if self.cuda else end - start for start, end in pairs]
        total = sum(spans) or 1.0
        return {name: total_seconds * span / total for name, span in zip(PHASES, spans, strict=True)}


class CapturedDeviceRound:
    """The caches of a lane and the round over them. Its shape is fixed, so one lane after another can use it."""

    def __init__(
        self,
        target: Runner,
        drafter: DrafterOnDevice,
        terms: TreeGrowthTerms,
        stop_ids: frozenset[int],
        lane_row_count: int,
        greedy: bool,
    ):
        """`lane_row_count` is a lane's: rows for the text and a largest tree. Terms without levels are plain decoding."""
        self.runner, self.greedy, self.drafter, device = target, greedy, drafter, target.device
        self.grower = DeviceTreeGrower(terms, drafter, stop_ids, device)
        self.depth = self.grower.depth
        drafter.allocate_buffers(lane_row_count, self.depth, terms.expanded_node_count)
        self.reading = open_prompt_session(target, lane_row_count, drafter.reads_features)
        self.verify = StaticForward(target, self.reading.cache, self.reading.taps)
        self.steps = torch.arange(self.depth + 1, device=device)
        self.state = torch.zeros(STATE, dtype=torch.int64, device=device)
        self.temperature = torch.ones(1, device=device)
        self.marks = PhaseTimestamps(device)
        self.captured = CapturedOrEagerFunction(self.run_round_and_pack_result, target, graph_memory_pool(target))
        captured = not target.captures_graphs or self.captured.graph is not None
        self.whole = captured and self.reading.has_memory_for_graphs and drafter.whole
        self.size = self.reading.cache_and_graph_bytes + drafter.size + self.captured.output_bytes
        self.host: torch.Tensor | None = None

    @torch.inference_mode()
    def prefill_and_set_state(self, prompt: list[int], sampling: Sampling, last_position: int) -> None:
        """Prefill the models. No token will be drafted behind position `last_position`."""
        self.reading.cache.clear()
        _, features = self.reading.prefill(prompt[:-1])
        self.drafter.begin(prompt, features)
        self.state.copy_(torch.tensor([len(prompt) - 1, prompt[-1], last_position, sampling.seed]))
        self.temperature.fill_(sampling.temperature or 1.0)

    def run_round_and_pack_result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """One round on the device. Returns what `unpack_tree_and_verdict` reads, as float64, and the logits `[N, V]`."""
        base, root, last, seed = self.state.split(1)
        noise = None if self.greedy else compute_gumbel_by_position(seed, base + 1 + self.steps, self.runner.vocab)
        self.marks.record_timestamp(0)
        room = last - base - 1
        tree = (
            self.grower.grow(root, base, room, self.temperature, noise)
            if self.depth
            else DeviceTree.from_root_token(root)
        )
        self.marks.record_timestamp(1)
        positions = torch.where(tree.score > 0, base + tree.depth, base)
        slots = base + torch.arange(len(tree.tokens), device=base.device)
        visible = visible_slots(self.verify.columns, base, tree.ancestor_mask)
        logits, features = self.verify(tree.tokens, positions, slots, visible)
        self.marks.record_timestamp(2)
        drawn = self.draw_target_tokens(logits, tree, noise)
        path, count, node = self.accepted_path_count_and_last_node(tree, drawn)
        bonus = drawn.index_select(0, node)
        self.marks.record_timestamp(3)
        if self.depth:
            self.commit_path_rows(path, count, base)
        self.drafter.commit(tree, path, count, bonus, base, features)
        alive, columns = (tree.score > 0).sum().view(1), (tree.tokens, tree.parents, tree.depth, tree.score, tree.q)
        packed = torch.cat([alive, count, bonus, path, *columns])
        self.state.copy_(torch.cat([base + 1 + count, bonus, last, seed]))
        self.marks.record_timestamp(4)
        return packed, logits

    def draw_target_tokens(self, logits: torch.Tensor, tree: DeviceTree, noise: torch.Tensor | None) -> torch.Tensor:
        """The token `[N]` that the target draws behind every node."""
        scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if noise is not None:
            scores = scores / self.temperature + noise.index_select(0, tree.depth)
        return scores.argmax(-1)

    def accepted_path_count_and_last_node(
        self, tree: DeviceTree, target_tokens: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token match. Returns the path `[depth + 1]` from the root down, the number `[1]` of accepted nodes and the last node `[1]`.

        Places behind the last accepted node hold 0.
        """
        node = torch.zeros_like(target_tokens[:1])
        count, path = node.clone(), [node]
        for _ in range(self.depth):
            carried = target_tokens.index_select(0, node)
            here = (tree.parents == node) & (tree.tokens == carried) & (tree.score > 0)
            child, found = here.long().argmax(0, keepdim=True), here.any(0, keepdim=True)
            path.append(torch.where(found, child, torch.zeros_like(child)))
            node, count = torch.where(found, child, node), count + found
        return torch.cat(path), count, node

    def commit_path_rows(self, path: torch.Tensor, accepted_count: torch.Tensor, root_position: torch.Tensor) -> None:
        """Move the path's rows to the places from the root's on. Places behind the path keep their rows."""
        kv, places = self.reading.cache.kv, root_position + self.steps
        moved = torch.where(self.steps <= accepted_count, root_position + path, places)
        kv.index_copy_(3, places, kv.index_select(3, moved))

    @torch.inference_mode()
    def __call__(self) -> RoundOutcome:
        start = time.perf_counter()
        packed, logits = self.captured()
        if self.host is None:
            self.host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=packed.is_cuda)
        self.host.copy_(packed, non_blocking=True)
        if packed.is_cuda:
            torch.cuda.current_stream(packed.device).synchronize()
        tree, verdict = self.unpack_tree_and_verdict(self.host.tolist())
        seconds = self.marks.split_seconds_by_phase(time.perf_counter() - start)
        return RoundOutcome(tree, logits[: len(tree)].clone(), verdict, seconds)

    def unpack_tree_and_verdict(self, packed_round: list[float]) -> tuple[DraftTree, Verdict]:
        alive, count, bonus = (int(value) for value in packed_round[:3])
        path, columns = packed_round[3 : 4 + self.depth], packed_round[4 + self.depth :]
        size = len(columns) // 5
        *whole, score, q = (columns[at : at + alive] for at in range(0, len(columns), size))
        tokens, parents, depth = (list(map(int, each)) for each in whole)
        tree = DraftTree(tokens, parents, depth, score, q, list(range(alive)))
        return tree, Verdict(list(map(int, path[1 : 1 + count])), bonus)


class DeviceRoundRunner:
    """`engine.contracts.RoundRunner` of one lane on a GPU. `draft_forward_count` counts the draft's forwards, as a drafter does."""

    def __init__(self, pair: LoadedPair, drafter_name: str, policy: Policy, capacity: int, sampling: Sampling):
        """`drafter_name` is a name of `ON_DEVICE`. Raises `ValueError` for what `can_run_rounds_on_device` denies."""
        self.policy, self.stop_ids, self.sampling, self.draft_forward_count = policy, pair.stop_ids, sampling, 0
        made, terms = find_device_drafter_and_tree_terms(pair, drafter_name, policy)
        if made is None or terms is None:
            raise ValueError(f"No device decides rounds of {drafter_name} and {type(policy).__name__} alone.")
        asked = terms, pair.stop_ids, round_up_static_capacity(capacity), sampling.greedy
        key = "round", drafter_name, made.net, *asked
        self.round = pair.target.lender.lend_idle_or_new(
            key, lambda: CapturedDeviceRound(pair.target, made, *asked), self
        )

    def prefill_and_return_seconds(self, prompt: list[int], last_position: int) -> float:
        start = time.perf_counter()
        self.room = last_position - len(prompt)  # guesses in a row that the text has room for
        self.round.prefill_and_set_state(prompt, self.sampling, last_position)
        wait_for_device(self.round.runner.device)
        return time.perf_counter() - start

    def run_round(self) -> RoundOutcome:
        self.draft_forward_count += min(self.round.depth, self.round.drafter.most_forwards)
        done, room = self.round(), self.room
        self.room -= len(done.verdict.path) + 1
        silence = "" if len(done.tree) > 1 else LAST if room < 1 else UNSURE
        return replace(
            done,
            no_guess_reason=silence,
            unused_nodes_reason=self.policy.explain_unused_nodes(done.tree, room, self.stop_ids),
        )


def find_device_drafter_and_tree_terms(
    pair: LoadedPair, drafter_name: str, policy: Policy
) -> tuple[DrafterOnDevice | None, TreeGrowthTerms | None]:
    """The drafter on the device and the policy's terms, None for what there is none of."""
    kind = ON_DEVICE.get(drafter_name)
    net = kind.find_device_net(pair, drafter_name) if kind else None
    made = kind(pair, net) if kind and net is not None else None
    return made, None if made is None else TreeGrowthTerms.of_policy(policy, pair.target.vocab, made.depth)


def can_run_rounds_on_device(pair: LoadedPair, drafter_name: str, policy: Policy, sampling: Sampling) -> bool:
    """Whether device rounds serve a lane of these parts, with token match, and can draw its noise on the device."""
    able = sampling.device is not None and sampling.keeps_all_tokens and can_run_static_forwards(pair.target)
    return able and all(find_device_drafter_and_tree_terms(pair, drafter_name, policy))
