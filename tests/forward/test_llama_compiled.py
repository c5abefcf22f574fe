"""The compiled forward: a tree's node gets plain decoding's bits, whatever the tree, the context, the model and the threads."""

import random
import threading
import time
from functools import cache

import numpy as np
import pytest
import torch

from engine.forward.cache import KVCache
from engine.forward.llama_compiled import CompiledLlama, can_compile_forward
from engine.forward.rounded_linear import LARGE_HEAD, EightBitLinear
from engine.forward.runner import Runner
from engine.forward.sizes import head_dim_of
from engine.kernels import rounded as rounded_products
from engine.kernels import stored
from engine.models.quantising import replace_with_rounded_linear
from engine.target import Target
from helpers.families import MODELS, over, random_model
from helpers.pairs import tiny_llama
from helpers.trees import random_tree

TREES, THREADS = 2000, (1, 2, 3, 8)
LIKE = {
    "llama": "fp32",
    "llama, all heads": "fp16",
    "llama, biases, tied": "bf16",
    "qwen2": "fp16",
    "qwen3": "fp32",
    "llama in 8 bits": "8-bit",
    "llama, biases, tied in 8 bits": "8-bit",
    "qwen3 in 8 bits": "8-bit",
    "llama, large head in 8 bits": "8-bit",
}
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "8-bit": torch.int8}


def with_large_head(model):
    """The model with more logits than it has tokens, and a bias to each."""
    torch.manual_seed(1)
    model.config.vocab_size = LARGE_HEAD + 300
    model.lm_head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size).requires_grad_(False)
    return model


def rounded(name: str, dtype: torch.dtype):
    """A random model whose weights that type holds exactly, in float32 or in eight bits."""
    if "large head" in name:
        return with_large_head(replace_with_rounded_linear(random_model("llama")))
    if dtype == torch.int8:
        return replace_with_rounded_linear(random_model(name.removesuffix(" in 8 bits")))
    model = random_model(name).to(dtype).float()
    if dtype == torch.bfloat16:
        for parameter in model.parameters():
            parameter.data.view(-1)[0] = 2.0**-60  # too small for fp16
    return model.eval()


@cache
def compiled(name: str, threads: int) -> Runner:
    model = rounded(name, TYPES[LIKE[name]])
    return over(CompiledLlama(model, threads), model)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()


def plainly(runner: Runner, context: list[int], tokens: list[int]) -> list[tuple[bytes, bytes]]:
    """Logits and features behind each of the tokens, decoded one by one behind the context."""
    target = Target(runner, 140, features=True)
    target.prefill_and_return_features(context)
    found = []
    for token in tokens:
        place = target.committed_rows
        logits, features = target.session.forward([token], [place])
        target.session.keep([0])
        found.append((bits(logits[0]), bits(features[0])))
    return found


