"""Targets with states: a tree's logits are plain decoding's, whatever was committed before, and races are lossless."""

import random
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import transformers as tr
from safetensors import safe_open

from engine.batch import decode_together
from engine.forward.recurrent import kinds
from engine.forward.recurrent.session import RecurrentSession
from engine.models import loading, memory, refusals
from engine.models.cache_memory import too_large
from engine.race import Race, Settings
from engine.rounds import stopwatch, timing
from engine.sampling import Sampling
from engine.systems import find
from engine.target import Target
from engine.tree import DraftTree
from helpers.checkpoints import byte_tokenizer, pair_of, write
from helpers.families import PROMPT, STATES, state_folder, state_model
from helpers.trees import random_tree

PLAIN = ("mamba2", "lfm2", "qwen3_next", "falcon_h1")  # one of each kind of layer
CONVOLUTIONS = ("lfm2", "lfm2_moe")  # whose states stand behind every token
NEAR = 1e-4  # float32; transformers' own gated delta rule is 1e-5 from itself, token by token against all at once


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("states")


def loaded(name: str, place, draft=None, **how):
    return loading.load_pair(pair_of(state_folder(name, place), draft), device="cpu", **how)


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
    target.prefill(text)
    for number, choose in enumerate(paths):
        tree = tree_of(root, number)
        logits, _ = target.verify(tree)
        for leaf in set(range(len(tree))) - set(tree.parents):
            path = [0, *tree.path(leaf)]
            plain = behind(model, [*text, *(tree.tokens[each] for each in path)], len(path))
            worst = max(worst, (logits[path].float() - plain).abs().max().item())
        path = choose(tree)
        target.commit(path)
        text, root = [*text, root, *(tree.tokens[each] for each in path)], 100 + number
        assert target.length == len(text)
    return worst


def deepest(tree: DraftTree) -> list[int]:
    return tree.path(max(range(len(tree)), key=lambda node: tree.depth[node]))


def first(tree: DraftTree) -> list[int]:
    return deepest(tree)[:1]


def nothing(tree: DraftTree) -> list[int]:
    return []


def shortest(tree: DraftTree) -> list[int]:
    """A whole path that is shorter than the longest: its row of the batch is filled up behind it."""
    leaves = set(range(1, len(tree))) - set(tree.parents)
    return tree.path(min(leaves, key=lambda node: tree.depth[node]))


def test_the_loader_names_the_families_that_are_checked_here():
    assert re.split(", | and ", refusals.STATE_FAMILIES) == [family for family, *_ in STATES.values()]
    assert {kind.config_class.model_type for _, kind, _ in STATES.values()} == kinds.TRIED


@pytest.mark.parametrize("name", STATES)
def test_a_trees_logits_are_those_of_plain_decoding(name, place):
    """What is committed is a whole row, a part of one, nothing but the root, and a path that padding stands behind."""
    pair = loaded(name, place)
    assert pair.target.way == "states"
    paths = [deepest, first, shortest, nothing, deepest, shortest, first]
    assert rounds(Target(pair.target, 160, features=True), state_model(name), paths) < NEAR


@pytest.mark.parametrize("name", STATES)
def test_a_verification_changes_nothing_that_is_committed(name, place):
    target = Target(loaded(name, place).target, 96)
    target.prefill(PROMPT)
    before = target.verify(DraftTree.rooted(9))[0]
    for seed in range(3):
        target.verify(tree_of(30 + seed, seed))
    target.session.replay([0])
    assert torch.equal(target.verify(DraftTree.rooted(9))[0], before) and target.length == len(PROMPT)


@pytest.mark.parametrize("name", STATES)
def test_only_what_no_row_ends_behind_is_replayed(name, place):
    """Inputs of convolutions stand behind every token, so models that have nothing else replay nothing."""
    target = Target(loaded(name, place).target, 96)
    target.prefill(PROMPT)
    replayed = []
    for choose in (deepest, first, nothing, shortest):
        tree = tree_of(9, 1)
        target.verify(tree)
        target.commit(choose(tree))
        replayed.append(target.session.replayed)
    lengths = [0, 2, 1, 1 + len(shortest(tree))]
    assert len(shortest(tree)) < len(deepest(tree))
    assert replayed == ([0, 0, 0, 0] if name in CONVOLUTIONS else lengths)


