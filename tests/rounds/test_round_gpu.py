"""Rounds that a device decides alone, run eagerly: they are the loop's rounds, token for token and number for number."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engine.decode import decode
from engine.drafters.on_device.layers import EagleOnDevice
from engine.drafters.on_device.model import ModelOnDevice
from engine.forward import session_gpu
from engine.forward.cuda_graphs import CapturedOrEagerFunction
from engine.forward.runner import Runner
from engine.forward.session import Session
from engine.record.costs import Costs, MeanRoundCountsOfShape
from engine.rounds import round_gpu
from engine.rounds.pair_costs import PairCosts
from engine.rounds.round import HostRoundRunner
from engine.rounds.round_gpu import CapturedDeviceRound, DeviceRoundRunner, PhaseTimestamps
from engine.sampling import Sampling
from engine.systems import SYSTEMS, System, resolve_system_name
from engine.tree import LARGEST_TREE
from helpers.decoding import lane_rounds, rounds_compared
from helpers.equal_trees import windowed_pair
from helpers.families import WINDOWED
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
    kept = [made for _, made in pair.target.lender.idle if isinstance(made, CapturedDeviceRound)]
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
    PhaseTimestamps(place).record_timestamp(0)
    assert recorded == [place, "the stream of cuda:1"]


def test_a_draft_with_logits_of_another_size_is_fitted_to_the_target():
    pair, expected = tiny_pair(same=True), None
    for size in (256, 320, 200):
        draft = tiny_llama(0)
        draft.resize_token_embeddings(size, mean_resizing=False)
        draft.lm_head.weight.data[256:] = 9.0  # what no token stands for must not be guessed
        object.__setattr__(pair, "draft", Runner(draft, use_custom_forward=False))
        prompt = [each % 200 for each in PROMPT]
        expected = expected or [t for each in lane_rounds(pair, "vanilla", prompt, 16)[0] for t in each.burst]
        loop, device = lane_rounds(pair, "tree", prompt, 16) if size >= 256 else ([], [])
        assert_same_rounds(loop, device)
        assert not device or [t for each in device for t in each.burst] == expected


def runs_there(pair, system: System, sampling: Sampling, shape=(2, 2, 4)) -> bool:
    shape = dict(zip(("depth", "width", "nodes"), shape, strict=True))
    return isinstance(system.open_rounds(pair, LARGEST_TREE, shape, sampling), DeviceRoundRunner)


def test_only_what_a_device_can_decide_alone_runs_there():
    pair = tiny_pair()
    drawn_here, drawn_there = Sampling(), Sampling(device=CPU)
    served = {name for name, system in SYSTEMS.items() if runs_there(pair, system, drawn_there)}
    there = "vanilla tree medusa parallel-tree dflash dspark specblock eagle mtp talon auto"
    assert served == {*there.split()}
    assert not runs_there(pair, SYSTEMS["tree"], drawn_here)
    assert runs_there(pair, SYSTEMS["specblock"], drawn_there, (12, 4, 12))
    narrowed = Sampling(temperature=1.0, top_k=3, device=CPU)
    assert not runs_there(pair, SYSTEMS["tree"], narrowed)


def as_if_captured(runner: Runner, monkeypatch) -> None:
    monkeypatch.setattr(runner, "why_eager", "")
    monkeypatch.setattr(CapturedOrEagerFunction, "try_capture", lambda *_: None)
    for module in (round_gpu, session_gpu):
        monkeypatch.setattr(module, "graph_memory_pool", lambda runner: None)


@pytest.mark.parametrize(
    ("name", "family"), [("vanilla", ""), ("tree", ""), *[("tree", family) for family in WINDOWED]]
)
def test_prompts_are_read_by_the_graphs_of_many_tokens(name, family, monkeypatch):
    pair, read = windowed_pair(family) if family else tiny_pair(same=True), []
    as_if_captured(pair.target, monkeypatch)
    whole = session_gpu.GraphBucket.__call__
    monkeypatch.setattr(
        session_gpu.GraphBucket,
        "__call__",
        lambda self, ids, *rest: read.append((self.size, len(ids))) or whole(self, ids, *rest),
    )
    rounds = SYSTEMS[name].open_rounds(pair, 200, {"depth": 4, "width": 4, "nodes": 8}, Sampling(device=CPU))
    prompt = [each % 256 for each in range(3, 103)]
    there = list(decode(rounds, prompt, 12, frozenset(), pair.context))
    assert read == [(256, 99)] * (2 if name == "tree" else 1)
    assert_same_rounds(lane_rounds(pair, name, prompt, 12)[0], there)


def test_auto_races_as_the_drafter_and_counted_shape_that_promise_the_most_where_a_device_decides_alone(monkeypatch):
    """The largest counted shape within the limits promises most where levels cost nothing. Where none pays, it guesses nothing."""
    pair, there = tiny_pair(same=True), Sampling(device=CPU)
    counted = {
        "2x2x4": MeanRoundCountsOfShape(2.0, 4, 2),
        "4x4x8": MeanRoundCountsOfShape(3.0, 8, 4),
        "8x4x24": MeanRoundCountsOfShape(5.0, 24, 8),
    }
    shapes = {"tree": counted, "eagle": {"5x3x12": MeanRoundCountsOfShape(4.0, 12, 5)}}
    pair = replace(pair, calibration=replace(pair.calibration, shapes=shapes))
    pair.target.noise_place = CPU
    ms = {"model": 1.0, "eagle": 2.0}
    on_host = Costs({1: 2.0, 24: 2.0}, 0.0, 0.0, promised={"lookup": 9.0})
    monkeypatch.setattr(PairCosts, "get_or_measure_costs", lambda *_, **__: on_host)
    monkeypatch.setattr(
        PairCosts, "get_or_measure_device_costs", lambda _, drafter, __: Costs({1: 1.0, 24: ms[drafter]}, 0.0, 0.0)
    )
    auto, limits = SYSTEMS["auto"], {"depth": 6, "width": 4, "nodes": 24}
    assert auto.get_or_measure_costs(pair).promised == {"model": 5.0, "eagle": pytest.approx(2.7, abs=0.05)}
    lane = auto.open_rounds(pair, LARGEST_TREE, limits, there)
    assert isinstance(lane, DeviceRoundRunner) and lane.round.depth == 4
    assert type(lane.round.drafter) is ModelOnDevice
    plain = SYSTEMS["vanilla"].open_rounds(pair, LARGEST_TREE, limits, there)
    written = [
        [token for each in decode(rounds, PROMPT, 24, frozenset(), pair.context) for token in each.burst]
        for rounds in (lane, plain)
    ]
    assert written[0] == written[1]
    ms["model"] = 9.0
    assert type(auto.open_rounds(pair, LARGEST_TREE, limits, there).round.drafter) is EagleOnDevice
    ms["eagle"] = 30.0
    assert auto.open_rounds(pair, LARGEST_TREE, limits, there).round.depth == 0
    narrowed = Sampling(temperature=1.0, top_k=3, device=CPU)
    assert isinstance(auto.open_rounds(pair, LARGEST_TREE, limits, narrowed), HostRoundRunner)
    small = {"depth": 1, "width": 1, "nodes": 2}  # no shape was counted within
    assert auto.open_rounds(pair, LARGEST_TREE, small, there).round.depth == 1
    others = [
        resolve_system_name(name).get_or_measure_costs(pair).promised
        for name in ("lookup/auto/token_match", "tree", "auto!mask")
    ]
    assert all(promised == {"lookup": 9.0} for promised in others)


def test_rounds_on_a_device_are_timed_by_their_levels(monkeypatch):
    seconds = {0: 0.002, 1: 0.004, 8: 0.011}
    pair = tiny_pair()
    pair.target.noise_place = CPU
    monkeypatch.setattr(
        DeviceRoundRunner, "run_round", lambda self: SimpleNamespace(seconds={"draft": seconds[self.round.depth]})
    )
    costs = PairCosts(pair).get_or_measure_device_costs("model", "best_first")
    assert costs.verify_ms == pytest.approx({1: 2.0, 24: 3.0}) and costs.level_ms == pytest.approx(1.0)
    assert PairCosts(pair).get_or_measure_device_costs("model", "best_first") == costs


def test_a_round_whose_prompts_found_no_memory_for_a_graph_is_not_kept(monkeypatch):
    """It would read them eagerly ever after."""
    pair = tiny_pair(same=True)
    pair.target.lender.most = 10**9
    for whole in (False, True):
        monkeypatch.setattr(Session, "has_memory_for_graphs", property(lambda _, whole=whole: whole))
        rounds = SYSTEMS["tree"].open_rounds(pair, 200, {"depth": 2, "width": 2, "nodes": 4}, Sampling(device=CPU))
        assert rounds.round.whole == whole
        del rounds
        assert bool(pair.target.lender.idle) == whole
