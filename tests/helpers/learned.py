"""Untrained nets for a tiny pair, and rounds that their drafters draft in. Medusa's and EAGLE's weights are far from zero, so that a
wrong one shows. Every net comes in two widths: its target's, and one of its own.
"""

from dataclasses import replace

import torch

from engine.forward.llama_layer import Rotary
from engine.lab.train import eagle, medusa, parallel, specblock
from engine.lab.train.width import DrafterSizes
from engine.nets import NetConfig
from engine.nets.dflash import DFlash, DFlashSizes
from engine.nets.dspark import DSparkSizes
from engine.target import Target
from engine.tree import DraftTree
from helpers.pairs import tiny_pair

WIDTHS = {"": DrafterSizes(64, 2, 128), "narrow": DrafterSizes(32, 2, 96, target_hidden=64)}
SIZES = {
    "medusa": {"layers": 0, "depth": 3},
    "eagle": {"layers": 1, "depth": 3, "own_vocab": 200},
    "parallel": {"layers": 2, "depth": 4},
    "specblock": {"layers": 2, "depth": 4},
}
RECIPES = {"medusa": medusa, "eagle": eagle}
TEXT = [5, 80, 33, 12, 200, 41, 7, 9, 150, 61, 2, 99, 31, 64, 18, 77]


def config_of(name: str, width: str = "") -> NetConfig:
    return NetConfig(name, vocab=256, **SIZES[name], **WIDTHS[width]._asdict())


def pair_with(*names: str, width: str = "", own_vocab: int | None = None):
    """With `own_vocab` nets guess so many tokens."""
    pair = tiny_pair()
    torch.manual_seed(3)
    for name in names:
        config = config_of(name, width)
        config = config if own_vocab is None else replace(config, own_vocab=own_vocab)
        net = RECIPES[name].build_untrained_net(pair.target.model, config, torch.tensor(TEXT * 30))
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        pair.learned[name] = net.eval().requires_grad_(False)
    return pair


def parallel_net(target, width: str = ""):
    torch.manual_seed(0)
    return parallel.build_untrained_net(target, config_of("parallel", width)).requires_grad_(False)


@torch.no_grad()
def block_net(
    kind: type[DFlash], width: str = "", some: bool | None = None, reads: tuple[int, ...] = (1, 3, 5)
) -> DFlash:
    """A random DFlash or DSpark with all that a published checkpoint may have: grouped heads, biases, a factor.

    DSpark guesses from the anchor on. With `some` it guesses some of the target's tokens, as DFlash does where nothing is said.
    """
    some = kind is DFlash if some is None else some
    draw, wide = torch.Generator().manual_seed(6), WIDTHS[width]

    def random(rows: int) -> torch.Tensor:
        return torch.randn(rows, wide.hidden, generator=draw)

    own = torch.randperm(256, generator=draw)[:120] if some else torch.arange(256)
    sizes = DFlashSizes(
        hidden=wide.hidden, heads=4, kv_heads=2, head_dim=32, mlp=96, layers=2, vocab=256, own_vocab=len(own), eps=1e-5,
        reads_features=reads, block_size=5, mask_token_id=250, rotary=Rotary(1e4 ** -torch.linspace(0, 1, 16), 1.3),
        attention_bias=True, target_hidden=wide.target_hidden,
    )  # fmt: skip
    if kind is not DFlash:
        sizes = DSparkSizes(**{**vars(sizes), "anchor_slot_predicts": True}, markov_rank=12)
    net = kind(sizes, random(256), random(len(own)) / 4, own, {}).eval().requires_grad_(False)
    for name, weight in net.state_dict().items():
        noise = torch.randn(weight.shape, generator=draw)
        if name not in net.used_table_names:
            weight.copy_(("norm" in name) + 0.3 * noise if weight.ndim == 1 else noise * 2 / weight.shape[1] ** 0.5)
    return net


def specblock_net(target, seed: int = 0, width: str = ""):
    torch.manual_seed(seed)
    return specblock.build_untrained_net(target, config_of("specblock", width))


def parallel_rounds(pair, drafter, prompt: list[int], count: int = 5):
    """Rounds with a tree of two branches. The target takes one or two nodes of each tree. Yields the text up to every root."""
    target, text = Target(pair.target, 120, features=True), list(prompt)
    drafter.begin(prompt, target.prefill_and_return_features(prompt[:-1]))
    for number in range(count):
        tree = DraftTree.from_root_token(text[-1])
        for parent in (0, 0, 1, 2):
            tree.add(parent, (17 * number + 5 * len(tree)) % 256, 0.5, 0.5)
        yield text, tree
        _, features = target.verify(tree)
        path, bonus = [[], [2], [1, 3], [2, 4], [1]][number], (31 * number) % 256
        target.commit(path)
        drafter.commit(tree, path, bonus, features)
        text += [tree.tokens[node] for node in path] + [bonus]


def specblock_rounds(pair, drafter, prompt: list[int], count: int = 4):
    """Rounds with a tree of chains and branches. Yields the text up to every root, and the tree."""
    target, text = Target(pair.target, 140, features=True), list(prompt)
    drafter.begin(prompt, target.prefill_and_return_features(prompt[:-1]))
    for number in range(count):
        tree = DraftTree.from_root_token(text[-1])
        for parent in (0, 0, 1, 2, 3, 5, 6, 7, 8, 9, 4):
            tree.add(parent, (17 * number + 5 * len(tree)) % 256, 0.5, 0.5)
        yield text, tree
        _, features = target.verify(tree)
        path, bonus = [[], [2, 4], [1, 3, 5, 6, 7], [1]][number], (31 * number) % 256
        target.commit(path)
        drafter.commit(tree, path, bonus, features)
        text += [tree.tokens[node] for node in path] + [bonus]
