"""The parallel-tree drafter: its mask, its segments' gradients, and that serving computes what training computed."""

from dataclasses import replace

import pytest
import torch

from engine.drafters.parallel import ParallelDrafter
from engine.lab.train import parallel
from engine.lab.train.features import TrainingBatch, compute_training_batch
from engine.lab.train.loop import muon_and_adamw_for
from engine.nets import open_lazy_nets
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import WIDTHS, config_of, parallel_net, parallel_rounds
from helpers.pairs import tiny_llama, tiny_pair

DEPTH = 4


@pytest.fixture(scope="module")
def target():
    return tiny_llama(0)


@pytest.fixture(scope="module", params=WIDTHS)
def net(target, request):
    return parallel_net(target, request.param)


@pytest.fixture(scope="module")
def batch(target):
    ids = torch.randint(0, 256, (3, 40), generator=torch.Generator().manual_seed(1))
    return compute_training_batch(target, ids).to_device_in_full_precision("cpu")


def test_slicing_the_mask_equals_building_it():
    for stream, anchors in ((9, 9), (9, 4), (3, 1)):
        view = parallel.slice_training_mask(stream, anchors, DEPTH, longest_stream=12)
        assert view.untyped_storage().data_ptr() == parallel.build_training_mask(12, DEPTH).untyped_storage().data_ptr()
        entries = [(a, 0) for a in range(stream)]
        entries += [(a, s) for a in range(stream - 1, stream - anchors - 1, -1) for s in range(1, DEPTH)]
        naive = [[(e == 0 and b <= a) or (e > 0 and a == b and e <= s) for b, e in entries] for a, s in entries]
        assert view.tolist() == naive


def test_segments_add_up_to_the_whole_gradient(target, batch):
    """In float64. Anchors cut anywhere, one segment to a part for each anchor."""
    torch.manual_seed(0)
    net = parallel.build_untrained_net(target, config_of("parallel")).double()
    exact = TrainingBatch(batch.ids, batch.features.double(), batch.scales, batch.tokens, batch.p.double())
    found = {}
    for segments in (1, 2, 3, 12):
        net.zero_grad(set_to_none=True)
        loss = parallel.compute_training_loss(net, exact, step_seed=3, backward_segments=segments, anchor_count=12)
        loss.backward()
        found[segments] = [float(loss.detach()), *(each.grad.clone() for each in net.parameters())]
    for segments in (2, 3, 12):
        assert found[segments][0] == pytest.approx(found[1][0], rel=1e-12)
        for part, whole in zip(found[segments][1:], found[1][1:], strict=True):
            assert torch.linalg.norm(part - whole) <= 1e-9 * torch.linalg.norm(whole)


def test_a_slot_sees_nothing_behind_its_anchor(net, batch):
    """Whatever is written after anchor 10 (the token at place 11) leaves anchors 0..10 and their slots as they were."""
    later = TrainingBatch(batch.ids.clone(), batch.features.clone(), batch.scales, batch.tokens, batch.p)
    later.ids[:, 12:] = (later.ids[:, 12:] + 7) % 256
    later.features[:, 11:] += 1.0
    one, other = (parallel.compute_stream_and_slot_states(net, each, 0, 20) for each in (batch, later))
    assert torch.allclose(one[0][:, :11], other[0][:, :11], atol=1e-6)
    assert torch.allclose(one[1][:, :11], other[1][:, :11], atol=1e-6)
    assert not torch.allclose(one[0][:, 11], other[0][:, 11], atol=1e-3)
    assert not torch.allclose(one[1][:, 11], other[1][:, 11], atol=1e-3)


@pytest.mark.parametrize("width", WIDTHS)
def test_training_lowers_the_loss_at_every_depth(width, target, batch):
    torch.manual_seed(0)
    net = parallel.build_untrained_net(target, config_of("parallel", width))
    before = parallel.measure_accuracy_by_depth(net, [batch])
    optimizers = muon_and_adamw_for(net, 0.01)
    for step in range(60):
        parallel.compute_training_loss(net, batch, step).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    after = parallel.measure_accuracy_by_depth(net, [batch])
    assert all(after[f"depth {d} top1"] > before[f"depth {d} top1"] + 0.1 for d in range(1, DEPTH + 1))