@pytest.mark.parametrize("name", STATES)
def test_greedy_text_is_that_of_generate(name, place):
    pair = replace(loaded(name, place), stop_ids=frozenset())
    race = raced(pair, "vanilla", tokens=40)
    trace = race.lanes[0].trace
    ids = torch.tensor([trace.prompt_tokens])
    expected = state_model(name).generate(ids, max_new_tokens=40, do_sample=False)[0, ids.shape[1] :].tolist()
    assert trace.tokens == expected and len(expected) == 40


def raced(pair, *systems: str, tokens: int, temperature: float = 0.0) -> Race:
    race = Race(pair, Settings("Once", systems, temperature=temperature, max_new_tokens=tokens, seed=3))
    for _ in race.run():
        pass
    return race


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draft")
    write(folder, max_position_embeddings=160)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", STATES)
def test_races_are_lossless(name, temperature, place, draft):
    """A random draft is rejected nearly always, and lookup is accepted where a text repeats itself."""
    pair = replace(loaded(name, place, draft), stop_ids=frozenset())
    race = raced(pair, "vanilla", "tree", "lookup", "recycling", "auto", tokens=40, temperature=temperature)
    assert race.result()["identical"] is True
    assert [len(lane.trace.tokens) for lane in race.lanes] == 5 * [40]


def test_a_step_tells_what_was_replayed_and_its_commit_takes_that_time(place, draft, monkeypatch):
    clock, right = SimpleNamespace(now=0.0), RecurrentSession.replay

    def replay(session, written):
        count = right(session, written)
        clock.now += count
        return count

    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(RecurrentSession, "replay", replay)
    pair = replace(loaded("mamba2", place, draft), stop_ids=frozenset())
    lane = raced(pair, "tree", tokens=12).lanes[0]
    assert all(step.seconds["commit"] == step.replayed for step in lane.trace.steps)
    assert {step.replayed for step in lane.trace.steps} <= {0, *(1 + len(step.path) for step in lane.trace.steps)}
    assert sum(step.replayed for step in lane.trace.steps) > 6


def test_costs_of_a_tree_hold_what_is_replayed(place, monkeypatch):
    """A target of convolutions replays nothing; of another, every row of a batch but plain decoding's single one costs a replay."""
    clock = SimpleNamespace(now=0.0)

    def forward(session, ids, positions, visible=None, last_only=False):
        clock.now += 1.0
        return right(session, ids, positions, visible, last_only)

    right = RecurrentSession.forward
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(RecurrentSession, "forward", forward)
    monkeypatch.setattr(timing, "ROWS", (1, 4, 8))
    for name, expected in (("mamba2", {1: 1000.0, 4: 2000.0, 8: 2000.0}), ("lfm2", {1: 1000.0, 4: 1000.0, 8: 1000.0})):
        assert timing.verify_ms(loaded(name, place), repeats=1, seconds=9.0) == expected


@pytest.mark.parametrize("name", PLAIN)
def test_prompts_of_one_token_begin_with_no_state(name, place):
    pair, model = loaded(name, place), state_model(name)
    target = Target(pair.target, 64)
    tree = tree_of(77, 5)
    logits, _ = target.verify(tree)
    path = [0, *deepest(tree)]
    assert (logits[path] - behind(model, [tree.tokens[each] for each in path], len(path))).abs().max() < NEAR
    target.commit(path[1:2])
    logits, _ = target.verify(DraftTree.rooted(8))
    text = [*(tree.tokens[each] for each in path[:2]), 8]
    assert (logits - behind(model, text, 1)).abs().max() < NEAR


