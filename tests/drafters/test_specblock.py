"""SpecBlock: what a position may see and learn from, that serving computes what training computed, and the tree of its rank head."""

from dataclasses import replace

import pytest
import torch

from engine.contracts import RANK_HEAD, Drafter
from engine.decode import decode
from engine.drafters.none import NoDrafter
from engine.drafters.specblock import SpecBlockDrafter
from engine.drafters.specblock_adapt import UpdateBandit
from engine.lab.train import specblock
from engine.lab.train.features import TrainingBatch, compute_training_batch
from engine.lab.train.loop import muon_and_adamw_for
from engine.nets.specblock import buckets_of_true_ranks, rank_head_inputs
from engine.policies.rank_guided import RankHeadGuidedTree
from engine.rounds.round import HostRoundRunner
from engine.sampling import Sampling
from engine.systems import resolve_system_name
from engine.target import Target
from engine.tree import LARGEST_TREE
from helpers.learned import WIDTHS, specblock_rounds
from helpers.learned import specblock_net as fresh
from helpers.pairs import tiny_llama, tiny_pair

K = 4


@pytest.fixture(scope="module")
def target():
    return tiny_llama(0)


@pytest.fixture(scope="module", params=WIDTHS)
def net(target, request):
    return fresh(target, width=request.param).requires_grad_(False)


@pytest.fixture(scope="module")
def batch(target):
    ids = torch.randint(0, 256, (3, 40), generator=torch.Generator().manual_seed(1))
    return compute_training_batch(target, ids).to_device_in_full_precision("cpu")


def three_blocks(net, batch, cuts=(2, 3)):
    drafting = specblock.BlockRollout(net, batch, 4, 20)
    found = [drafting.block.states]
    for cut in cuts:
        right = torch.ones(drafting.block.states.shape[:3], dtype=torch.bool)
        drafting.draft_next_block(torch.full((16,), cut), right)
        found.append(drafting.block.states)
    return found


def test_a_block_sees_its_stream_its_path_and_nothing_later(net, batch):
    """Blocks of the anchor at place 11 (entry 10) read tokens up to place 11, the second also place 13, the third place 16."""
    for place, changed in ((17, (False, False, False)), (16, (False, False, True)), (13, (False, True, True))):
        later = TrainingBatch(batch.ids.clone(), batch.features.clone(), batch.scales, batch.tokens, batch.p)
        later.ids[:, place] = (later.ids[:, place] + 7) % 256
        later.features[:, place:] += 1.0
        pairs = zip(three_blocks(net, batch), three_blocks(net, later), strict=True)
        assert tuple(not torch.allclose(a[:, 6], b[:, 6], atol=1e-5) for a, b in pairs) == changed
    later = TrainingBatch(batch.ids, batch.features.clone(), batch.scales, batch.tokens, batch.p)
    later.features[:, 11:] += 1.0
    for a, b in zip(three_blocks(net, batch), three_blocks(net, later), strict=True):
        assert torch.allclose(a[:, :7], b[:, :7], atol=1e-5)


def test_a_position_counts_only_while_its_path_is_right(target, batch):
    """With a text that no favourite can meet, the gradient is that of position 0 alone."""
    net = fresh(target)
    drafting = specblock.BlockRollout(net, batch, 0, 8)
    _, right = specblock.block_loss_and_hits(net, batch, drafting.block)
    favourite = net.logits(drafting.block.states).argmax(-1)
    places = drafting.block.token_places[:, None] + torch.arange(K)
    hit = favourite == batch.ids[:, places + 1]
    assert torch.equal(right, hit.cumprod(-1).bool())
    never = TrainingBatch(torch.full_like(batch.ids, -1), batch.features, batch.scales, batch.tokens, batch.p)
    drafting.block.states.retain_grad()
    total, right = specblock.block_loss_and_hits(net, never, drafting.block)
    total.backward()
    assert not right.any()
    grad = drafting.block.states.grad.abs().sum((0, 1, 3))
    assert grad[0] > 0 and not grad[1:].any()


