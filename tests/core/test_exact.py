"""Exactness as a property: whatever the models, the drafter and the settings, token match writes plain decoding's tokens."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.acceptance.token_match import TokenMatch
from engine.contracts import OWN_TREE, RANK_HEAD, Drafter
from engine.decode import decode
from engine.drafters.model import ModelDrafter
from engine.drafters.none import NoDrafter
from engine.forward.runner import Runner
from engine.models.pairs import LoadedPair
from engine.policies import POLICIES
from engine.record.calibration import Calibration
from engine.rounds.round import HostRoundRunner
from engine.sampling import MAX_TEMPERATURE, Sampling
from engine.target import Target
from engine.tree import LARGEST_TREE, DraftTree
from helpers.families import MODELS, SIZES, random_model
from helpers.pairs import tiny_pair

VOCAB, CONTEXT = SIZES["vocab_size"], SIZES["max_position_embeddings"]
RANKS = Calibration(ranks={"medusa": [[0.5, 0.2, 0.1]] * 4})
EVERY_WAY = [
    (name, proposal) for name, policy in POLICIES.items() for proposal in sorted(policy.supported_proposal_modes)
]
TEMPERATURES = [0.0, 1e-6, 0.8, MAX_TEMPERATURE]
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from(TEMPERATURES),
    top_k=st.sampled_from([0, 1, 2, 40, VOCAB + 1]),
    top_p=st.sampled_from([1.0, 0.9, 0.3, 1e-6]),
    seed=st.integers(0, 2**53 - 1),
)


@cache
def runner(family: str) -> Runner:
    return Runner(random_model(family), thread_count=1)


@cache
def tiny() -> LoadedPair:
    return tiny_pair()


def pair_of(target: str, draft: str) -> LoadedPair:
    return replace(tiny(), target=runner(target), draft=runner(draft), learned={})


def written(pair: LoadedPair, drafter: Drafter, way: tuple[str, str], prompt: list[int], sampling: Sampling, **limits):
    """The rounds of a text by this drafter and policy. `limits` are `length`, `stop` and the policy's `shape`."""
    depth, width, nodes = limits.get("shape", (4, 3, 10))
    policy = POLICIES[way[0]](depth, width, nodes, way[1], RANKS)
    rounds = HostRoundRunner(Target(pair.target, CONTEXT + LARGEST_TREE), drafter, policy, TokenMatch(), sampling)
    return list(decode(rounds, prompt, limits.get("length", 14), limits.get("stop", frozenset()), CONTEXT))


def plain(pair: LoadedPair, prompt: list[int], sampling: Sampling, **limits):
    return written(pair, NoDrafter(pair, 0), ("chain", "ranked"), prompt, sampling, **limits)


def tokens_of(rounds) -> list[int]:
    return [token for each in rounds for token in each.burst]


class Prophet(Drafter):
    """Knows the text that will be written, and guesses `beside` it: 0 is always right, anything else always wrong."""

    title, capabilities, depth = "prophet", frozenset({RANK_HEAD, OWN_TREE}), 4

    def __init__(self, text: list[int], beside: int = 0, only: int | None = None):
        """`only` is one token that is guessed everywhere, whatever the text."""
        self.text, self.beside, self.only, self.at = text, beside, only, 0

    def begin(self, prompt, features=None):
        self.at = 0

    def log_q(self, tree, nodes):
        rows = torch.full((len(nodes), VOCAB), -60.0)
        for row, node in zip(rows, nodes, strict=True):
            place = self.at + tree.depth[node]
            right = self.text[place] if place < len(self.text) else 0
            row[right] = -torch.inf  # unless it is the guess, it is none of the others either
            row[(right + self.beside) % VOCAB if self.only is None else self.only] = 0.0
        return rows

    def predict_rank_buckets(self, tree, nodes):
        return [0] * len(nodes)

    def build_own_tree(self, root, levels, width, nodes):
        tree = DraftTree.from_root_token(root)
        while max(tree.depth) < levels and len(tree) < nodes:
            tree.add(len(tree) - 1, int(self.log_q(tree, [len(tree) - 1]).argmax()), 1.0, 1.0)
        return tree

    def draft_blocks_from_nodes(self, tree, nodes):
        pass

    def commit(self, tree, path, bonus, features=None):
        self.at += len(path) + 1


@pytest.mark.parametrize("target", MODELS)
def test_drafts_of_any_family_leave_the_targets_text_as_it_is(target):
    pair_with = {draft: pair_of(target, draft) for draft in MODELS}

    @settings(max_examples=8, deadline=None, derandomize=True, database=None)
    @given(
        st.sampled_from(sorted(MODELS)),
        st.sampled_from([way for way in EVERY_WAY if not POLICIES[way[0]].required_capability]),
        SAMPLINGS,
        st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12),
        st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(2, 14)),
    )
    def holds(draft, way, sampling, prompt, shape):
        pair = pair_with[draft]
        base = tokens_of(plain(pair, prompt, sampling))
        drafter = ModelDrafter(pair, CONTEXT + LARGEST_TREE)
        assert tokens_of(written(pair, drafter, way, prompt, sampling, shape=shape)) == base

    holds()


