"""Long contexts: prompts of more than one chunk, keys far back, and hundreds of commits, against transformers and a fresh prefill."""

import random
from functools import cache

import pytest
import torch

from engine.forward.llama import TensorLlama
from engine.forward.llama_compiled import CompiledLlama
from engine.forward.runner import Runner
from engine.forward.session import PREFILL_CHUNK
from engine.target import Target
from helpers.families import MODELS, SIZES, over, unlightened
from helpers.trees import random_tree

LONGEST = 1200
WAYS = ("compiled", "tensors", "transformers")
WITHIN = 1e-3  # of logits of about 1; what a wrong position or a forgotten key changes is a hundred times as much


@cache
def long_model(name: str):
    """A random model of two layers with a window of `LONGEST` tokens."""
    kind, config, sizes = MODELS[name]
    torch.manual_seed(1)
    longer = {"max_position_embeddings": LONGEST, "num_hidden_layers": 2, "use_sliding_window": False}
    model = kind(config(**{**SIZES, **sizes, **longer}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    return model.eval()


@cache
def runner_of(name: str, way: str) -> Runner:
    model = long_model(name)
    if way == "transformers":
        return unlightened(model)
    return over(CompiledLlama(model, 2) if way == "compiled" else TensorLlama(model), model)


@cache
def text(seed: int = 0) -> list[int]:
    return torch.randint(0, 256, (LONGEST,), generator=torch.Generator().manual_seed(seed)).tolist()


@cache
def expected(name: str) -> torch.Tensor:
    """transformers' own logits behind every token of the text, in one forward."""
    with torch.inference_mode():
        return long_model(name)(input_ids=torch.tensor([text()])).logits[0]


def near(found: torch.Tensor, right: torch.Tensor) -> bool:
    return bool((found - right).abs().max() < WITHIN)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["llama", "qwen3", "llama 3", "qwen2", "mistral"])
def test_a_prompt_of_several_chunks_is_read_as_one(name, way):
    """At the chunk's end, one token before and behind it, and in the third chunk."""
    runner = runner_of(name, way)
    for length in (PREFILL_CHUNK - 1, PREFILL_CHUNK, PREFILL_CHUNK + 1, 2 * PREFILL_CHUNK + 5):
        session = runner.open_session(LONGEST)
        logits, _ = session.prefill(text()[:length])
        assert session.rows == length and near(logits[0], expected(name)[length - 1]), length


@pytest.mark.parametrize("way", WAYS)
def test_features_of_a_prompt_of_several_chunks_are_those_of_all_its_tokens(way):
    """By transformers' own modules, a hundred tokens at a time."""
    _, features = runner_of("llama", way).open_session(LONGEST, feature_layers=True).prefill(text()[:700])
    one, whole = runner_of("llama", "transformers").open_session(LONGEST, feature_layers=True), []
    for start in range(0, 700, 100):
        _, seen = one.forward(text()[start : start + 100], list(range(start, start + 100)))
        one.keep(list(range(100)))
        whole.append(seen)
    assert features.shape[0] == 700 and near(features, torch.cat(whole))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["llama", "llama, all heads", "qwen3"])
def test_a_tree_sees_keys_a_thousand_rows_back(name, way):
    """A tree, then a single row. With random weights every key counts, so one that is forgotten shows."""
    start, target = 1100, Target(runner_of(name, way), LONGEST)
    target.prefill_and_return_features(text()[:start])
    tree = random_tree(random.Random(3), 12)
    leaf = 11
    path = [0, *tree.path_below_root(leaf)]
    for place, node in enumerate(path):
        tree.tokens[node] = text()[start + place]
    logits, _ = target.verify(tree)
    assert near(logits[path], expected(name)[start : start + len(path)])
    target.commit(path[1:])
    single, _ = target.session.forward([text()[target.committed_rows]], [target.committed_rows])
    assert near(single[0], expected(name)[target.committed_rows])


@pytest.mark.parametrize("way", WAYS)
def test_what_stands_first_in_a_long_text_still_counts_at_its_end(way):
    """So the tests above could not pass with a window of 600 rows."""
    found = []
    for first in (text()[0], text()[0] ^ 1):
        session = runner_of("llama", way).open_session(LONGEST)
        found.append(session.prefill([first, *text()[1:700]])[0])
    assert (found[0] - found[1]).abs().max() > 1e-4


@pytest.mark.parametrize("way", WAYS)
def test_after_two_hundred_rounds_the_cache_is_that_of_a_fresh_prefill(way):
    """Random trees and random paths. The compiled forward's rows have the very bits."""
    rng, runner = random.Random(4), runner_of("llama", way)
    target, context = Target(runner, LONGEST), text()[:200]
    target.prefill_and_return_features(context)
    for _ in range(200):
        tree = random_tree(rng, rng.choice((1, 4, 9)))
        target.verify(tree)
        path = tree.path_below_root(rng.randrange(len(tree)))
        target.commit(path)
        context = context + [tree.tokens[node] for node in (0, *path)]
        assert target.committed_rows == len(context)
    assert len(context) > PREFILL_CHUNK
    fresh = Target(runner, LONGEST)
    fresh.prefill_and_return_features(context)
    kept, right = (each.session.cache.kv[:, :, :, : len(context)] for each in (target, fresh))
    assert kept.equal(right) if way == "compiled" else near(kept, right)
