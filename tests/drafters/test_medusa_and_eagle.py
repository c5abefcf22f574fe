"""Medusa and EAGLE: what is served is what was trained, for every commit, and text stays plain decoding's own.

Untrained nets agree with nothing by chance: serving is compared with the training forward at 1e-4, and losslessness is token equality.
"""

import pytest
import torch

from engine.acceptance.token_match import TokenMatch
from engine.decode import decode
from engine.drafters import DRAFTERS
from engine.lab.train.features import FeatureShards, TrainingBatch, compute_training_batch, write_feature_shards
from engine.nets import NETS, open_lazy_nets
from engine.policies.best_first import BestFirst
from engine.rounds.round import HostRoundRunner
from engine.sampling import Sampling
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import RECIPES, TEXT, WIDTHS, config_of, pair_with
from helpers.pairs import tiny_pair


def batch_of(pair, ids: list[int]) -> TrainingBatch:
    return compute_training_batch(pair.target.model, torch.tensor([ids])).to_device_in_full_precision("cpu")


def chain(tokens: list[int]) -> DraftTree:
    tree = DraftTree.from_root_token(tokens[0])
    for token in tokens[1:]:
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    return tree


def expected_rows(pair, name: str, root: int, levels: int) -> torch.Tensor:
    """Log-probabilities `[levels, V]` of the training forward along TEXT, with the root at place `root`."""
    net, batch = pair.learned[name], batch_of(pair, TEXT)
    with torch.no_grad():
        if name == "medusa":
            return torch.stack([net(batch.features[0, root - 1, -1], k).log_softmax(-1) for k in range(levels)])
        outs = net.training_rollout_outputs(batch.ids, batch.features, levels)
        own = torch.cat([net.logits(out[:, root - 1]) for out in outs]).log_softmax(-1)
        return torch.full((len(own), net.config.vocab), -torch.inf).index_copy_(1, net.vocabulary, own)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RECIPES)
def test_serving_is_the_training_forward_round_after_round(name, width):
    """A walk along TEXT with accepted paths of 0, 1 and 2 nodes, some drafted deeper than they were accepted."""
    pair = pair_with(name, width=width)
    target = Target(pair.target, 64, features=True)
    drafter = DRAFTERS[name](pair, 64)
    root = 2
    drafter.begin(TEXT[: root + 1], target.prefill_and_return_features(TEXT[:root]))
    for accepted, levels in ((0, 3), (2, 3), (1, 1), (2, 2), (0, 0), (1, 3)):
        tree = chain(TEXT[root : root + 3])
        for level in range(levels):
            found = drafter.log_q(tree, [level])
            expected = expected_rows(pair, name, root, level + 1)[-1]
            assert torch.allclose(found[0].exp(), expected.exp(), atol=1e-4, rtol=0), (root, level)
        _, features = target.verify(tree)
        path = list(range(1, accepted + 1))
        target.commit(path)
        drafter.commit(tree, path, TEXT[root + accepted + 1], features)
        root += accepted + 1


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RECIPES)
def test_trees_of_learned_drafters_write_plain_decodings_tokens(name, width, temperature):
    pair, sampling = pair_with(name, width=width), Sampling(temperature=temperature, seed=5)

    def written(drafter: str) -> list[int]:
        parts = DRAFTERS[drafter](pair, 160), BestFirst(3, 3, 8, "ranked"), TokenMatch()
        target = Target(pair.target, 160, parts[0].reads_features)
        rounds = decode(HostRoundRunner(target, *parts, sampling), TEXT[:1], 40, frozenset(), 160)
        return [token for each in rounds for token in each.burst]

    assert written(name) == written("none")


def test_siblings_do_not_see_each_other():
    """EAGLE's rows behind a node in a wide tree are those of the node's own path drafted alone."""
    pair = pair_with("eagle")
    features = Target(pair.target, 64, features=True).prefill_and_return_features(TEXT[:4])

    def fresh():
        drafter = DRAFTERS["eagle"](pair, 64)
        drafter.begin(TEXT[:5], features)
        return drafter

    wide, alone = DraftTree.from_root_token(TEXT[4]), chain([TEXT[4], 11, 44])
    for token in (10, 11, 12):
        wide.add(0, token, 1.0, 1.0)
    for parent, token in ((1, 43), (2, 44), (3, 45)):
        wide.add(parent, token, 1.0, 1.0)
    drafter = fresh()
    drafter.log_q(wide, [0])
    drafter.log_q(wide, [1, 2, 3])
    in_wide = drafter.log_q(wide, [4, 5, 6])[1]
    drafter = fresh()
    in_chain = [drafter.log_q(alone, [node]) for node in range(3)][-1][0]
    assert torch.allclose(in_wide.exp(), in_chain.exp(), atol=1e-5)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RECIPES)