@pytest.mark.parametrize(("name", "proposal"), EVERY_WAY)
def test_a_drafter_that_is_always_right_wins_and_one_that_is_always_wrong_costs_no_token(name, proposal):
    """Also one that says the same token everywhere. The right one shows that paths are accepted at all."""
    pair, way = pair_of("llama", "llama"), (name, proposal)
    for temperature in TEMPERATURES:
        sampling = Sampling(temperature=temperature, seed=5)
        base = tokens_of(plain(pair, [1, 2, 3], sampling))
        guessed = {beside: written(pair, Prophet(base, beside), way, [1, 2, 3], sampling) for beside in (0, 1)}
        same = written(pair, Prophet(base, only=7), way, [1, 2, 3], sampling)
        assert tokens_of(guessed[0]) == tokens_of(guessed[1]) == tokens_of(same) == base
        assert len(guessed[1]) == len(base)
        if temperature < MAX_TEMPERATURE:  # which makes every guess nearly as likely as any other, the prophet's too
            assert len(guessed[0]) <= len(base) / 2


@pytest.mark.parametrize(("name", "proposal"), EVERY_WAY)
def test_a_stop_token_anywhere_in_a_burst_ends_the_text_behind_it(name, proposal):
    """The prophet's bursts are long, so the stop token meets every place of them, the bonus too."""
    pair, sampling, way = pair_of("qwen3", "llama"), Sampling(temperature=0.8, seed=2), (name, proposal)
    whole = plain(pair, [9, 8], sampling)
    places = set()
    for stop in dict.fromkeys(tokens_of(whole)):
        base = plain(pair, [9, 8], sampling, stop=frozenset({stop}))
        rounds = written(pair, Prophet(tokens_of(whole)), way, [9, 8], sampling, stop=frozenset({stop}))
        assert tokens_of(rounds) == tokens_of(base) and rounds[-1].end == base[-1].end == "stop"
        places.add((len(rounds[-1].burst), len(rounds[-1].burst) > len(rounds[-1].verdict.path)))
    assert {size for size, _ in places} >= {1, 2} and {at_bonus for _, at_bonus in places} == {True, False}


@pytest.mark.parametrize("room", [1, 3])
@pytest.mark.parametrize("beyond", [-1, 0, 1])
@pytest.mark.parametrize(("name", "proposal"), EVERY_WAY)
def test_the_window_and_the_length_limit_end_the_text_at_the_same_token(name, proposal, beyond, room):
    """`room` tokens fit into the window, and one less, as many or one more are asked for."""
    if room + beyond < 1:
        return
    pair, sampling = pair_of("mistral", "llama"), Sampling(temperature=0.8, seed=2)
    prompt = [token % 250 for token in range(CONTEXT - room)]
    base = plain(pair, prompt, sampling, length=room + beyond)
    rounds = written(pair, Prophet(tokens_of(base)), (name, proposal), prompt, sampling, length=room + beyond)
    assert tokens_of(rounds) == tokens_of(base) and len(tokens_of(base)) == room + min(beyond, 0)
    assert rounds[-1].end == base[-1].end == ("context" if beyond == 1 else "length")
    assert max(each.position + max(each.tree.depth) for each in rounds) < CONTEXT


@pytest.mark.parametrize("target", ["llama", "qwen3"])
def test_after_many_rounds_the_drafts_own_cache_is_that_of_a_fresh_prefill(target):
    """Rounds of trees and of chains, with short and long paths, by a draft that is the target itself and by another one."""
    for draft in (target, "llama, all heads"):
        pair, sampling = pair_of(target, draft), Sampling(temperature=0.8, seed=3)
        drafter = ModelDrafter(pair, CONTEXT + LARGEST_TREE)
        rounds = written(pair, drafter, ("best_first", "ranked"), [1, 2, 3], sampling, length=CONTEXT)
        context = [1, 2, 3, *tokens_of(rounds)]
        rows = drafter.session.rows
        assert rows > CONTEXT - 12 and rows + len(drafter.pending) >= len(context)
        fresh = pair.draft.open_session(CONTEXT)
        fresh.prefill(context[:rows])
        kept, right = (each.cache.kv[:, :, :, :rows] for each in (drafter.session, fresh))
        assert torch.allclose(kept[:, :, :, : len(context)], right, atol=1e-4, rtol=0)
