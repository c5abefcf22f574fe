"""The reference that one reads first: its Llama, trees, masks, verdicts and texts are those of the engine's own parts."""

import random
import runpy

import pytest
import torch

from engine import reference
from engine.acceptance.token_match import TokenMatch
from engine.decode import decode
from engine.rounds.round import HostRoundRunner
from engine.sampling import Sampling
from engine.systems import resolve_system_name
from engine.target import Target
from helpers.pairs import PROMPT, tiny_llama, tiny_pair
from helpers.paths import ROOT
from helpers.trees import planted, random_tree, trees

SAMPLINGS = [Sampling(), Sampling(temperature=0.9, seed=3)]
SHAPE = {"depth": reference.DEPTH, "width": reference.WIDTH, "nodes": 1 + reference.DEPTH * reference.WIDTH}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Checkpoints of the tiny pair's target and draft."""
    written = {name: tmp_path_factory.mktemp(name) for name in ("target", "draft")}
    tiny_llama(0).save_pretrained(written["target"])
    tiny_llama(1, layers=1).save_pretrained(written["draft"])
    return written


def keys_of(sampling: Sampling) -> reference.SamplingScores:
    """The engine's own numbers. When greedy, logits count twice, as in a score of `engine.policies.shared.ranking`."""

    def keys(logits: torch.Tensor, position: int) -> torch.Tensor:
        return (
            2 * logits if sampling.greedy else sampling.scale_logits_and_add_gumbel_noise(logits[None], [position])[0]
        )

    return keys


def as_reference(tree) -> reference.Tree:
    same = reference.Tree(tree.tokens[0])
    same.tokens, same.parents, same.depths = list(tree.tokens), list(tree.parents), list(tree.depth)
    return same


def rounds_of(pair, sampling: Sampling) -> HostRoundRunner:
    parts = resolve_system_name("model/beam/token_match").build_parts(pair, pair.context, **SHAPE)
    return HostRoundRunner(Target(pair.target, pair.context, False), *parts, sampling)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_the_llama_is_transformers(tmp_path, kv_heads):
    model = tiny_llama(2, kv_heads=kv_heads)
    model.save_pretrained(tmp_path)
    llama = reference.Llama(tmp_path)
    with torch.inference_mode():
        read = torch.cat(
            [llama.forward_next_tokens_causally(PROMPT[:3]), llama.forward_next_tokens_causally(PROMPT[3:])]
        )
        torch.testing.assert_close(read, model(torch.tensor([PROMPT])).logits[0], atol=1e-4, rtol=1e-4)


def test_the_mask_is_that_of_every_tree():
    for tree in trees(20):
        mask = as_reference(tree).attention_mask(3)
        assert mask[:, :3].all() and torch.equal(mask[:, 3:], tree.ancestor_mask())


def test_a_tree_is_verified_by_the_same_forward(folders):
    target, pair = reference.Llama(folders["target"]), tiny_pair()
    theirs, tree = Target(pair.target, pair.context, False), random_tree(random.Random(1), 12)
    with torch.inference_mode():
        target.forward_next_tokens_causally(PROMPT)
        theirs.prefill_and_return_features(PROMPT)
        root, same = target.cached_rows, as_reference(tree)
        logits = target.forward(same.tokens, [root + depth for depth in same.depths], same.attention_mask(root))
        torch.testing.assert_close(logits, theirs.verify(tree)[0], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
def test_a_tree_grows_like_the_beam(folders, sampling):
    rounds = rounds_of(tiny_pair(), sampling)
    rounds.prefill_and_return_seconds(PROMPT, 100)
    with torch.inference_mode():
        theirs, mine = (
            rounds.grow_and_validate_round_tree(),
            reference.grow_beam_tree(reference.Llama(folders["draft"]), PROMPT, keys_of(sampling)),
        )
    assert (mine.tokens, mine.parents, mine.depths) == (theirs.tokens, theirs.parents, theirs.depth)
    assert mine.scores == pytest.approx(theirs.score, abs=1e-4)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
def test_a_path_is_accepted_by_token_match(sampling):
    tree, lengths = planted([-1, 0, 0, 1, 1, 4, 2]), set()
    for seed in range(200):
        logits = torch.randn(len(tree), 8, generator=torch.Generator().manual_seed(seed))
        path, bonus = reference.accept_by_token_match(as_reference(tree), logits, seed, keys_of(sampling))
        verdict = TokenMatch().decide(tree, logits, sampling, seed)
        assert (path, bonus) == (verdict.path, verdict.bonus)
        lengths.add(len(path))
    assert lengths >= {0, 1, 2}


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("same", [False, True], ids=["another draft", "the target drafts"])
def test_the_loop_writes_the_engines_bursts(folders, sampling, same):
    """The draft is another random model, or the target itself, whose guesses are all accepted."""
    pair = tiny_pair(same=same)
    theirs = [each.burst for each in decode(rounds_of(pair, sampling), PROMPT, 24, frozenset({0}), pair.context)]
    target, draft = reference.Llama(folders["target"]), reference.Llama(folders["target" if same else "draft"])
    target.config["eos_token_id"] = 0
    with torch.inference_mode():
        assert list(reference.decode(target, draft, PROMPT, 24, keys_of(sampling))) == theirs
    assert max(map(len, theirs)) == (SHAPE["depth"] + 1 if same else max(map(len, theirs)))


def test_the_file_runs_on_its_own(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["reference.py", "Story: Once upon a"])
    runpy.run_path(str(ROOT / "engine" / "reference.py"), run_name="__main__")
    bursts = capsys.readouterr().out.splitlines()
    assert bursts[0].startswith("' time") and 64 > len(bursts) > 8
