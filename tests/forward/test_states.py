"""Targets with states: a tree's logits are plain decoding's, whatever was committed before, and races are lossless."""

import random
import re
from functools import cache
from types import SimpleNamespace

import pytest
import torch
import transformers as tr

from engine.forward.recurrent import kinds
from engine.forward.recurrent.cache import text_state_bytes
from engine.models import memory, refusals
from engine.models.cache_memory import explain_cache_overflow
from engine.rounds import round as rounds_on_host
from engine.rounds import timing
from engine.target import Target
from engine.tree import DraftTree
from helpers.families import PROMPT, STATES, state_model, state_pair
from helpers.trees import random_tree

PLAIN = ("mamba2", "lfm2", "qwen3_next", "falcon_h1")  # one of each kind of layer
NEAR = 1e-4  # float32; transformers' own gated delta rule is 1e-5 from itself, token by token against all at once


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("states")


@pytest.fixture(scope="module")
def loaded(place):
    """Returns the pair of a variant, loaded when it is first asked for."""
    return cache(lambda name: state_pair(name, place))


def tree_of(root: int, seed: int, size: int = 12) -> DraftTree:
    tree = random_tree(random.Random(seed), size)
    tree.tokens[0] = root
    return tree


@torch.no_grad()
def behind(model, text: list[int], count: int) -> torch.Tensor:
    """The unchanged model's logits `[count, V]` behind the text's last `count` tokens."""
    return model(torch.tensor([text]), use_cache=False).logits[0, -count:].float()


def rounds(target: Target, model, paths: list) -> float:
    """The largest difference of a node's logits from the unchanged model's, over rounds that commit these paths.

    A path is chosen from the tree by a function.
    """
    text, root, worst = list(PROMPT), 9, 0.0
    target.prefill_and_return_features(text)
    for number, choose in enumerate(paths):
        tree = tree_of(root, number)
        logits, _ = target.verify(tree)
        for leaf in set(range(len(tree))) - set(tree.parents):
            path = [0, *tree.path_below_root(leaf)]
            plain = behind(model, [*text, *(tree.tokens[each] for each in path)], len(path))
            worst = max(worst, (logits[path].float() - plain).abs().max().item())
        path = choose(tree)
        target.commit(path)
        text, root = [*text, root, *(tree.tokens[each] for each in path)], 100 + number
        assert target.committed_rows == len(text)
    return worst


def deepest(tree: DraftTree) -> list[int]:
    return tree.path_below_root(max(range(len(tree)), key=lambda node: tree.depth[node]))


def first(tree: DraftTree) -> list[int]:
    return deepest(tree)[:1]


def nothing(tree: DraftTree) -> list[int]:
    return []


def shortest(tree: DraftTree) -> list[int]:
    """A whole path that is shorter than the longest: its row of the batch is filled up behind it."""
    leaves = set(range(1, len(tree))) - set(tree.parents)
    return tree.path_below_root(min(leaves, key=lambda node: tree.depth[node]))


def test_the_loader_names_the_families_that_are_checked_here():
    assert re.split(", | and ", refusals.STATE_FAMILIES) == [family for family, *_ in STATES.values()]
    assert {kind.config_class.model_type for _, kind, _ in STATES.values()} == kinds.TRIED


@pytest.mark.parametrize("name", STATES)
def test_a_trees_logits_are_those_of_plain_decoding(name, loaded):
    """What is committed is a whole row, a part of one, nothing but the root, and a path that padding stands behind."""
    pair = loaded(name)
    assert pair.target.forward_kind == "states"
    paths = [deepest, first, shortest, nothing, deepest, shortest, first]
    assert rounds(Target(pair.target, 160, features=True), state_model(name), paths) < NEAR


@pytest.mark.parametrize("name", STATES)
def test_a_verification_changes_nothing_that_is_committed(name, loaded):
    target = Target(loaded(name).target, 96)
    target.prefill_and_return_features(PROMPT)
    before = target.verify(DraftTree.from_root_token(9))[0]
    for seed in range(3):
        target.verify(tree_of(30 + seed, seed))
    assert torch.equal(target.verify(DraftTree.from_root_token(9))[0], before) and target.committed_rows == len(PROMPT)


@pytest.mark.parametrize("name", STATES)
def test_nothing_is_replayed_where_a_state_can_stand_behind_every_node(name, loaded):
    """Only tokens that are no path of the tree are computed anew, as a text, and plain decoding goes on behind them."""
    target, text, tree = Target(loaded(name).target, 96), list(PROMPT), tree_of(9, 1)
    target.prefill_and_return_features(text)
    for choose in (deepest, first, nothing, shortest):
        target.verify(tree)
        target.commit(path := choose(tree))
        text += [9, *(tree.tokens[node] for node in path)]
        assert target.session.replayed == 0
    forked = DraftTree.from_root_token(9)
    below = forked.add(forked.add(0, 17, 1.0, 1.0), 30, 1.0, 1.0)
    beside = forked.add(0, 31, 1.0, 1.0)
    target.verify(forked)
    target.commit([beside, below])
    assert target.session.replayed == 3
    text += [9, 31, 30, 8]
    assert (target.verify(DraftTree.from_root_token(8))[0] - behind(state_model(name), text, 1)).abs().max() < NEAR