def test_the_rank_head_reads_but_does_not_steer(target):
    net = fresh(target)
    states = torch.randn(5, 64, requires_grad=True)
    log_q = net.logits(states).log_softmax(-1).detach()
    net.rank_head_logits(states, log_q).sum().backward()
    assert states.grad is None and net.unembed.grad is None and net.rank_in.weight.grad is not None
    found = rank_head_inputs(log_q[0])
    best = log_q[0].sort(descending=True).values
    assert found.shape == (15,)
    assert torch.allclose(found[:10], best[:10])
    assert torch.allclose(found[10:13], best[0] - best[[1, 2, 4]])
    assert float(found[13]) == pytest.approx(float(best[0].exp()))
    assert float(found[14]) == pytest.approx(
        float(torch.distributions.Categorical(logits=log_q[0]).entropy()), rel=1e-5
    )


def test_buckets_are_the_rank_of_the_wanted_token():
    logits = torch.arange(20.0).flip(0)[None].expand(5, 20)
    assert buckets_of_true_ranks(logits, torch.tensor([0, 1, 3, 9, 10])).tolist() == [0, 1, 1, 2, 3]


@pytest.mark.slow
def test_training_lowers_the_loss(target, batch):
    net = fresh(target)
    before = specblock.measure_accuracy_by_depth(net, [batch])["depth 1 top1"]
    optimizers = muon_and_adamw_for(net, 0.01)
    losses = []
    for step in range(30):
        loss = specblock.compute_training_loss(net, batch, step)
        loss.backward()
        losses.append(float(loss.detach()))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    assert specblock.measure_accuracy_by_depth(net, [batch])["depth 1 top1"] > before + 0.3
    assert sum(losses[-6:]) < 0.8 * sum(losses[:6])


def in_training(net, target, text: list[int], drafted: list[int], cuts: list[int]):
    """Log-probabilities `[K, V]` of the last block that the training forward makes at the end of `text`, cut along `drafted`."""
    ids = torch.tensor([text + drafted + [0] * (3 * K + 2)])
    start = len(text) - 2
    drafting = specblock.BlockRollout(
        net, compute_training_batch(target, ids).to_device_in_full_precision("cpu"), start, start + 1
    )
    for cut in cuts:
        drafting.draft_next_block(torch.tensor([cut]), torch.ones(1, 1, K, dtype=torch.bool))
    return net.logits(drafting.block.states[0, 0]).log_softmax(-1)


@pytest.mark.parametrize("length", [2, 9])
def test_serving_computes_what_training_computed(target, net, length):
    """First blocks, blocks that start where one ends, and blocks that a policy starts earlier, over several rounds."""
    pair = replace(tiny_pair(), learned={"specblock": net})
    drafter = SpecBlockDrafter(pair, 140)
    for number, (text, tree) in enumerate(specblock_rounds(pair, drafter, list(range(40, 40 + length)))):
        if number == 1:
            continue  # a round without a question
        first = in_training(net, target, text, [], [])
        levels = [[0], [1, 2], [3, 4], [5]]
        for depth, nodes in enumerate(levels):
            assert torch.allclose(drafter.log_q(tree, nodes), first[depth].expand(len(nodes), -1), atol=1e-4)
        path = [tree.tokens[node] for node in (1, 3, 5, 6, 7, 8, 9, 10)]
        second = in_training(net, target, text, path, [K])
        for depth, node in enumerate((6, 7, 8, 9)):
            assert torch.allclose(drafter.log_q(tree, [node])[0], second[depth], atol=1e-4)
        assert torch.allclose(drafter.log_q(tree, [10])[0], in_training(net, target, text, path, [K, K])[0], atol=1e-4)
        drafter.draft_blocks_from_nodes(tree, [4, 7])
        found = drafter.log_q(tree, [4, 7, 11])
        early = in_training(net, target, text, [tree.tokens[2], tree.tokens[4]], [2])
        assert torch.allclose(found[0], early[0], atol=1e-4)
        assert torch.allclose(found[1], in_training(net, target, text, path, [K, 1])[0], atol=1e-4)
        assert torch.allclose(found[2], early[1], atol=1e-4)
        assert all(bucket in range(4) for bucket in drafter.predict_rank_buckets(tree, [0, 4]))
    assert drafter.draft_forward_count == 3 * 4