def test_training_learns_the_targets_words_and_validates_by_depth(name, width):
    pair, recipe = tiny_pair(), RECIPES[name]
    net = recipe.build_untrained_net(pair.target.model, config_of(name, width), torch.tensor(TEXT * 30))
    batch = compute_training_batch(
        pair.target.model, torch.randint(0, 256, (4, 32), generator=torch.Generator().manual_seed(0))
    )
    batch = batch.to_device_in_full_precision("cpu")
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    before = recipe.measure_accuracy_by_depth(net, [batch])
    for step in range(40):
        recipe.compute_training_loss(net, batch, step).backward()
        optimizer.step()
        optimizer.zero_grad()
    after = recipe.measure_accuracy_by_depth(net, [batch])
    assert set(after) == {f"depth {d} {top}" for d in (1, 2, 3) for top in ("top1", "top3")}
    assert after["depth 1 top1"] > max(0.5, before["depth 1 top1"])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RECIPES)
def test_a_net_survives_its_files_and_refuses_another_target(name, width, tmp_path):
    pair = pair_with(name, width=width)
    pair.learned[name].half().float().save(tmp_path / name)
    [(found, net)] = open_lazy_nets(tmp_path, pair.target.model).items()
    assert found == name and type(net) is NETS[name]
    for key, value in pair.learned[name].state_dict().items():
        assert torch.equal(net.state_dict()[key], value), key
    other = pair.target.model
    other.resize_token_embeddings(128)
    with pytest.raises(ValueError, match=r"256 tokens .*size 64, .*128"):
        open_lazy_nets(tmp_path, other)


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 100, b"version https://git-lfs.github.com/spec/v1\n"])
@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_files_that_are_missing_or_corrupt_are_a_sentence(file, content, tmp_path):
    """The last content is what stands there when Git LFS has fetched nothing."""
    pair = pair_with("eagle")
    pair.learned["eagle"].save(tmp_path / "eagle")
    if content is not None:
        (tmp_path / "eagle" / file).write_bytes(content)
    elif file == "model.safetensors":
        (tmp_path / "eagle" / file).unlink()
    else:
        (tmp_path / "eagle" / file).write_text('{"kind": "eagle"}')
    with pytest.raises(ValueError, match=r"eagle.*holds no .*drafter.* Fetch its files anew, or train it"):
        open_lazy_nets(tmp_path, pair.target.model)["eagle"]


def test_a_pair_without_the_drafter_says_how_to_train_it():
    pair = tiny_pair()
    pair.learned.clear()
    with pytest.raises(ValueError, match=r"no trained EAGLE drafter.*python -m engine train eagle"):
        DRAFTERS["eagle"](pair, 64)


def test_cached_shards_hold_what_the_target_makes_of_the_rows(tmp_path):
    model = tiny_pair().target.model
    rows = torch.randint(0, 256, (70, 24), generator=torch.Generator().manual_seed(0)).int()
    write_feature_shards(model, rows.numpy(), tmp_path)
    shards = FeatureShards(tmp_path)
    assert len(shards.paths) == 2
    seen = {tuple(row.tolist()) for step in range(2 * 64 // 8) for row in shards.shuffled_batch_of_step(step, 8).ids}
    assert seen <= {tuple(row.tolist()) for row in rows} and len(seen) == 70
    batch = shards.shuffled_batch_of_step(3, 8)
    fresh = compute_training_batch(model, batch.ids)
    assert torch.equal(batch.ids, shards.shuffled_batch_of_step(3, 8).ids)
    assert torch.allclose(batch.features.float(), fresh.features, atol=1e-2)
    assert torch.equal(batch.tokens[..., 0].long(), fresh.tokens[..., 0])
    with pytest.raises(ValueError, match="No cached features"):
        FeatureShards(tmp_path / "nothing")


def test_eagle_looks_back_no_further_than_its_window(monkeypatch):
    """Guesses behind a long text are those behind its last entries alone, at the same positions."""
    pair, guesses, text = pair_with("eagle"), [], list(range(30, 60))
    monkeypatch.setattr("engine.nets.eagle.Eagle.window", 8)
    features = Target(pair.target, 64, features=True).prefill_and_return_features(text[:20])
    for spoiled in (0, 9, 12):  # entries whose rows are made useless: those before the window, then one in it
        drafter = DRAFTERS["eagle"](pair, 64)
        drafter.begin(text[:20], features[:19])
        tree = DraftTree.from_root_token(text[19])
        drafter.log_q(tree, [0])
        drafter.commit(tree, [], text[20], features[19:20])
        drafter.session.cache.kv[:, :, :, :spoiled] = 7.0
        tree = chain(text[20:22])
        guesses.append(torch.cat([drafter.log_q(tree, [0]), drafter.log_q(tree, [1])]))
    assert torch.equal(guesses[0], guesses[1]) and not torch.allclose(guesses[0], guesses[2])
