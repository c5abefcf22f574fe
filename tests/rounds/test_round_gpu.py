"""Static forwards and device rounds, run eagerly: what a CUDA graph would replay is the very same function.

Right logits come from right slots, masks and positions together; the tests that spoil one of them show that the others would notice.
"""

import random

import pytest
import torch

from engine.decode import decode
from engine.forward import cuda_graphs, runner_gpu
from engine.forward.cuda_graphs import Captured
from engine.forward.lender import KEPT, Lender
from engine.forward.runner import Runner
from engine.forward.runner_gpu import StaticForward
from engine.forward.session import Session
from engine.forward.session_gpu import Buckets
from engine.rounds.round import HostRounds
from engine.rounds.round_gpu import DeviceRound, DeviceRounds
from engine.sampling import DeviceNoise, Sampling, gumbel_at
from engine.systems import SYSTEMS, System
from engine.target import Target
from engine.tree import LARGEST_TREE
from helpers.pairs import tiny_llama, tiny_pair
from helpers.sessions import PROMPT, committed
from helpers.trees import random_tree

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small_capacities(monkeypatch):
    """Rows to 64 instead of 1,024: the same code, less to multiply."""
    monkeypatch.setattr(runner_gpu, "ROW_MULTIPLE", 64)


@pytest.fixture(params=["one key head a query head", "grouped heads", "float64"])
def runner(request) -> Runner:
    model = tiny_llama(0, layers=4, kv_heads=1 if "grouped" in request.param else 2)
    return Runner(model.double() if request.param == "float64" else model, lean=False)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13, 40])
def test_buckets_give_the_sessions_logits_and_features_and_rows(runner, size):
    """Any number of nodes, padded or not, over rounds of scattered commits: rows behind the committed ones hold masked garbage then."""
    rng, tolerance = random.Random(size), 1e-9 if runner.dtype == torch.float64 else 1e-4
    plain, graphed = (committed(runner, features=True, graphed=graphed) for graphed in (False, True))
    for _ in range(4):
        tree = random_tree(rng, size)
        expected, behind = plain.verify(tree)
        logits, features = graphed.verify(tree)
        assert torch.allclose(logits, expected, atol=tolerance, rtol=0)
        assert torch.allclose(features, behind, atol=100 * tolerance, rtol=0)
        path = tree.path(rng.randrange(size))
        plain.commit(path)
        graphed.commit(path)
        rows = plain.length
        kept, wanted = (each.session.cache.kv[:, :, :, :rows] for each in (graphed, plain))
        assert torch.allclose(kept, wanted, atol=tolerance, rtol=0)


def test_what_a_bucket_hands_out_survives_its_next_run(runner):
    target = committed(runner, features=True, graphed=True)
    tree = random_tree(random.Random(0), 8)
    first = [each.clone() for each in target.verify(tree)]
    held = target.verify(tree)
    target.verify(random_tree(random.Random(1), 8))
    assert all(torch.equal(*pair) for pair in zip(first, held, strict=True))


@pytest.mark.parametrize("spoil", ["slot", "mask", "padding", "position"])
def test_a_wrong_slot_mask_or_position_would_be_noticed(runner, spoil, monkeypatch):
    plain, graphed = (committed(runner, graphed=graphed) for graphed in (False, True))
    tree = random_tree(random.Random(3), 5)
    whole = StaticForward.__call__

    def spoiled(self, ids, positions, slots, visible):
        if spoil == "slot":
            slots = slots + 1
        elif spoil == "mask":
            visible = torch.ones_like(visible)
        elif spoil == "padding":  # what the three padding rows of a bucket of eight wrote
            visible = visible | (self.columns >= len(PROMPT) + 5) & (self.columns < len(PROMPT) + 8)
        else:
            positions = positions + torch.arange(len(positions))
        return whole(self, ids, positions, slots, visible)

    monkeypatch.setattr(StaticForward, "__call__", spoiled)
    assert not torch.allclose(graphed.verify(tree)[0], plain.verify(tree)[0], atol=1e-2)