def test_steps_that_transformers_bounds_in_several_tokens_are_free_behind_a_prompt(place):
    """Nemotron-H bounds time steps from below, but not those of a single token: a tree must be read as single tokens are."""
    pair = loaded("nemotron_h", place)
    model = pair.target.model
    for layer in model.modules():
        if hasattr(layer, "dt_bias"):
            layer.dt_bias.data.fill_(-8.0)  # steps of a third of the bound
            layer.time_step_limit = (0.5, float("inf"))
    text, cache = list(PROMPT), tr.DynamicCache(config=model.config)
    target = Target(pair.target, 64)
    target.prefill(text)
    tree = DraftTree.rooted(9)
    for token in (17, 30, 31):
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    found, _ = target.verify(tree)
    with torch.no_grad():
        model(torch.tensor([text]), past_key_values=cache)
        steps = [model(torch.tensor([[token]]), past_key_values=cache).logits[0, 0] for token in tree.tokens]
        bounded = model(torch.tensor([[*text, *tree.tokens]])).logits[0, len(text) :]
    assert (found - torch.stack(steps)).abs().max() < NEAR < (found - bounded).abs().max()


def test_a_model_with_states_is_refused_as_a_draft(place, draft):
    with pytest.raises(
        ValueError, match=r"\(mamba2\) cannot draft: it keeps a recurrent state, .*with attention alone"
    ):
        loading.load_pair(pair_of(draft, state_folder("mamba2", place)), device="cpu")


def test_a_session_goes_back_to_its_beginning_alone(place):
    session = loaded("mamba2", place).target.open(64)
    first = session.prefill(PROMPT)[0]
    with pytest.raises(ValueError, match="A state of 7 tokens cannot be taken back to 3"):
        session.rewind(3)
    session.rewind(0)
    assert torch.equal(session.prefill(PROMPT)[0], first)


def test_several_texts_at_once_are_refused(place):
    pair = loaded("mamba2", place)
    with pytest.raises(ValueError, match=r"Texts of a mamba2 model cannot share a forward here: it keeps states"):
        next(decode_together(pair, find("lookup"), [PROMPT, PROMPT], [Sampling(), Sampling()], 5))


@pytest.mark.parametrize("name", STATES)
def test_memory_of_states_is_counted_from_the_configuration(name, place):
    """As the cache holds them behind a prompt."""
    target = loaded(name, place).target
    session = target.open(64)
    session.prefill(PROMPT)
    counted = memory.needed(target.config, torch.device("cpu"), torch.float32)
    assert counted.states == memory.LANES * (1 + memory.PATHS) * session.cache.state_bytes > 0
    assert target.state_bytes == session.cache.state_bytes
    assert counted.rows == memory.LANES * 160 * session.cache.kv.nbytes // 64 or name == "mamba2"


def test_states_that_do_not_fit_are_refused_before_anything_runs(place, monkeypatch):
    """A lane of Mamba 2 holds no rows, but the states of its text and of every path."""
    pair = loaded("mamba2", place)
    lane = (1 + 64) * pair.target.state_bytes
    monkeypatch.setattr("engine.models.cache_memory.cache_budget", lambda pair: 2.5 * lane)
    assert too_large(pair, 2, 100) == "" and too_large(pair, 3, 100).endswith("2 would fit.")


@pytest.mark.parametrize("config", [tr.MambaConfig(), tr.JambaConfig(), tr.RecurrentGemmaConfig()])
def test_states_that_nobody_tried_stay_refused(config):
    assert "it keeps a recurrent state, and nobody has tried" in refusals.obstacle(config)


def test_states_are_not_spread_over_devices(place):
    with pytest.raises(ValueError, match=r"\(mamba2\) keeps states, which are not spread here\. Use --spread none"):
        loaded("mamba2", place, spread="layers")


def test_its_mtp_layers_are_not_read(tmp_path):
    """The files of a Qwen3-Next hold some. Its texts are written without them."""
    model = state_model("qwen3_next")
    model.config.num_mtp_layers = 1
    tensors = model.state_dict() | {"mtp.fc.weight": torch.zeros(32, 64)}
    model.save_pretrained(tmp_path, state_dict=tensors)
    byte_tokenizer().save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as stored:
        assert "mtp.fc.weight" in stored.keys()  # noqa: SIM118
    pair = loading.load_pair(pair_of(tmp_path), device="cpu")
    assert pair.target.config.num_mtp_layers == 1 and "mtp" not in pair.learned
