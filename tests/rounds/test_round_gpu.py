"""Rounds that a device decides alone, run eagerly: they are the loop's rounds, token for token and number for number."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engine import systems
from engine.decode import decode
from engine.drafters.eagle import EagleDrafter
from engine.forward import session_gpu
from engine.forward.cuda_graphs import Captured
from engine.forward.runner import Runner
from engine.record.costs import Costs, Counted
from engine.rounds import round_gpu
from engine.rounds.round_gpu import DeviceRound, DeviceRounds, Marks
from engine.rounds.timing import graph_costs
from engine.sampling import Sampling
from engine.systems import SYSTEMS, System, find
from engine.tree import LARGEST_TREE
from helpers.decoding import lane_rounds, rounds_compared
from helpers.pairs import PROMPT, tiny_llama, tiny_pair

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("small_capacities")


def assert_same_rounds(loop, device):
    for compared in rounds_compared(loop, device):
        compared.check()


def test_limits_end_device_rounds_where_they_end_the_loops():
    pair = tiny_pair(same=True)
    whole = [token for each in lane_rounds(pair, "tree", PROMPT, 24)[0] for token in each.burst]
    for length in (1, 2, 5, 11):
        loop, device = lane_rounds(pair, "tree", PROMPT, length)
        assert_same_rounds(loop, device)
        assert device[-1].end == "length" and sum(len(each.burst) for each in device) == length
    loop, device = lane_rounds(pair, "tree", PROMPT, 24, stop=frozenset({whole[6]}))
    assert_same_rounds(loop, device)
    assert device[-1].end == "stop"
    for name in ("tree", "vanilla"):
        loop, device = lane_rounds(pair, name, [each % 256 for each in range(150)], 100)
        assert_same_rounds(loop, device)
        assert device[-1].end == "context"
        assert max(each.position + max(each.tree.depth) for each in device) < pair.context


def test_a_shape_is_made_once_and_serves_lane_after_lane():
    pair = tiny_pair(same=True)
    pair.target.lender.most = 10**9
    for seed in range(3):
        assert_same_rounds(*lane_rounds(pair, "tree", PROMPT, 12, temperature=1.0, seed=seed))
    kept = [made for _, made in pair.target.lender.idle if isinstance(made, DeviceRound)]
    assert len(kept) == 1


def test_moments_are_recorded_on_the_rounds_own_device(monkeypatch):
    """The process's current device may be another one, and an event of it would order nothing here."""
    recorded, place = [], torch.device("cuda", 1)
    event = type(
        "Event", (), {"__init__": lambda self, **_: None, "record": lambda self, stream=None: recorded.append(stream)}
    )
    monkeypatch.setattr(torch.cuda, "Event", event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: f"the stream of {device}")
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext(recorded.append(device)))
    Marks(place).set(0)
    assert recorded == [place, "the stream of cuda:1"]


def test_a_draft_with_logits_of_another_size_is_fitted_to_the_target():
    pair, expected = tiny_pair(same=True), None
    for size in (256, 320, 200):
        draft = tiny_llama(0)
        draft.resize_token_embeddings(size, mean_resizing=False)
        draft.lm_head.weight.data[256:] = 9.0  # what no token stands for must not be guessed
        object.__setattr__(pair, "draft", Runner(draft, own=False))
        prompt = [each % 200 for each in PROMPT]
        expected = expected or [t for each in lane_rounds(pair, "vanilla", prompt, 16)[0] for t in each.burst]
        loop, device = lane_rounds(pair, "tree", prompt, 16) if size >= 256 else ([], [])
        assert_same_rounds(loop, device)
        assert not device or [t for each in device for t in each.burst] == expected


def runs_there(pair, system: System, sampling: Sampling) -> bool:
    shape = {"depth": 2, "width": 2, "nodes": 4}
    return isinstance(system.rounds(pair, LARGEST_TREE, shape, sampling), DeviceRounds)


def test_only_what_a_device_can_decide_alone_runs_there():
    pair = tiny_pair()
    drawn_here, drawn_there = Sampling(), Sampling(device=CPU)
    served = {name for name, system in SYSTEMS.items() if runs_there(pair, system, drawn_there)}
    assert served == {"vanilla", "tree"}
    assert not runs_there(pair, SYSTEMS["tree"], drawn_here)
    narrowed = Sampling(temperature=1.0, top_k=3, device=CPU)
    assert not runs_there(pair, SYSTEMS["tree"], narrowed)