def test_grouped_heads_are_folded_and_nothing_is_repeated(monkeypatch):
    """Four query heads on two key heads, so that a wrong order of heads and rows cannot pass."""
    model = tiny_llama(0, kv_heads=2)
    config = model.config
    config.num_attention_heads = 4
    config.head_dim = 16
    model = type(model)(config).eval()
    runner = Runner(model, lean=False)
    plain, graphed = (committed(runner, graphed=graphed) for graphed in (False, True))
    tree = random_tree(random.Random(2), 7)
    expected = plain.verify(tree)[0]
    monkeypatch.setattr(runner_gpu, "sdpa_attention_forward", None)  # its repeat_kv must not be reached
    assert torch.allclose(graphed.verify(tree)[0], expected, atol=1e-4, rtol=0)
    assert graphed.session.buckets.by_size[0].forward.groups == 2


def test_a_model_whose_heads_are_folded_still_generates_the_same_text():
    model = tiny_llama(0, kv_heads=1)
    ids = torch.tensor([PROMPT])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 12, "do_sample": False}
    before = model.generate(ids, **options)
    assert runner_gpu.fold_heads(model) == 2 and runner_gpu.fold_heads(model) == 2
    assert torch.equal(model.generate(ids, **options), before)


def test_a_tree_beyond_the_largest_bucket_or_the_capacity_runs_without_one(runner):
    target = committed(runner, graphed=True)
    assert target.session.buckets.fitting(65) is None
    target.session.cache.rows = target.session.cache.capacity - 5
    assert target.session.buckets.fitting(5) is None and target.session.buckets.fitting(4).size == 4
    target.session.cache.rows = len(PROMPT)
    assert target.verify(random_tree(random.Random(0), 70))[0].shape == (70, 256)