@pytest.mark.parametrize("length", [1, 2, 9])
def test_serving_computes_what_training_computed(target, net, length):
    """Every round's rows are the training forward's at the anchor that is the root; a round without a question changes nothing."""
    pair = replace(tiny_pair(), learned={"parallel": net})
    prompt = list(range(40, 40 + length))
    drafter = ParallelDrafter(pair, 120)
    for number, (text, tree) in enumerate(parallel_rounds(pair, drafter, prompt)):
        if number == 2:
            continue
        found = drafter.log_q(tree, [0, 1, 2, 3])
        assert drafter.log_q(tree, [0]).equal(found[:1]) and found[1].equal(found[2])
        if len(text) > 1:
            ids = torch.tensor([text + [0] * DEPTH])
            start = len(text) - 2
            seen = compute_training_batch(target, ids)
            if length == 1:  # the first token has an entry of its own then, as if zeros stood before it
                ids = torch.cat([ids[:, :1], ids], 1)
                features = torch.cat([torch.zeros_like(seen.features[:, :1]), seen.features], 1)
                seen, start = TrainingBatch(ids, features, seen.scales, seen.tokens, seen.p), start + 1
            stream, slots = parallel.compute_stream_and_slot_states(
                net, seen.to_device_in_full_precision("cpu"), start, start + 1
            )
            wanted = net.logits(torch.cat([stream[:, start:], slots[:, 0]], 1)[0]).log_softmax(-1)
            assert torch.allclose(found, wanted[[0, 1, 1, 2]], atol=1e-4)
    assert drafter.draft_forward_count == 4


def test_no_guess_below_the_trained_depth(net):
    pair = replace(tiny_pair(), learned={"parallel": net})
    drafter, tree = ParallelDrafter(pair, 120), DraftTree.from_root_token(3)
    drafter.begin([1, 2, 3], Target(pair.target, 120, features=True).prefill_and_return_features([1, 2]))
    for depth in range(DEPTH):
        assert drafter.log_q(tree, [depth]) is not None
        tree.add(depth, 7, 0.5, 0.5)
    assert drafter.log_q(tree, [DEPTH]) is None
    with pytest.raises(ValueError, match=r"no trained parallel .*python -m engine train parallel"):
        ParallelDrafter(replace(tiny_pair(), learned={}), 120)


@pytest.mark.parametrize("packed", [False, True])
def test_a_net_of_one_depth_guesses_what_a_deeper_one_guesses_first(packed, target):
    """A slot stands behind its anchor, which therefore does not see it. The cache must hold the same rows afterwards too."""
    deep = parallel_net(target)
    shallow = parallel_net(target)
    shallow.config = replace(shallow.config, depth=1)
    found = []
    for net in (deep, shallow):
        pair = replace(tiny_pair(), learned={"parallel": net.pack_compiled_on_cpu() if packed else net})
        drafter, guesses = ParallelDrafter(pair, 120), []
        for _, tree in parallel_rounds(pair, drafter, list(range(40, 49))):
            guesses.append(drafter.log_q(tree, [0]))
            assert len(drafter.levels) == net.config.depth
        found.append(torch.cat(guesses))
    assert found[0].shape == (5, 256) and torch.allclose(*found, atol=1e-5)
    assert drafter.log_q(tree, [1]) is None


def test_a_net_survives_its_files(target, net, tmp_path):
    net.save(tmp_path / "parallel")
    loaded = open_lazy_nets(tmp_path, target)["parallel"]
    assert loaded.config == net.config
    assert torch.allclose(loaded.final_norm, net.final_norm, atol=1e-3)
    assert torch.allclose(loaded.layers[1].down.weight, net.layers[1].down.weight, atol=1e-3)
