"""Forwards that several sequences share: each gets what it gets alone, whatever the others ask and whoever leaves."""

import random

import pytest
import torch
import transformers as tr

from engine.forward.batch import RowRequest, SharedForwardBatch
from engine.forward.llama import TensorLlama
from engine.forward.llama_compiled import CompiledLlama
from engine.forward.runner import Runner
from engine.target import Target
from engine.tree import DraftTree
from helpers.families import daily, over, random_model, state_model
from helpers.trees import random_tree

CAPACITY, CLOSE = 140, 2e-5
NODES = (1, 2, 3, 5, 8, 13, 24)
SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 160,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
SHARED = {"intermediate_size": 96, "num_key_value_heads": 2}
OTHERS = {
    "gpt2": (tr.GPT2LMHeadModel, {}),
    "qwen3": (tr.Qwen3ForCausalLM, SHARED | {"head_dim": 32}),
    "gemma": (tr.GemmaForCausalLM, SHARED | {"head_dim": 32}),
    "opt": (tr.OPTForCausalLM, {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    "gpt_neox": (tr.GPTNeoXForCausalLM, {"intermediate_size": 96}),
    "falcon": (tr.FalconForCausalLM, {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "mistral, window": (tr.MistralForCausalLM, SHARED | {"sliding_window": 3}),
    "gemma3, window": (
        tr.Gemma3ForCausalLM,
        SHARED | {"head_dim": 16, "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]},
    ),
}


def other_model(name: str):
    kind, sizes = OTHERS[name]
    torch.manual_seed(0)
    model = kind(kind.config_class(**SIZES, **sizes)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    return model


def alike(runner: Runner, rng: random.Random, size: int, rounds: int, features: bool, close: float) -> None:
    """Random trees of sequences with contexts of their own, round after round; now and then one leaves. Each has a twin alone."""
    batch = SharedForwardBatch(runner, size, CAPACITY, features)
    pairs = [(Target(batch, CAPACITY, features), Target(runner, CAPACITY, features)) for _ in range(size)]
    for both in pairs:
        context = [rng.randrange(256) for _ in range(rng.choice((0, 1, 5, 23, 60)))]
        seen = [each.prefill_and_return_features(context) for each in both]
        assert not features or torch.equal(*seen)
    for _ in range(rounds):
        trees = [random_tree(rng, rng.choice(NODES)) for _ in pairs]
        asked = [
            RowRequest(mine.session, *mine.build_tokens_positions_and_node_mask(tree))
            for (mine, _), tree in zip(pairs, trees, strict=True)
        ]
        order = rng.sample(range(len(pairs)), len(pairs))  # the order of asking is not that of the places
        answers = dict(zip(order, batch.forward([asked[index] for index in order]), strict=True))
        for index, ((mine, alone), tree) in enumerate(zip(pairs, trees, strict=True)):
            expected, found = alone.verify(tree), answers[index]
            for one, other in zip(expected, found, strict=True):
                assert (one is None) == (other is None) == (one is None)
                if one is not None:
                    assert one.shape == other.shape and float((one - other).abs().max()) <= close
            path = tree.path_below_root(rng.randrange(len(tree)))
            mine.commit(path)
            alone.commit(path)
        if len(pairs) > 1 and rng.random() < 0.4:
            batch.remove_session(pairs.pop(rng.randrange(len(pairs)))[0].session)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["llama", "llama, biases, tied", "qwen3"])
def test_a_compiled_batch_has_the_bits_of_every_sequence_alone(name, threads):
    model = random_model(name)
    runner, rng = over(CompiledLlama(model, threads), model), random.Random(f"{name} {threads}")
    for size in (1, 2, 5, 16):
        for features in (False, True):
            alike(runner, rng, size, 4, features, close=0.0)


@pytest.mark.parametrize("name", daily(OTHERS, "gpt2", "mistral, window"))
def test_a_padded_batch_of_transformers_is_close_to_every_sequence_alone(name):
    runner, rng = Runner(other_model(name), use_custom_forward=False), random.Random(name)
    for size in (1, 2, 5, 16):
        alike(runner, rng, size, 5, size != 5, CLOSE)


def test_a_sequence_that_takes_a_left_place_keeps_its_rows_and_its_commits():
    """Of three, the first leaves, so the last one moves into its place. Its commits then move rows there."""
    runner, rng = Runner(other_model("gpt2"), use_custom_forward=False), random.Random(1)
    batch = SharedForwardBatch(runner, 3, CAPACITY)
    *others, last = (Target(batch, CAPACITY) for _ in range(3))
    alone = Target(runner, CAPACITY)
    for number, each in enumerate((*others, last, alone)):
        each.prefill_and_return_features([5, 6, 7, 8] if number > 1 else [9] * (3 + number))
    batch.remove_session(others[0].session)
    for _ in range(4):
        tree = random_tree(rng, 8)
        [(found, _)] = batch.forward([RowRequest(last.session, *last.build_tokens_positions_and_node_mask(tree))])
        assert float((found - alone.verify(tree)[0]).abs().max()) <= CLOSE
        for each in (last, alone):
            each.commit(tree.path_below_root(7))


def test_a_batch_of_the_lean_tensors_is_close_to_every_sequence_alone():
    model = random_model("qwen3")
    runner, rng = over(TensorLlama(model), model), random.Random(0)
    for size in (1, 3, 8):
        alike(runner, rng, size, 4, True, CLOSE)


@pytest.mark.parametrize("name", ["mamba2", "lfm2", "qwen3_next", "falcon_h1"])
def test_a_batch_of_a_target_with_states_is_close_to_every_sequence_alone(name):
    runner, rng = Runner(state_model(name)), random.Random(name)
    for size in (1, 2, 5):
        alike(runner, rng, size, 4, False, 1e-4)


def test_what_a_batch_cannot_do_is_refused_with_a_sentence():
    batch = SharedForwardBatch(Runner(other_model("gpt2"), use_custom_forward=False), 2, CAPACITY)
    first, second = (batch.open_session(CAPACITY) for _ in range(2))
    with pytest.raises(ValueError, match="The batch has its 2 sequences"):
        batch.open_session(CAPACITY)
    batch.remove_session(first)
    with pytest.raises(ValueError, match="not in the batch"):
        batch.remove_session(first)
    with pytest.raises(ValueError, match="is not in it"):
        batch.forward([RowRequest(first, [1], [0], None)])
    with pytest.raises(ValueError, match="140 rows and features False, got 9 and True"):
        batch.open_session(9, True)
    with pytest.raises(ValueError, match=r"2 rows of a batch need a mask \[2, M\], got None"):
        batch.forward([RowRequest(second, [1, 2], [0, 1], None)])
    with pytest.raises(ValueError, match="holds 140 rows"):
        batch.forward([RowRequest(second, [1] * 141, [0] * 141, torch.ones(141, 141, dtype=torch.bool))])
    with pytest.raises(ValueError, match="at least one sequence, got 0"):
        SharedForwardBatch(batch.runner, 0, CAPACITY)


def test_a_full_cache_beside_a_large_tree_is_refused_before_anything_is_written():
    """Padding needs room too, so a sequence near its cache's end cannot share a forward with a large tree."""
    runner = Runner(other_model("gpt2"), use_custom_forward=False)
    batch = SharedForwardBatch(runner, 2, 40)
    long, short = (Target(batch, 40) for _ in range(2))
    long.prefill_and_return_features(list(range(35)))
    short.prefill_and_return_features([1])
    tree = random_tree(random.Random(0), 8)
    with pytest.raises(ValueError, match="8 rows a sequence does not fit a cache of 40 rows"):
        batch.forward(
            [
                RowRequest(long.session, *long.build_tokens_positions_and_node_mask(DraftTree.from_root_token(3))),
                RowRequest(short.session, *short.build_tokens_positions_and_node_mask(tree)),
            ]
        )
