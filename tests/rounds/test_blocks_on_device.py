"""SpecBlock's further blocks on a device, run eagerly: they start where the host starts them, and the trees are the host's."""

from dataclasses import replace

import pytest
import torch

from engine.models.loading import load_pair_anew
from engine.models.pairs import PAIRS
from engine.sampling import Sampling
from engine.systems import SYSTEMS
from helpers.decoding import lane_rounds, rounds_compared
from helpers.learned import specblock_net
from helpers.pairs import PROMPT, tiny_llama, tiny_pair

STORY = "Once upon a time there was a little fox. He"
SHAPES = [(4, 4, 12), (8, 4, 24), (12, 4, 24)]  # depth, width and nodes: one block, two and three below each other
OTHERS = [(2, 5, 9), (6, 2, 7), (8, 1, 9), (20, 6, 60), (11, 9, 16), (12, 2, 30)]
pytestmark = pytest.mark.usefixtures("small_capacities")


@pytest.fixture(scope="module")
def trained_pair():
    """The small pair. Its net drafts in float32 on both ways."""
    pair = load_pair_anew(PAIRS["small"], "cpu", "fp32", "none")
    pair.net("specblock").compiled = None
    return pair


@pytest.fixture(scope="module")
def sharp_pair():
    """A random pair whose net is sure of its favourites at some positions and not at others."""
    net = specblock_net(tiny_llama(0)).requires_grad_(False)
    torch.manual_seed(1)
    for parameter in (*net.layers.parameters(), *net.rank_in.parameters(), *net.rank_out.parameters()):
        parameter.add_(0.1 * torch.randn_like(parameter))
    net.unembed.mul_(3)
    return replace(tiny_pair(), learned={"specblock": net})


def compare(pair, prompt: list[int], tokens: int, shape: tuple[int, int, int], **how) -> list:
    """The device's rounds, each of which is the loop's: tokens, parents, depth, scores, q, path and logits."""
    loop, device = lane_rounds(pair, "specblock", prompt, tokens, shape, **how)
    for compared in rounds_compared(loop, device):
        compared.check()
    return device


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_trained_net_grows_the_hosts_trees(trained_pair, shape, temperature):
    device = compare(trained_pair, trained_pair.tokenizer.encode(STORY), 24, shape, temperature=temperature, seed=2)
    assert max(max(each.tree.depth) for each in device) > shape[0] - 4  # within the last block


@pytest.mark.parametrize(
    ("prompt", "temperature", "stop_ids"),
    [(PROMPT, 0.0, frozenset()), ([7], 0.8, frozenset()), (PROMPT, 0.8, frozenset(range(0, 256, 5)))],
)
def test_so_does_a_random_one_in_any_shape(sharp_pair, prompt, temperature, stop_ids):
    """Nothing grows below a stop token, and no node stands behind the end of the text."""
    pair, deepest = replace(sharp_pair, stop_ids=stop_ids), 0
    for shape in OTHERS:
        for each in compare(pair, prompt, 13, shape, temperature=temperature, seed=5):
            inner = [each.tree.tokens[node] for node in each.tree.parents[1:] if node]
            assert not stop_ids.intersection(inner)
            assert each.position + max(each.tree.depth) < len(prompt) + 13
            deepest = max(deepest, *each.tree.depth)
    assert deepest > 8


@pytest.mark.parametrize("length", [1, 5, 9, 10])
def test_a_text_that_is_about_to_end_gets_the_hosts_blocks(trained_pair, length):
    device = compare(trained_pair, trained_pair.tokenizer.encode(STORY), length, (12, 4, 24))
    assert device[-1].end == "length" and max(max(each.tree.depth) for each in device) < length


@pytest.mark.parametrize(("shape", "forwards"), [((4, 4, 12), 1), ((5, 4, 12), 2), ((8, 4, 12), 2), ((20, 4, 12), 3)])
def test_a_generation_of_blocks_takes_one_forward(sharp_pair, shape, forwards):
    rounds = SYSTEMS["specblock"].open_rounds(
        sharp_pair,
        200,
        dict(zip(("depth", "width", "nodes"), shape, strict=True)),
        Sampling(device=torch.device("cpu")),
    )
    rounds.prefill_and_return_seconds(PROMPT, 60)
    rounds.run_round()
    assert rounds.draft_forward_count == forwards
