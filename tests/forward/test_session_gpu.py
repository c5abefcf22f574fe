"""Static forwards of a session, run eagerly: what a CUDA graph would replay is the very same function.

Right logits come from right slots, masks and positions together; the tests that spoil one of them show that the others would notice.
"""

import random

import pytest
import torch

from engine.forward import cuda_graphs, runner_gpu
from engine.forward.cuda_graphs import CapturedOrEagerFunction
from engine.forward.lender import IdleCacheLender
from engine.forward.runner import Runner
from engine.forward.runner_gpu import StaticForward
from engine.forward.session import Session
from engine.forward.session_gpu import GraphBuckets
from helpers.pairs import PROMPT, committed, tiny_llama
from helpers.trees import random_tree

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("small_capacities")


@pytest.fixture(params=["one key head a query head", "grouped heads", "float64"])
def runner(request) -> Runner:
    model = tiny_llama(0, layers=4, kv_heads=1 if "grouped" in request.param else 2)
    return Runner(model.double() if request.param == "float64" else model, use_custom_forward=False)


def test_what_a_bucket_hands_out_survives_its_next_run(runner):
    target = committed(runner, features=True, use_cuda_graphs=True)
    tree = random_tree(random.Random(0), 8)
    first = [each.clone() for each in target.verify(tree)]
    held = target.verify(tree)
    target.verify(random_tree(random.Random(1), 8))
    assert all(torch.equal(*pair) for pair in zip(first, held, strict=True))


@pytest.mark.parametrize("spoil", ["slot", "mask", "padding", "position"])
def test_a_wrong_slot_mask_or_position_would_be_noticed(runner, spoil, monkeypatch):
    plain, graphed = (committed(runner, use_cuda_graphs=graphed) for graphed in (False, True))
    tree = random_tree(random.Random(3), 5)
    whole = StaticForward.__call__

    def spoiled(self, ids, positions, slots, visible, behind):
        if spoil == "slot":
            slots = slots + 1
        elif spoil == "mask":
            visible = torch.ones_like(visible)
        elif spoil == "padding":  # what the three padding rows of a bucket of eight wrote
            visible = visible | (self.columns >= len(PROMPT) + 5) & (self.columns < len(PROMPT) + 8)
        else:
            positions = positions + torch.arange(len(positions))
        return whole(self, ids, positions, slots, visible, behind)

    monkeypatch.setattr(StaticForward, "__call__", spoiled)
    assert not torch.allclose(graphed.verify(tree)[0], plain.verify(tree)[0], atol=1e-2)


def test_grouped_heads_are_folded_and_nothing_is_repeated(monkeypatch):
    """Four query heads on two key heads, so that a wrong order of heads and rows cannot pass."""
    model = tiny_llama(0, kv_heads=2)
    config = model.config
    config.num_attention_heads = 4
    config.head_dim = 16
    model = type(model)(config).eval()
    runner = Runner(model, use_custom_forward=False)
    plain, graphed = (committed(runner, use_cuda_graphs=graphed) for graphed in (False, True))
    tree = random_tree(random.Random(2), 7)
    expected = plain.verify(tree)[0]
    whole = torch.nn.functional.scaled_dot_product_attention

    def attend_unrepeated(query, key, *rest, **how):
        assert query.shape[1] == key.shape[1]  # else keys and values are repeated
        return whole(query, key, *rest, **how)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend_unrepeated)
    assert torch.allclose(graphed.verify(tree)[0], expected, atol=1e-4, rtol=0)
    assert graphed.session.buckets.by_size[0].forward.groups == 2


def test_a_model_whose_heads_are_folded_still_generates_the_same_text():
    model = tiny_llama(0, kv_heads=1)
    ids = torch.tensor([PROMPT])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 12, "do_sample": False}
    before = model.generate(ids, **options)
    assert (
        runner_gpu.enable_folded_heads_and_get_group_size(model) == 2
        and runner_gpu.enable_folded_heads_and_get_group_size(model) == 2
    )
    assert torch.equal(model.generate(ids, **options), before)


def test_a_tree_beyond_the_largest_bucket_or_the_capacity_runs_without_one(runner):
    target = committed(runner, use_cuda_graphs=True)
    longer = Session(runner, 400, use_cuda_graphs=True).buckets.find_bucket
    assert longer(257, True) is None and longer(65, False) is None and longer(65, True).size == 256
    fitting = target.session.buckets.find_bucket
    assert fitting(65, True) is None  # 256 rows are more than are left
    target.session.cache.rows = target.session.cache.capacity - 5
    assert fitting(5, False) is None and fitting(4, False).size == 4
    target.session.cache.rows = len(PROMPT)
    assert target.verify(random_tree(random.Random(0), 70))[0].shape == (70, 256)


