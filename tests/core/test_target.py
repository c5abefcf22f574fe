"""Target and Session: a tree's logits are every path's own logits, and a commit leaves the cache of a fresh prefill.

Runs on the transformers path and on our own; random weights, so agreement by chance is out of the question at 1e-4.
"""

import random

import pytest
import torch

from engine.forward.runner import Runner
from engine.target import Target
from engine.tree import DraftTree
from helpers.pairs import tiny_llama
from helpers.trees import random_tree

PROMPT = [5, 80, 33, 12, 200, 41, 7]


def sequential(model, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).logits[0, -1]


def path_tokens(tree, node: int) -> list[int]:
    tokens = []
    while node >= 0:
        tokens.insert(0, tree.tokens[node])
        node = tree.parents[node]
    return tokens


@pytest.fixture(params=["transformers", "own", "own grouped heads", "float64"])
def runner(request) -> Runner:
    model = tiny_llama(0, kv_heads=1 if "grouped" in request.param else 2)
    if request.param == "float64":
        return Runner(model.double(), use_custom_forward=False)
    return Runner(model, use_custom_forward=request.param != "transformers")


def test_tree_logits_are_every_paths_own(runner):
    rng = random.Random(1)
    tolerance = 1e-9 if runner.dtype == torch.float64 else 2e-4
    for size in (1, 2, 9, 20):
        tree = random_tree(rng, size)
        target = Target(runner, 64)
        target.prefill_and_return_features(PROMPT)
        logits, _ = target.verify(tree)
        for node in range(size):
            expected = sequential(runner.model, PROMPT + path_tokens(tree, node))
            assert torch.allclose(logits[node], expected, atol=tolerance, rtol=0), (size, node)


def test_cache_after_each_commit_is_that_of_a_fresh_prefill(runner):
    """Random paths of every length: none accepted, a prefix of the nodes, and nodes that do not lie side by side."""
    rng = random.Random(2)
    target, context, kinds = Target(runner, 160), list(PROMPT), set()
    target.prefill_and_return_features(context)
    for _ in range(12):
        tree = random_tree(rng, 9)
        target.verify(tree)
        path, node = [], 0
        while (children := tree.children(node)) and rng.random() < 0.6:
            node = rng.choice(children)
            path.append(node)
        target.commit(path)
        context += [tree.tokens[node] for node in [0, *path]]
        kinds.add("none" if not path else "contiguous" if path == list(range(1, len(path) + 1)) else "scattered")
        fresh = Target(runner, 160)
        fresh.prefill_and_return_features(context)
        assert target.committed_rows == len(context) == fresh.committed_rows
        kept, expected = (t.session.cache.kv[:, :, :, : len(context)] for t in (target, fresh))
        assert torch.allclose(kept, expected, atol=1e-9 if runner.dtype == torch.float64 else 1e-4, rtol=0)
    assert kinds == {"none", "contiguous", "scattered"}


def test_a_full_cache_says_so():
    session = Runner(tiny_llama(0)).open_session(4)
    with pytest.raises(ValueError, match="holds 4 rows; 0 are committed and 7 more do not fit"):
        session.forward(PROMPT, list(range(7)))


def test_features_are_the_normalised_hidden_states_on_every_way():
    """Our own forward and transformers, in one forward and by tree; the last feature is what the LM head reads."""
    model = tiny_llama(0, layers=4)
    hidden = model(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    early, middle, late = (
        hidden[layer][0] / hidden[layer][0].square().mean(-1, keepdim=True).sqrt() for layer in (1, 2, 3)
    )
    expected = torch.stack([early, middle, late, hidden[-1][0]], 1)
    for own in (True, False):
        target = Target(Runner(model, use_custom_forward=own), 64, features=True)
        found = target.prefill_and_return_features(PROMPT[:-2])
        tree = DraftTree.from_root_token(PROMPT[-2])
        tree.add(0, PROMPT[-1], 1.0, 1.0)
        logits, behind = target.verify(tree)
        assert torch.allclose(torch.cat([found, behind]), expected, atol=1e-3, rtol=0)
        assert torch.allclose(behind[:, -1] @ model.lm_head.weight.T, logits, atol=1e-3, rtol=0)
    assert Target(Runner(model), 64).prefill_and_return_features(PROMPT) is None
    assert Target(Runner(model), 64, features=True).prefill_and_return_features([]).shape == (0, 4, 64)


@pytest.mark.parametrize("own", [True, False])
def test_named_layers_are_read_as_they_are_on_every_way(own):
    """By tree and in the prompt, unlike the features of trained drafters, which are scaled."""
    model = tiny_llama(0, layers=4)
    hidden = model(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    expected = torch.stack([hidden[k][0] for k in (1, 3, -1)], 1)
    target = Target(Runner(model, use_custom_forward=own), 64, features=(1, 3))
    found = target.prefill_and_return_features(PROMPT[:-2])
    tree = DraftTree.from_root_token(PROMPT[-2])
    tree.add(0, PROMPT[-1], 1.0, 1.0)
    assert torch.allclose(torch.cat([found, target.verify(tree)[1]]), expected, atol=1e-4, rtol=1e-4)
