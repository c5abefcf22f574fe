"""Untrained Medusa and EAGLE nets for a tiny pair, far enough from zero that a wrong weight shows."""

import torch

from engine.nets import NetConfig
from engine.train import eagle, medusa
from helpers.pairs import tiny_pair

CONFIGS = {
    "medusa": NetConfig("medusa", 64, 2, 128, layers=0, depth=3, vocab=256),
    "eagle": NetConfig("eagle", 64, 2, 128, layers=1, depth=3, vocab=256, own_vocab=200),
}
RECIPES = {"medusa": medusa, "eagle": eagle}
TEXT = [5, 80, 33, 12, 200, 41, 7, 9, 150, 61, 2, 99, 31, 64, 18, 77]


def pair_with(*names: str):
    pair = tiny_pair()
    torch.manual_seed(3)
    for name in names:
        net = RECIPES[name].build(pair.target.model, CONFIGS[name], torch.tensor(TEXT * 30))
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        pair.learned[name] = net.eval().requires_grad_(False)
    return pair