def as_if_captured(runner: Runner, monkeypatch) -> None:
    runner.eager = ""
    monkeypatch.setattr(Captured, "attempt", lambda *_: None)
    for module in (round_gpu, session_gpu):
        monkeypatch.setattr(module, "memory_pool", lambda runner: None)


@pytest.mark.parametrize("name", ["vanilla", "tree"])
def test_prompts_are_read_by_the_graphs_of_many_tokens(name, monkeypatch):
    pair, read = tiny_pair(same=True), []
    as_if_captured(pair.target, monkeypatch)
    whole = session_gpu.Bucket.__call__
    monkeypatch.setattr(
        session_gpu.Bucket,
        "__call__",
        lambda self, ids, *rest: read.append((self.size, len(ids))) or whole(self, ids, *rest),
    )
    rounds = SYSTEMS[name].rounds(pair, 200, {"depth": 4, "width": 4, "nodes": 8}, Sampling(device=CPU))
    prompt = [each % 256 for each in range(3, 103)]
    there = list(decode(rounds, prompt, 12, frozenset(), pair.context))
    assert read == [(256, 99)] * (2 if name == "tree" else 1)
    assert_same_rounds(lane_rounds(pair, name, prompt, 12)[0], there)


def test_auto_is_a_tree_in_one_graph_where_that_promises_more_and_a_device_can_decide_alone(monkeypatch):
    """The largest counted shape within the limits promises most: levels cost nothing there."""
    pair, there = tiny_pair(same=True), Sampling(device=CPU)
    counted = {"2x2x4": Counted(2.0, 4, 2), "4x4x8": Counted(3.0, 8, 4), "8x4x24": Counted(5.0, 24, 8)}
    pair = replace(pair, calibration=replace(pair.calibration, shapes={"tree": counted}))
    pair.target.noise_place = CPU
    as_if_captured(pair.target, monkeypatch)
    host = {"model": 1.5, "eagle": 2.5}
    monkeypatch.setattr(systems, "costs_of", lambda *_: Costs({1: 2.0, 24: 2.0}, 0.0, 0.0, promised=host))
    monkeypatch.setattr(systems, "graph_costs", lambda pair: Costs({1: 1.0, 24: 1.0}, 0.0, 0.0))
    auto = SYSTEMS["auto"]
    assert auto.costs(pair).promised == {"model": 0.75, "eagle": 1.25, systems.GRAPH: 5.0}
    limits = {"depth": 6, "width": 4, "nodes": 24}
    lane = auto.rounds(pair, LARGEST_TREE, limits, there)
    assert isinstance(lane, DeviceRounds) and lane.round.depth == 4
    written = [
        [token for each in decode(rounds, PROMPT, 24, frozenset(), pair.context) for token in each.burst]
        for rounds in (lane, SYSTEMS["vanilla"].rounds(pair, LARGEST_TREE, limits, there))
    ]
    assert written[0] == written[1]
    narrowed = Sampling(temperature=1.0, top_k=3, device=CPU)
    lanes = [
        auto.rounds(pair, LARGEST_TREE, limits, narrowed),
        auto.rounds(pair, LARGEST_TREE, dict.fromkeys(limits, 1), there),
    ]
    assert [type(each.drafter.inner) for each in lanes] == [EagleDrafter] * 2  # the best of the drafters on the host
    others = [find(name).costs(pair).promised for name in ("lookup/auto/token_match", "tree", "auto!mask")]
    assert not any(systems.GRAPH in promised for promised in others)
    monkeypatch.setattr(systems, "graph_costs", lambda pair: Costs({1: 1.0, 24: 6.0}, 0.0, 0.0))
    assert auto.costs(pair).chosen == "eagle"
    pair.target.eager = "Forwards run eagerly."
    assert auto.costs(pair).promised == host


def test_rounds_in_one_graph_are_timed_by_their_levels(monkeypatch):
    seconds = {0: 0.002, 1: 0.004, 8: 0.011}
    pair = tiny_pair()
    pair.target.noise_place = CPU
    monkeypatch.setattr(
        DeviceRounds, "next", lambda self: SimpleNamespace(seconds={"draft": seconds[self.round.depth]})
    )
    costs = graph_costs(pair)
    assert costs.verify_ms == pytest.approx({1: 2.0, 24: 3.0}) and costs.level_ms == pytest.approx(1.0)
    assert graph_costs(pair) == costs