class Scripted(Drafter):
    """A drafter with a rank head and favourites by depth: token 10 d + rank, whose q falls by rank; buckets by depth."""

    capabilities = frozenset({RANK_HEAD})
    depth = K

    def __init__(self, buckets: list[int]):
        self.said, self.restarts = buckets, []

    def log_q(self, tree, nodes):
        rows = torch.full((len(nodes), 256), 1e-4)
        for row, node in zip(rows, nodes, strict=True):
            row[10 * tree.depth[node] : 10 * tree.depth[node] + 6] = torch.tensor([0.6, 0.2, 0.1, 0.04, 0.03, 0.02])
        return rows.log()

    def predict_rank_buckets(self, tree, nodes):
        return [self.said[tree.depth[node]] for node in nodes]

    def draft_blocks_from_nodes(self, tree, nodes):
        self.restarts.append([(tree.depth[node], tree.tokens[node]) for node in nodes])


def test_buckets_set_the_widths_and_the_starts():
    drafter = Scripted([0, 1, 2, 3] * 2)
    tree = RankHeadGuidedTree(4, 8, 99, "ranked").grow(drafter, 5, 7, Sampling(), max_levels=9)
    counts = [tree.depth.count(level) for level in range(1, 5)]
    assert counts == [2, 3, 3, 3]  # of 2, 4, 6 and 4 guesses; the others are too unlikely
    assert drafter.restarts == []
    deep = RankHeadGuidedTree(8, 3, 99, "ranked").grow(drafter, 5, 7, Sampling(), max_levels=9)
    assert drafter.restarts == [[(2, 11), (3, 21), (4, 30)]]  # the chain's end and the best of the doubtful positions
    assert max(deep.depth) > 4 and all(deep.children(node) for node in deep.children(1)[1:2])
    small = RankHeadGuidedTree(8, 3, 4, "ranked").grow(drafter, 5, 7, Sampling(), max_levels=9)
    assert len(small) == 4 and len(drafter.restarts) == 1  # nothing behind the first block could be kept
    assert max(RankHeadGuidedTree(8, 3, 9, "ranked").grow(drafter, 5, 7, Sampling(), max_levels=2).depth) == 2
    assert len(RankHeadGuidedTree(8, 3, 9, "ranked").grow(drafter, 5, 7, Sampling(), max_levels=0)) == 1


class Unsure(Scripted):
    """It thinks all tokens equally likely, and is asked for the nodes' numbers."""

    def log_q(self, tree, nodes):
        return torch.full((len(nodes), 256), 1 / 256).log()

    def draft_blocks_from_nodes(self, tree, nodes):
        self.restarts += nodes


def test_no_block_starts_where_one_found_nothing_likely():
    drafter = Unsure([1] * 12)
    tree = RankHeadGuidedTree(12, 3, 99, "ranked").grow(drafter, 5, 7, Sampling(), max_levels=20)
    assert max(tree.depth) == 3  # a quarter of a quarter of a quarter is above 1 %
    assert len(drafter.restarts) == len({*drafter.restarts}) > 3


def test_a_drafter_without_a_rank_head_is_refused():
    with pytest.raises(ValueError, match="only specblock and specblock-adapt have one"):
        RankHeadGuidedTree(4, 2, 8, "ranked").grow(NoDrafter(tiny_pair(), 100), 1, 0, Sampling(), 9)