def test_a_round_holds_no_state_for_a_node(loaded):
    """It holds what a node writes into the state, and the inputs that a convolution keeps of the text."""
    pair, tree = loaded("mamba2"), tree_of(9, 1)
    states = sum(state.nbytes for _, state in pair.target.empty_text_states)
    inputs = sum(inputs.nbytes for inputs, _ in pair.target.empty_text_states)
    target = Target(pair.target, 96)
    target.prefill_and_return_features(PROMPT)
    target.verify(tree)
    assert target.session.uncommitted_bytes == inputs + len(tree) * pair.target.state_bytes_per_node
    assert pair.target.state_bytes_per_node < states / 2


def test_a_verification_computes_a_row_a_node_and_auto_reckons_with_that(loaded, monkeypatch):
    clock, pair = SimpleNamespace(now=0.0), loaded("mamba2")

    def slow(model, args, how):
        clock.now += 20 + how["input_ids"].numel()

    monkeypatch.setattr(rounds_on_host, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(timing, "ROWS", (1, 4, 8, 24))
    hook = pair.target.model.register_forward_pre_hook(slow, with_kwargs=True)
    try:
        costs = timing.time_verify_ms_by_rows(pair, repeats=1, max_seconds=9.0)
    finally:
        hook.remove()
    assert costs == {nodes: 1000.0 * (20 + nodes) for nodes in (1, 4, 8, 24)}


@pytest.mark.parametrize("name", PLAIN)
def test_prompts_of_one_token_begin_with_no_state(name, loaded):
    pair, model = loaded(name), state_model(name)
    target = Target(pair.target, 64)
    tree = tree_of(77, 5)
    logits, _ = target.verify(tree)
    path = [0, *deepest(tree)]
    assert (logits[path] - behind(model, [tree.tokens[each] for each in path], len(path))).abs().max() < NEAR
    target.commit(path[1:2])
    logits, _ = target.verify(DraftTree.from_root_token(8))
    text = [*(tree.tokens[each] for each in path[:2]), 8]
    assert (logits - behind(model, text, 1)).abs().max() < NEAR


def test_steps_that_transformers_bounds_in_several_tokens_are_free_behind_a_prompt(place):
    """Nemotron-H bounds time steps from below, but not those of a single token: a tree must be read as single tokens are."""
    pair = state_pair("nemotron_h", place)
    model = pair.target.model
    for layer in model.modules():
        if hasattr(layer, "dt_bias"):
            layer.dt_bias.data.fill_(-8.0)  # steps of a third of the bound
            layer.time_step_limit = (0.5, float("inf"))
    text, cache = list(PROMPT), tr.DynamicCache(config=model.config)
    target = Target(pair.target, 64)
    target.prefill_and_return_features(text)
    tree = DraftTree.from_root_token(9)
    for token in (17, 30, 31):
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    found, _ = target.verify(tree)
    with torch.no_grad():
        model(torch.tensor([text]), past_key_values=cache)
        steps = [model(torch.tensor([[token]]), past_key_values=cache).logits[0, 0] for token in tree.tokens]
        bounded = model(torch.tensor([[*text, *tree.tokens]])).logits[0, len(text) :]
    assert (found - torch.stack(steps)).abs().max() < NEAR < (found - bounded).abs().max()


def test_a_session_goes_back_to_its_beginning_alone(loaded):
    session = loaded("mamba2").target.open_session(64)
    first = session.prefill(PROMPT)[0]
    with pytest.raises(ValueError, match="A state of 7 tokens cannot be taken back to 3"):
        session.rewind(3)
    session.rewind(0)
    assert torch.equal(session.prefill(PROMPT)[0], first)


@pytest.mark.parametrize("name", STATES)
def test_memory_of_states_is_counted_from_the_configuration(name, loaded):
    """As the cache holds them behind a prompt."""
    target = loaded(name).target
    session = target.open_session(64)
    session.prefill(PROMPT)
    counted = memory.count_needed_bytes_by_use(target.config, torch.device("cpu"), torch.float32)
    committed = text_state_bytes([(layer.inputs, layer.state) for layer in session.cache.states])
    assert counted["states"] == memory.LANES * (committed + memory.NODES * target.state_bytes_per_node) > 0
    assert target.state_bytes_per_text == committed
    assert counted["rows"] == memory.LANES * 160 * session.cache.kv.nbytes // 64 or name == "mamba2"


def test_states_that_do_not_fit_are_refused_before_anything_runs(loaded, monkeypatch):
    """A lane of Mamba 2 holds no rows, but the states of its text and what every node adds."""
    pair = loaded("mamba2")
    lane = pair.target.state_bytes_per_text + 64 * pair.target.state_bytes_per_node
    monkeypatch.setattr("engine.models.cache_memory.max_bytes_of_all_caches", lambda pair: 2.5 * lane)
    assert explain_cache_overflow(pair, 2, 100) == "" and explain_cache_overflow(pair, 3, 100).endswith("2 would fit.")


@pytest.mark.parametrize("config", [tr.MambaConfig(), tr.JambaConfig(), tr.RecurrentGemmaConfig()])
def test_states_that_nobody_tried_stay_refused(config):
    assert "it keeps a recurrent state, and nobody has tried" in refusals.explain_why_unable_to_verify_trees(config)


def test_states_are_not_spread_over_devices(place):
    with pytest.raises(ValueError, match=r"\(mamba2\) keeps states, which are not spread here\. Use --spread none"):
        state_pair("mamba2", place, spread="layers")