@pytest.mark.parametrize(("count", "chunks"), [(150, [150]), (300, [256, 44])])
def test_a_prompt_goes_through_graphs(runner, count, chunks, monkeypatch):
    plain, graphed = (Session(runner, 400, feature_layers=True, use_cuda_graphs=graphed) for graphed in (False, True))
    ids = torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(2)).tolist()
    expected, behind = plain.prefill(ids)
    monkeypatch.setattr(runner, "why_eager", "")  # as on a GPU; what its graphs would replay runs eagerly here
    read, whole = [], graphed.forward
    monkeypatch.setattr(graphed, "forward", lambda ids, *rest, **how: read.append(len(ids)) or whole(ids, *rest, **how))
    logits, features = graphed.prefill(ids)
    assert read == chunks and graphed.rows == count
    assert torch.allclose(logits, expected, atol=1e-4, rtol=0)
    assert torch.allclose(features, behind, atol=1e-2, rtol=0)
    kept, wanted = (each.cache.kv[:, :, :, :count] for each in (graphed, plain))
    assert torch.allclose(kept, wanted, atol=1e-4, rtol=0)


def test_no_graph_without_a_gpu_or_on_zerogpu_or_when_a_capture_fails(monkeypatch):
    assert "need a CUDA GPU, and this is cpu" in cuda_graphs.explain_no_cuda_graphs(CPU)
    assert cuda_graphs.explain_no_cuda_graphs(torch.device("cuda")) == ""
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert "ZeroGPU" in cuda_graphs.explain_no_cuda_graphs(torch.device("cuda"))
    runner = Runner(tiny_llama(0))
    runner.why_eager = ""  # as on a GPU, where this machine then fails to capture
    for name in ("synchronize", "current_stream", "set_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda _: None)
    assert CapturedOrEagerFunction(lambda: 7, runner, None)() == 7
    assert "LlamaForCausalLM could not be captured as a CUDA graph" in runner.why_eager


@pytest.mark.parametrize(("lacking", "tries"), [(0, 1), (1, 2), (2, 2)])
def test_a_lack_of_memory_drops_idle_caches_and_ends_no_graphs(monkeypatch, lacking, tries):
    """A capture is tried again without them. Where that is not enough, this function alone runs eagerly."""
    runner = Runner(tiny_llama(0))
    runner.why_eager, runner.lender.most = "", 10
    tried = []

    def attempt(captured, device, pool):
        tried.append(len(runner.lender.idle))
        return MemoryError("no room") if len(tried) <= lacking else None

    runner.lender.return_to_idle_and_evict("key", Loan(5))
    monkeypatch.setattr(CapturedOrEagerFunction, "try_capture", attempt)
    assert CapturedOrEagerFunction(lambda: 7, runner, None)() == 7
    assert tried == [1, 0][:tries] and runner.why_eager == ""


def test_of_the_errors_of_a_capture_the_first_one_is_told():
    try:
        try:
            raise ValueError("item() is not permitted")
        except ValueError:
            raise RuntimeError("capture_end failed")  # noqa: B904  # as torch does
    except RuntimeError as error:
        assert str(cuda_graphs.root_cause_of(error)) == "item() is not permitted"


def test_a_lent_cache_comes_back_when_its_session_is_gone_and_is_empty_then():
    runner = Runner(tiny_llama(0))
    first = Session(runner, 64, use_cuda_graphs=True)
    second = Session(runner, 64, use_cuda_graphs=True)
    runner.lender.most = 10**9
    assert first.buckets is not second.buckets
    first.prefill(PROMPT)
    lent = first.buckets
    del first
    third = Session(runner, 64, use_cuda_graphs=True)
    assert third.buckets is lent and third.rows == 0 and not third.cache.kv.any()
    assert Session(runner, 64, True, use_cuda_graphs=True).buckets is not lent


class Loan:
    """Something of that many bytes. A borrower that is gone gives it back."""

    def __init__(self, size: int, whole: bool = True):
        self.size, self.whole = size, whole


def test_a_lender_keeps_no_more_bytes_than_its_limit_and_the_latest_first():
    lender = IdleCacheLender(10)
    for key, size in enumerate((4, 4, 3, 2)):
        lender.lend_idle_or_new(key, lambda size=size: Loan(size), borrower=Loan(0))
    assert [(key, each.size) for key, each in lender.idle] == [(1, 4), (2, 3), (3, 2)]
    lender.lend_idle_or_new("large", lambda: Loan(11), borrower=Loan(0))
    assert lender.idle == []
    lender.lend_idle_or_new("broken", lambda: Loan(1, whole=False), borrower=Loan(0))
    assert lender.idle == []


def test_a_lender_lends_what_came_back_last():
    lender, borrowers = IdleCacheLender(10), [Loan(0), Loan(0)]
    first, second = (lender.lend_idle_or_new("key", lambda: Loan(1), borrower=each) for each in borrowers)
    del borrowers[0]
    borrowers.clear()
    assert [each for _, each in lender.idle] == [first, second]
    assert lender.lend_idle_or_new("key", lambda: Loan(1), borrower=Loan(0)) is second


def test_buckets_capture_the_sizes_that_are_asked_for():
    """And those of prompts, whose logits but the last nobody reads."""
    buckets = GraphBuckets(Runner(tiny_llama(0)), 64, (), (3, 24))
    assert [(each.size, each.last_only) for each in buckets.by_size] == [
        (3, False),
        (24, False),
        (64, True),
        (256, True),
    ]
    assert buckets.find_bucket(4, False).size == 24 and buckets.find_bucket(25, False) is None
