"""Batched decoding: every sequence writes what it writes alone, and nobody notices who ends beside it."""

import gc
import weakref
from collections import defaultdict
from dataclasses import replace
from functools import cache

import pytest

from engine.batch import decode_batch_round_by_round, divide_costs_by_batch_size
from engine.decode import Round, decode
from engine.forward.cache import KVCache
from engine.forward.runner import Runner
from engine.record.costs import Costs
from engine.sampling import Sampling
from engine.systems import System, resolve_system_name
from engine.tree import LARGEST_TREE
from helpers.families import daily
from helpers.pairs import tiny_llama, tiny_pair

TEXTS = [
    "Story: Once upon a time",
    "# Python\ndef is_even(n):",
    "x",
    "Story: A cat saw a dog. The dog saw the cat. The cat ran away from the dog, and the dog ran after the cat. Then the cat",
    "Question: Tom has 3 bags with 4 apples each. How many apples does he have?\nAnswer:",
    "从前有一只小狐狸",
]
TOKENS = 16
SYSTEMS = ("vanilla", "tree", "eagle", "lookup", "auto")


def prompts_of(pair, count: int) -> list[list[int]]:
    return [pair.tokenizer(TEXTS[index % len(TEXTS)])["input_ids"] for index in range(count)]


def together(pair, name: str, prompts, temperature=0.0, tokens=TOKENS) -> dict[int, list[Round]]:
    samplings = [Sampling(temperature, seed=seed) for seed in range(len(prompts))]
    found = defaultdict(list)
    for number, done in decode_batch_round_by_round(pair, resolve_system_name(name), prompts, samplings, tokens):
        found[number].append(done)
    return found


def alone(pair, name: str, prompt: list[int], seed: int, temperature=0.0, tokens=TOKENS) -> list[Round]:
    system = resolve_system_name(name)
    shape = {"depth": system.depth, "width": system.width, "nodes": system.nodes}
    capacity = min(pair.context, len(prompt) + tokens) + LARGEST_TREE
    rounds = system.open_rounds(pair, capacity, shape, Sampling(temperature, seed=seed))
    return list(decode(rounds, prompt, tokens, pair.stop_ids, pair.context))


def tokens_of(rounds: list[Round]) -> list[int]:
    return [token for done in rounds for token in done.burst]


@pytest.fixture(scope="module")
def plain(embedded):
    """Returns what plain decoding writes of 16 prompts, each alone, by temperature."""

    def of(temperature: float) -> list[list[int]]:
        prompts = enumerate(prompts_of(embedded, 16))
        return [tokens_of(alone(embedded, "vanilla", prompt, seed, temperature)) for seed, prompt in prompts]

    return cache(of)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", daily(SYSTEMS, "auto", "tree"))
def test_a_batch_writes_every_sequences_own_text_with_the_same_bits(embedded, plain, name, temperature):
    """`auto` sizes other trees in a batch, because forwards cost other times there. So only its tokens are compared."""
    own = [alone(embedded, name, prompt, seed, temperature) for seed, prompt in enumerate(prompts_of(embedded, 5))]
    for size in (1, 5, 16):
        found = together(embedded, name, prompts_of(embedded, size), temperature)
        assert [tokens_of(found[number]) for number in range(size)] == plain(temperature)[:size]
        for number, mine in enumerate(own[:size] if name != "auto" else ()):
            assert [done.tree.tokens for done in found[number]] == [done.tree.tokens for done in mine]
            for one, other in zip(mine, found[number], strict=True):
                assert one.logits.numpy().tobytes() == other.logits.numpy().tobytes()
                assert (one.position, one.burst, one.end) == (other.position, other.burst, other.end)