@pytest.mark.parametrize("name", LIKE)
def test_a_trees_node_has_the_bits_of_plain_decoding_its_path(name):
    """Random trees behind random contexts and commits, with every number of threads: the difference is 0.0."""
    rng = random.Random(name)
    for number in range(TREES // len(LIKE)):
        runner = compiled(name, THREADS[number % len(THREADS)])
        context = [rng.randrange(256) for _ in range(rng.choice((0, 1, 5, 23, 60)))]
        tree = random_tree(rng, rng.choice((1, 2, 3, 5, 7, 8, 9, 13, 24, 40)))
        target = Target(runner, 140, features=True)
        target.prefill_and_return_features(context)
        if rng.random() < 0.5:  # a commit in another round moves rows
            earlier = random_tree(rng, 9)
            target.verify(earlier)
            path = earlier.path_below_root(rng.randrange(9))
            target.commit(path)
            context = context + [earlier.tokens[node] for node in (0, *path)]
        logits, features = target.verify(tree)
        leaf = rng.randrange(len(tree))
        path = [0, *tree.path_below_root(leaf)]
        expected = plainly(compiled(name, 1), context, [tree.tokens[node] for node in path])
        assert [(bits(logits[node]), bits(features[node])) for node in path] == expected, (name, number)


@pytest.mark.parametrize("name", LIKE)
def test_neither_threads_nor_the_stored_type_nor_the_pieces_of_a_prompt_change_a_bit(name, monkeypatch):
    ids = torch.randint(0, 256, (90,), generator=torch.Generator().manual_seed(1)).tolist()

    def said(net: CompiledLlama, model, steps: tuple[int, ...]) -> bytes:
        session, found = over(net, model).open_session(100, feature_layers=True), b""
        for step in steps:
            places = list(range(session.rows, session.rows + step))
            logits, features = session.forward([ids[place] for place in places], places)
            session.keep(list(range(step)))
            found += b"".join(bits(row) + bits(features[at]) for at, row in enumerate(logits))
        return found

    model = rounded(name, TYPES[LIKE[name]])
    first = said(CompiledLlama(model, 1), model, (90,))
    for threads in THREADS[1:]:
        assert said(CompiledLlama(model, threads), model, (60, 12, 8, 7, 3)) == first
    assert TYPES[LIKE[name]] is stored.KINDS[CompiledLlama(model, 1).weights.nests[1].qkv.shape[3]]
    if TYPES[LIKE[name]] is torch.int8:
        for way in rounded_products.WAYS:  # whole numbers add up alike, however a processor multiplies them
            monkeypatch.setattr(stored, "WAY", way)
            monkeypatch.setattr(
                stored,
                "lay_out_rounded_blocks",
                lambda *made, way=way: rounded_products.lay_out_rounded_blocks(*made, way),
            )
            assert said(CompiledLlama(model, 2), model, (90,)) == first
    else:
        monkeypatch.setattr(stored, "KINDS", stored.KINDS[:1])
        monkeypatch.setattr(stored, "ROUNDED", 1)
        assert said(CompiledLlama(model, 2), model, (90,)) == first


def test_a_large_head_rounds_all_logits_but_the_likeliest():
    """They are those of the head itself. All others are those of a head in eight bits, bit for bit."""
    runner = compiled("llama, large head in 8 bits", 2)
    session, head = (
        runner.open_session(40, feature_layers=True),
        rounded("llama, large head in 8 bits", torch.int8).lm_head,
    )
    logits, features = session.forward(list(range(30)), list(range(30)))
    exact, other = head(features[:, -1]), EightBitLinear(head.weight, head.bias)(features[:, -1])
    changed = logits != other
    assert changed.sum(-1).min() >= stored.LIKELIEST and changed.sum(-1).max() < 3 * stored.LIKELIEST
    assert changed.gather(1, other.topk(stored.LIKELIEST).indices).all()
    assert (logits - exact)[changed].abs().max() < 1e-5 < (other - exact).abs().mean()


@pytest.mark.parametrize("name", MODELS)
def test_a_prompts_last_logits_are_those_of_all_logits(name):
    """Without features, nothing is computed behind the last layer's keys and values that nobody asks for."""
    model = random_model(name)
    net, ids = CompiledLlama(model, 2), torch.arange(30)
    visible = torch.ones(30, 30, dtype=torch.bool).tril_()
    config, caches = model.config, []
    for last_only in (False, True):
        cache = KVCache(
            config.num_hidden_layers, config.num_key_value_heads, head_dim_of(config), 30, model.dtype, model.device
        )
        logits, features = net(cache, ids, ids, visible, last_only)
        assert features is None and len(logits) == (1 if last_only else 30)
        caches.append((bits(logits[-1]), bits(cache.kv)))
    assert caches[0] == caches[1]


def test_calls_at_the_same_time_disturb_each_other_in_nothing():
    """One of them has the team; the others run alone."""
    runner, rng = compiled("llama", 2), random.Random(5)
    contexts = [[rng.randrange(256) for _ in range(40)] for _ in range(3)]
    expected = [plainly(runner, context, [3, 5, 7]) for context in contexts]
    found: dict[int, list] = {}

    def work(index: int) -> None:
        found[index] = [plainly(runner, contexts[index], [3, 5, 7]) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each == expected[index] for index, several in found.items() for each in several) and len(found) == 3


def test_threads_that_wait_sleep_and_wake_again():
    runner = compiled("llama", 2)
    expected, team = plainly(runner, [1, 2, 3], [4]), runner.own.team
    for _ in range(3):
        deadline = time.monotonic() + 20
        while not team.asleep[1] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert team.asleep[1]
        begun = time.process_time()
        time.sleep(0.2)
        assert time.process_time() - begun < 0.1
        assert plainly(runner, [1, 2, 3], [4]) == expected


def test_the_compiled_forward_takes_float32_in_eights_where_code_compiles(monkeypatch):
    assert can_compile_forward(tiny_llama(0)) and Runner(tiny_llama(0)).forward_kind == "compiled"
    assert Runner(random_model("llama", torch.bfloat16)).forward_kind == "tensors"
    assert Runner(tiny_llama(0), use_custom_forward=False).forward_kind == "transformers"
    assert not can_compile_forward(random_model("llama", torch.bfloat16))
    monkeypatch.setattr("engine.forward.llama_compiled.can_compile_here", lambda: False)
    assert not can_compile_forward(tiny_llama(0)) and Runner(tiny_llama(0)).forward_kind == "tensors"


def test_a_matrix_is_stored_in_the_smallest_type_that_holds_it():
    """Matrices of one type and width share a compiled loop."""
    loops = []
    made = torch.randn(40, 24, generator=torch.Generator().manual_seed(0))
    for dtype, size in ((torch.float32, 4), (torch.float16, 2), (torch.bfloat16, 2)):
        made[0, 0] = 2.0**-60 if dtype == torch.bfloat16 else 1.0
        kept = stored.StoredMatrix.store_exactly(made.to(dtype).float())
        assert kept.codes.size == 64 * 24 * size and kept.shape.tolist()[:2] == [40, 24]
        assert stored.KINDS[kept.shape[3]] is dtype
        loops += [
            kept.product_loop_address,
            stored.StoredMatrix.store_exactly(made.to(dtype).float()).product_loop_address,
        ]
    assert loops[::2] == loops[1::2] and len(set(loops)) == 3
    closed_over = stored.make_stored_block_multiplier(0, stored.BLOCK).py_func.__closure__
    assert all(type(each.cell_contents) is int for each in closed_over)  # else every start would compile it again
    assert np.array_equal(stored.StoredMatrix.store_exactly(made, torch.arange(40)).bias, np.arange(40))


def test_matrices_lie_in_pieces_so_large_that_the_system_can_keep_them_in_large_pages(monkeypatch):
    monkeypatch.setattr(stored, "PIECE", 10_000)
    pieces, made = stored.LargePageMemory(), [torch.randn(40, 24 * each) for each in (1, 1, 5, 1)]
    alone = [stored.StoredMatrix.store_exactly(each.half().float()) for each in made]
    held = [pieces.copy_into_pages(each) for each in alone]
    for one, other in zip(alone, held, strict=True):
        assert np.array_equal(one.codes, other.codes) and other.codes.ctypes.data % stored.LINE == 0
        assert all(left is right for left, right in zip(one[1:], other[1:], strict=True))
    bases = [each.codes.base for each in held]
    assert bases[0] is bases[1]  # 3,072 bytes each, and 15,360 of the third
    assert (
        bases[2] is not bases[3] and bases[2].nbytes == 15_360 + stored.LINE and bases[3].nbytes == 10_000 + stored.LINE
    )
