"""DFlash's recipe beside the drafter that serves: the same states for the same text, whatever stands behind an anchor."""

from dataclasses import replace

import torch

from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.nets import load_nets
from engine.target import Target
from engine.train import dflash
from engine.train.features import observe
from engine.train.learned import config_for
from engine.tree import DraftTree
from helpers.learned import TEXT
from helpers.pairs import tiny_llama, tiny_pair

LENGTH = 24


@torch.no_grad()
def test_a_trained_block_guesses_what_training_saw(tmp_path):
    """The net goes through z-lab's files, so that what was trained is what every engine reads."""
    target = tiny_llama(0, layers=8)
    torch.manual_seed(1)
    net = dflash.build(target, config_for("dflash", target))
    for parameter in net.parameters():
        parameter.copy_(parameter + 0.1 * torch.randn_like(parameter)).copy_(parameter.half())
    net.save(tmp_path / "dflash")
    ids = torch.tensor([TEXT[:LENGTH], TEXT[::-1][:LENGTH]])
    anchors = torch.tensor([3, 9, 10])
    seen = dflash.logits(net, dflash.states(net, observe(target, ids), anchors)).softmax(-1)
    pair = replace(tiny_pair(), target=Runner(target), learned=load_nets(tmp_path, target))
    pair.net("dflash").compiled = None
    for row, text in enumerate(ids.tolist()):
        for number, anchor in enumerate(anchors.tolist()):
            drafter = DRAFTERS["dflash"](pair, 64)
            features = Target(pair.target, 64, drafter.reads_features).prefill(text[:anchor])
            drafter.begin(text[: anchor + 1], features)
            served = drafter.log_q(DraftTree.rooted(text[anchor]), [0]).exp()
            assert torch.allclose(served[0], seen[row, number, 0], atol=1e-5, rtol=0), (row, anchor)
            assert torch.allclose(drafter.levels.exp(), seen[row, number], atol=1e-5, rtol=0), (row, anchor)


@torch.no_grad()
def test_the_loss_is_that_of_the_labels_places():
    """A head that knows the next tokens by heart has no loss but the labels' own entropy; one place off, it has more."""
    target = tiny_llama(0, layers=8)
    net = dflash.build(target, config_for("dflash", target))
    batch = observe(target, torch.tensor([TEXT[:LENGTH]]))
    at = torch.tensor([2, 5])
    places = dflash.labelled(net, at)
    assert places.tolist() == [list(range(2, 9)), list(range(5, 12))]  # slot 1 guesses the token behind its anchor
    assert 0 < float(dflash.loss(net, batch, 0)) < 20
    figures = dflash.validate(net, [batch])
    assert all(0 <= figures[f"depth {depth} top{n}"] <= 1 for depth in range(1, 8) for n in (1, 3))
