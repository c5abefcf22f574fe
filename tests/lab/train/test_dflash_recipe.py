"""The recipes of DFlash and DSpark beside their drafters: the same guesses for the same text, whatever stands behind an anchor."""

from dataclasses import replace

import pytest
import torch

from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.lab.train.features import compute_training_batch
from engine.lab.train.learned import RECIPES, drafter_config_for
from engine.lab.train.loop import muon_and_adamw_for
from engine.nets import open_lazy_nets
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import TEXT
from helpers.pairs import tiny_llama, tiny_pair

BLOCKS = ("dflash", "dspark")


@pytest.mark.parametrize("hidden", [64, 32])
@pytest.mark.parametrize("name", BLOCKS)
@torch.no_grad()
def test_a_trained_block_guesses_what_training_saw(name, hidden, tmp_path):
    """The net goes through the published form's files, so that what was trained is what every engine reads."""
    target, recipe = tiny_llama(0, layers=8), RECIPES[name]
    torch.manual_seed(1)
    net = recipe.build_untrained_net(target, drafter_config_for(name, target, hidden))
    for parameter in net.parameters():
        parameter.copy_(parameter + 0.1 * torch.randn_like(parameter)).copy_(parameter.half())
    net.save(tmp_path / name)
    ids = torch.tensor([TEXT, TEXT[::-1]])
    anchors = torch.tensor([3, 8, 9])
    logits, places = recipe.compute_slot_logits_and_places(net, compute_training_batch(target, ids), anchors)
    assert places.tolist() == [
        list(range(anchor, anchor + 7)) for anchor in (3, 8, 9)
    ]  # the first guess is behind the anchor
    pair = replace(tiny_pair(), target=Runner(target), learned=open_lazy_nets(tmp_path, target))
    pair.net(name).compiled = None
    for row, text in enumerate(ids.tolist()):
        for number, anchor in enumerate(anchors.tolist()):
            drafter = DRAFTERS[name](pair, 64)
            features = Target(pair.target, 64, drafter.reads_features).prefill_and_return_features(text[:anchor])
            drafter.begin(text[: anchor + 1], features)
            path = DraftTree.from_root_token(text[anchor])
            for token in text[anchor + 1 : anchor + 7]:
                path.add(len(path) - 1, token, 1.0, 1.0)
            served = drafter.log_q(path, list(range(len(path)))).exp()
            seen = logits[row, number, : len(path)].softmax(-1)
            assert len(path) == 7 and torch.allclose(served, seen, atol=1e-5, rtol=0), (row, anchor)


@pytest.mark.parametrize("name", BLOCKS)
@torch.no_grad()
def test_losses_and_figures_are_numbers_of_all_depths(name):
    target, recipe = tiny_llama(0, layers=8), RECIPES[name]
    net = recipe.build_untrained_net(target, drafter_config_for(name, target))
    batch = compute_training_batch(target, torch.tensor([TEXT]))
    assert 0 < float(recipe.compute_training_loss(net, batch, 0)) < 20
    figures = recipe.measure_accuracy_by_depth(net, [batch])
    assert all(0 <= figures[f"depth {depth} top{n}"] <= 1 for depth in range(1, 8) for n in (1, 3))


def test_a_step_teaches_the_bias_and_muon_leaves_it_alone():
    """Tables with a row a token have no place in Muon, which would turn all rows alike."""
    target, recipe = tiny_llama(0, layers=8), RECIPES["dspark"]
    net = recipe.build_untrained_net(target, drafter_config_for("dspark", target))
    recipe.compute_training_loss(net, compute_training_batch(target, torch.tensor([TEXT])), 0).backward()
    before, after = (net.markov_head[f"markov_w{n}"].weight for n in (1, 2))
    assert after.grad.abs().sum() > 0
    muon, _ = (
        {id(each) for group in one.param_groups for each in group["params"]} for one in muon_and_adamw_for(net, 1e-3)
    )
    assert not muon & {id(before), id(after)} and id(net.fc.weight) in muon