@pytest.mark.parametrize("policy", ["best_first", "rank_guided", "kary"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_the_targets(net, policy, temperature):
    pair = replace(tiny_pair(), learned={"specblock": net})
    system = resolve_system_name(f"specblock/{policy}/token_match")
    assert written(pair, system, temperature) == written(pair, resolve_system_name("vanilla"), temperature)


def written(pair, system, temperature: float) -> list[int]:
    capacity = 120 + LARGEST_TREE
    drafter, policy, rule = system.build_parts(pair, capacity, 6, 2, 12)
    target, sampling = Target(pair.target, capacity, drafter.reads_features), Sampling(temperature, seed=3)
    rounds = decode(HostRoundRunner(target, drafter, policy, rule, sampling), [1, 2, 3], 50, frozenset(), 160)
    return [token for each in rounds for token in each.burst]


def adapted(net, arm: str, rounds: int):
    """A lane whose bandit always takes one arm; returns the drafter and the lane's tokens."""
    pair = replace(tiny_pair(), learned={"specblock": net})
    system = resolve_system_name("specblock-adapt/best_first/token_match")
    drafter, policy, rule = system.build_parts(pair, 160 + LARGEST_TREE, 6, 2, 8)
    drafter.bandit.choose_fastest_arm = lambda *seen: arm
    target = Target(pair.target, 160 + LARGEST_TREE, True)
    made = decode(
        HostRoundRunner(target, drafter, policy, rule, Sampling(0.8, seed=3)), [1, 2, 3], rounds, frozenset(), 160
    )
    return drafter, [token for each in made for token in each.burst]


@pytest.mark.parametrize("arm", ["heads", "full", "skip"])
def test_an_update_changes_its_own_lane_alone_and_no_text(net, arm):
    kept = {name: each.clone() for name, each in net.state_dict().items()}
    drafter, tokens = adapted(net, arm, 120)
    changed = {name for name, each in drafter.net.state_dict().items() if not torch.equal(each, kept[name])}
    if arm == "skip":
        assert not changed
    else:
        assert drafter.bandit.update_count_by_arm[arm] > 0 and drafter.bandit.update_seconds_by_arm[arm] > 0
        assert ("unembed" in changed) and ("layers.0.qkv.weight" in changed) == (arm == "full")
    assert all(torch.equal(each, kept[name]) for name, each in net.state_dict().items())
    assert not any(each.requires_grad for each in net.parameters())
    assert tokens == adapted(net, "skip", 120)[1]


def test_updates_draw_the_drafter_to_the_targets_words(net):
    """Repeated updates on the same rounds make the target's tokens there more probable, with either arm."""
    for arm in ("heads", "full"):
        drafter, _ = adapted(net, "skip", 40)
        examples = drafter.examples[-8:]
        assert examples
        if arm == "full":  # what is recomputed with gradients is what was drafted
            with torch.inference_mode(False), torch.no_grad():
                again = drafter.recompute_block_states_with_gradients(examples)
            drafted = torch.stack([each.block_states for each in examples])
            assert (again - drafted).norm() < 0.05 * drafted.norm()  # drafted in eight bits

        def likelihood(drafter=drafter, examples=examples, arm=arm) -> float:
            with torch.inference_mode(False), torch.no_grad():
                states = (
                    drafter.recompute_block_states_with_gradients(examples)
                    if arm == "full"
                    else torch.stack([e.block_states for e in examples])
                )
                log_q = drafter.net.logits(states[:, 0]).log_softmax(-1)
            return float(sum(row[each.target_tokens[0]] for row, each in zip(log_q, examples, strict=True)))

        before = likelihood()
        for _ in range(5):
            with torch.inference_mode(False), torch.enable_grad():
                drafter.train_one_step(arm, examples)
        assert likelihood() > before


def test_the_bandit_updates_only_when_it_pays():
    bandit = UpdateBandit()
    pays = {"tau": 2.0, "round_seconds": 0.01, "surprise_nats": 8.0}
    assert (
        bandit.expected_token_rate("full", **pays)
        > bandit.expected_token_rate("heads", **pays)
        > bandit.expected_token_rate("skip", **pays)
        == 200.0
    )
    dear = UpdateBandit(update_count_by_arm={"heads": 1, "full": 1}, update_seconds_by_arm={"heads": 5.0, "full": 5.0})
    assert dear.expected_token_rate("skip", **pays) > max(
        dear.expected_token_rate("heads", **pays), dear.expected_token_rate("full", **pays)
    )
    for _ in range(40):
        bandit.update_gain_per_surprise_nat("full", -9.0, 8.0)
    assert bandit.expected_token_rate("skip", **pays) > bandit.expected_token_rate("full", **pays)
    assert (
        UpdateBandit().choose_fastest_arm(**pays) == "full"
        and UpdateBandit().choose_fastest_arm(**{**pays, "surprise_nats": 2.0}) == "skip"
    )