@pytest.mark.parametrize("name", ["vanilla", "tree", "lookup"])
def test_a_padded_batch_writes_the_same_tokens(name):
    pair = tiny_pair(own=False)
    prompts = [[1, 2, 3], [9], list(range(40)), [5] * 12, [200, 7]]
    found = together(pair, name, prompts, temperature=0.8)
    for seed, prompt in enumerate(prompts):
        assert tokens_of(found[seed]) == tokens_of(alone(pair, "vanilla", prompt, seed, 0.8))


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", ["vanilla", "tree"])
def test_a_stop_token_or_a_full_window_ends_one_sequence_and_no_other(name, own):
    pair = tiny_pair(own=own, same=True)
    prompts = [[1, 2, 3], [t % 256 for t in range(150)], [9, 8], [4, 5]]
    whole = [tokens_of(alone(pair, "vanilla", prompt, seed, 1.0)) for seed, prompt in enumerate(prompts)]
    stop = next(token for token in whole[0][2:9] if token not in whole[2] + whole[3])
    stopping = replace(pair, stop_ids=frozenset({stop}))
    found = together(stopping, name, prompts, temperature=1.0)
    assert tokens_of(found[0]) == whole[0][: whole[0].index(stop) + 1] and found[0][-1].end == "stop"
    assert tokens_of(found[1]) == whole[1][:10] == whole[1] and found[1][-1].end == "context"
    for number in (2, 3):
        assert tokens_of(found[number]) == whole[number] and found[number][-1].end == "length"
        assert [done.end for done in found[number][:-1]] == [""] * (len(found[number]) - 1)


def test_closing_a_batch_frees_its_caches_and_so_does_every_end(monkeypatch):
    made = weakref.WeakSet()
    born = KVCache.__init__
    monkeypatch.setattr(KVCache, "__init__", lambda cache, *sizes: (born(cache, *sizes), made.add(cache))[0])
    pair, prompts = tiny_pair(), [[1, 2, 3], [t % 256 for t in range(150)], [7]]
    made.clear()
    decoding = decode_batch_round_by_round(pair, resolve_system_name("tree"), prompts, [Sampling()] * 3, 30)
    next(decoding)
    assert len(made) == 6  # a cache of the target's and one of the draft's for each
    while next(decoding)[1].end != "context":
        pass
    while next(decoding)[0] != 0:  # on to the next round
        pass
    gc.collect()
    assert len(made) == 4
    decoding.close()
    gc.collect()
    assert len(made) == 0


def test_seconds_of_a_batch_add_up_to_its_own():
    """The shared forward's seconds are split evenly; each sequence's other phases are its own."""
    found = together(tiny_pair(), "tree", [[1, 2], [3], [4, 5, 6]], tokens=6)
    first = [rounds[0].seconds for rounds in found.values()]
    assert len({seconds["verify"] for seconds in first}) == 1
    assert all(seconds.keys() == {"prefill", "draft", "verify", "accept", "commit"} for seconds in first)
    assert all("prefill" not in done.seconds for rounds in found.values() for done in rounds[1:])


def test_auto_reckons_with_a_sequences_share_of_a_batch():
    costs = Costs({1: 2.0, 8: 4.0, 64: 20.0}, first_ms=0.5, level_ms=0.25)
    found = divide_costs_by_batch_size(costs, 8)
    assert found.verify_ms == {1: 4.0 / 8, 8: 20.0 / 8, 64: pytest.approx((20 + 16 * (512 - 64) / 56) / 8)}
    assert (found.first_ms, found.level_ms) == (0.5, 0.25) and divide_costs_by_batch_size(costs, 1) == costs


def test_a_system_that_does_not_keep_the_tokens_is_refused():
    pair = replace(tiny_pair(), target=Runner(tiny_llama(0)))
    with pytest.raises(ValueError, match=r"token match, .*naive .*independent"):
        next(decode_batch_round_by_round(pair, resolve_system_name("naive"), [[1]], [Sampling()], 4))


def test_a_short_prompt_does_not_size_the_caches_of_longer_ones():
    target, draft = (Runner(tiny_llama(seed, context=2048)) for seed in (0, 1))
    pair = replace(tiny_pair(), target=target, draft=draft, context=2048)
    long = [token % 256 for token in range(2 * LARGEST_TREE)]
    found = together(pair, "tree", [[1, 2], long], tokens=3)
    assert [len(tokens_of(found[number])) for number in (0, 1)] == [3, 3]


def test_a_sequence_grows_trees_of_the_shape_that_its_system_races_in(monkeypatch):
    """That is the best of the counted ones on this machine, and not the paper's."""
    pair, shape = tiny_pair(same=True), {"depth": 2, "width": 1, "nodes": 3}
    monkeypatch.setattr(System, "best_shape_for", lambda system, pair: shape)
    found = together(pair, "tree", [[1, 2, 3]])
    assert {len(done.tree) for done in found[0][:-2]} == {3} and resolve_system_name("tree").default_shape != shape