def test_no_graph_without_a_gpu_or_on_zerogpu_or_when_a_capture_fails(monkeypatch):
    assert "need a CUDA GPU, and this is cpu" in cuda_graphs.why_eager(CPU)
    assert cuda_graphs.why_eager(torch.device("cuda")) == ""
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert "ZeroGPU" in cuda_graphs.why_eager(torch.device("cuda"))
    runner = Runner(tiny_llama(0))
    runner.eager = ""  # as on a GPU, where this machine then fails to capture
    for name in ("synchronize", "current_stream", "set_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda _: None)
    assert Captured(lambda: 7, runner, None)() == 7
    assert "LlamaForCausalLM could not be captured as a CUDA graph" in runner.eager


def test_a_lent_cache_comes_back_when_its_session_is_gone_and_is_empty_then():
    runner = Runner(tiny_llama(0))
    first = Session(runner, 64, graphed=True)
    second = Session(runner, 64, graphed=True)
    assert first.buckets is not second.buckets
    first.prefill(PROMPT)
    lent = first.buckets
    del first
    third = Session(runner, 64, graphed=True)
    assert third.buckets is lent and third.rows == 0 and not third.cache.kv.any()
    assert Session(runner, 64, True, graphed=True).buckets is not lent


def test_a_lender_keeps_no_more_than_its_limit():
    lender = Lender()
    for key in range(3 * KEPT):
        lender.lend(key, object, borrower=type("Borrower", (), {})())
    assert len(lender.idle) == KEPT


def lane_rounds(pair, name: str, prompt: list[int], tokens: int, shape=(4, 4, 8), stop=frozenset(), **sampling):
    """The loop's rounds and the device's, with the same noise."""
    system, shape = SYSTEMS[name], dict(zip(("depth", "width", "nodes"), shape, strict=True))
    capacity = min(pair.context, len(prompt) + tokens) + LARGEST_TREE
    sampling = Sampling(device=CPU, **sampling)
    parts, limits = system.build(pair, capacity, **shape), (prompt, tokens, stop, pair.context)
    there = system.rounds(pair, capacity, shape, sampling)
    assert isinstance(there, DeviceRounds)
    here = HostRounds(Target(pair.target, capacity), *parts, sampling)
    return list(decode(here, *limits)), list(decode(there, *limits))


def assert_same_rounds(loop, device):
    assert len(loop) == len(device)
    for mine, other in zip(loop, device, strict=True):
        assert (mine.position, mine.burst, mine.end) == (other.position, other.burst, other.end)
        assert mine.verdict == other.verdict
        for name in ("tokens", "parents", "depth", "keys"):
            if name != "keys":  # the policy counts what it pruned, too
                assert getattr(mine.tree, name) == getattr(other.tree, name)
        assert mine.tree.score == pytest.approx(other.tree.score, abs=1e-4)
        assert mine.tree.q == pytest.approx(other.tree.q, abs=1e-4)
        assert torch.allclose(mine.logits, other.logits, atol=1e-4, rtol=0)
        assert mine.seconds.keys() == other.seconds.keys()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("prompt", [[7], PROMPT])
@pytest.mark.parametrize("same", [False, True])
def test_a_device_round_is_the_loops_round(same, prompt, temperature):
    """Tree, path, bonus, burst and logits, with a draft that is hardly ever right and with one that always is."""
    pair, taus = tiny_pair(same=same), []
    for shape in ((4, 4, 8), (3, 2, 15), (1, 4, 3)):
        loop, device = lane_rounds(pair, "tree", prompt, 24, shape, temperature=temperature, seed=3)
        assert_same_rounds(loop, device)
        taus.append(24 / len(device))
    assert not same or min(taus) > 1.5
    assert_same_rounds(*lane_rounds(pair, "vanilla", prompt, 24, temperature=temperature, seed=3))


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
    for seed in range(3):
        assert_same_rounds(*lane_rounds(pair, "tree", PROMPT, 12, temperature=1.0, seed=seed))
    kept = [made for _, made in pair.target.lender.idle if isinstance(made, DeviceRound)]
    assert len(kept) == 1


def test_a_draft_with_logits_of_another_size_is_fitted_to_the_target():
    pair, expected = tiny_pair(same=True), None
    for size in (256, 320, 200):
        draft = tiny_llama(0)
        draft.resize_token_embeddings(size, mean_resizing=False)
        draft.lm_head.weight.data[256:] = 9.0  # what no token stands for must not be guessed
        object.__setattr__(pair, "draft", Runner(draft, lean=False))
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


def test_counted_noise_depends_on_seed_and_position_alone():
    seed, vocab = torch.tensor(5), 300
    whole = gumbel_at(seed, torch.arange(200), vocab)
    assert torch.equal(gumbel_at(seed, torch.tensor([130, 2]), vocab), whole[[130, 2]])
    noise = DeviceNoise(5, CPU)
    assert torch.equal(noise.rows([130, 2, 131], vocab), whole[[130, 2, 131]])
    assert len(set(whole.flatten().tolist())) > 0.99 * whole.numel()


def test_counted_noise_is_splitmix64():
    """The first outputs of the published generator at state 0, whose mixing step ours is."""
    from engine.sampling import GOLDEN, mixed

    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    ours = mixed(torch.arange(1, 4) * GOLDEN)
    assert [each % 2**64 for each in ours.tolist()] == published


@pytest.mark.parametrize("axis", ["positions", "seeds", "tokens"])
def test_counted_noise_is_gumbel_and_neighbours_know_nothing_of_each_other(axis):
    """100,000 numbers: the mean of uniform numbers within 5 standard errors, 20 cells by chi-square (99.99% below 55), and no
    correlation between neighbours beyond 5 / sqrt(n)."""
    count, step = 100_000, torch.arange(1000)
    if axis == "seeds":
        noise = torch.stack([gumbel_at(torch.tensor(seed), torch.tensor([9]), 100)[0] for seed in range(1000)])
    else:
        noise = gumbel_at(torch.tensor(1), step, 100)
    rows = noise if axis != "tokens" else noise.T
    uniform = (-(-rows.double()).exp()).exp()
    assert abs(float(uniform.mean()) - 0.5) < 5 * (1 / 12 / count) ** 0.5
    cells = torch.histc(uniform.float(), 20, 0, 1)
    assert float(((cells - count / 20) ** 2 / (count / 20)).sum()) < 55
    centred = uniform - 0.5
    for one, other in ((centred[1:], centred[:-1]), (centred[:, 1:], centred[:, :-1]), (centred[2:], centred[:-2])):
        assert abs(float((one * other).mean() * 12)) < 5 / one.numel() ** 0.5


def test_a_race_with_counted_noise_draws_the_tempered_distribution():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
    sampling = Sampling(temperature=0.8, seed=1, device=CPU)
    drawn = torch.tensor(sampling.draw(logits.expand(20_000, 5), list(range(20_000))))
    assert torch.allclose(torch.bincount(drawn, minlength=5) / 20_000, (logits / 0.8).softmax(-1), atol=0.02)


def test_buckets_capture_the_sizes_that_are_asked_for():
    buckets = Buckets(Runner(tiny_llama(0)), 64, (), (3, 24))
    assert [each.size for each in buckets.by_size] == [3, 24] and buckets.fitting(4).size == 24
