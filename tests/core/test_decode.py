"""The loop: every token-match system writes plain decoding's own tokens, and a burst is cut where it must be.

The embedded models accept long and short paths alike, so equality over 32 tokens is no accident of trees that never get accepted;
`test_trees_do_win_tokens` guards that.
"""

import pytest
import torch

from engine import decode
from engine.decode import cut_burst
from engine.race import Race, Settings
from engine.systems import SYSTEMS, System
from helpers.decoding import decoded
from helpers.pairs import tiny_pair

PROMPTS = {
    "stories": "Story: Once upon a time there was a little fox who lived in the woods.",
    "code": '# Python\ndef is_even(n):\n    """Return True if n is even."""',
    "word problems": "Question: Tom has 3 bags with 4 apples each. How many apples does he have?\nAnswer:",
    "emoji": "Story: The 🦊 and the 🐻 went to the 🌊. 🦊🦊",
    "CJK": "从前有一只小狐狸,它住在森林里。",
}
WRITTEN = 12  # tokens: several bursts, each of which is cut at every place
QUICK = ("stories", "code")  # the others take their time
# The embedded target has no MTP layers; tests/drafters/test_mtp.py races those that have.
EXACT = [name for name, system in SYSTEMS.items() if system.guarantee == "tokens" and name not in ("vanilla", "mtp")]


@pytest.fixture(scope="module")
def doubled():
    """A pair whose draft is the target itself, so that bursts are long."""
    return tiny_pair(same=True)


def raced(pair, **settings) -> Race:
    race = Race(pair, Settings(**settings))
    for _ in race.run():
        pass
    return race


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.2])
@pytest.mark.parametrize(
    "domain", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.exhaustive) for name in PROMPTS]
)
def test_every_token_match_system_writes_the_baselines_tokens(embedded, domain, temperature):
    race = raced(
        embedded,
        prompt=PROMPTS[domain],
        systems=("vanilla", *EXACT),
        temperature=temperature,
        max_new_tokens=32,
        seed=11,
    )
    base = race.lanes[0].trace
    assert len(base.tokens) == base.target_forwards
    for lane in race.lanes[1:]:
        assert lane.trace.tokens == base.tokens, lane.system.name
        assert lane.trace.text == base.text
    assert race.result()["identical"] is True


def test_trees_do_win_tokens(embedded):
    race = raced(embedded, prompt=PROMPTS["stories"], max_new_tokens=64)
    assert race.lanes[1].trace.tau > 1.5


def test_greedy_chain_speculation_is_exact_and_sampled_is_its_own_text(embedded):
    settings = {"prompt": PROMPTS["stories"], "systems": ("vanilla", "chain"), "max_new_tokens": 48}
    assert raced(embedded, **settings).result()["identical"] is True
    assert raced(embedded, **settings, temperature=1.0).result()["identical"] == "law"


def test_greedy_decoding_is_that_of_generate(embedded):
    race = raced(embedded, prompt=PROMPTS["stories"], systems=("vanilla",), max_new_tokens=40)
    trace = race.lanes[0].trace
    ids = torch.tensor([trace.prompt_tokens])
    out = embedded.target.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)
    assert out[0, ids.shape[1] :].tolist() == trace.tokens


@pytest.mark.parametrize("name", SYSTEMS)
def test_any_length_limit_cuts_the_burst_there(name, doubled):
    """Every offset within a burst is met."""
    whole = [token for r in decoded(doubled, name, [1, 2, 3], WRITTEN) for token in r.burst]
    for length in range(1, WRITTEN):
        rounds = decoded(doubled, name, [1, 2, 3], length)
        assert [token for r in rounds for token in r.burst] == whole[:length]
        assert [r.end for r in rounds] == [""] * (len(rounds) - 1) + ["length"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_any_stop_token_cuts_the_burst_behind_it(name, doubled):
    whole = [token for r in decoded(doubled, name, [9, 8], WRITTEN, temperature=1.0) for token in r.burst]
    base = [token for r in decoded(doubled, "vanilla", [9, 8], WRITTEN, temperature=1.0) for token in r.burst]
    if SYSTEMS[name].guarantee == "tokens":
        assert whole == base
    for stop in dict.fromkeys(whole):
        rounds = decoded(doubled, name, [9, 8], WRITTEN, frozenset({stop}), temperature=1.0)
        assert [token for r in rounds for token in r.burst] == whole[: whole.index(stop) + 1]
        assert rounds[-1].end == "stop"


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_context_window_ends_decoding_without_touching_a_position_beyond_it(name, doubled):
    prompt = [t % 256 for t in range(150)]
    rounds = decoded(doubled, name, prompt, 100)
    assert rounds[-1].end == "context"
    assert sum(len(r.burst) for r in rounds) == doubled.context - len(prompt)
    assert max(r.position + max(r.tree.depth) for r in rounds) < doubled.context


def test_cutting():
    assert cut_burst([1, 2, 3], frozenset({2}), 9, 9) == ([1, 2], "stop")
    assert cut_burst([1, 2, 3], frozenset({3}), 2, 9) == ([1, 2], "length")
    assert cut_burst([1, 2], frozenset({2}), 2, 9) == ([1, 2], "stop")
    assert cut_burst([1, 2, 3], frozenset(), 9, 2) == ([1, 2], "context")
    assert cut_burst([1, 2], frozenset(), 9, 9) == ([1, 2], "")


def test_a_draft_with_its_own_cache_follows_the_context(doubled):
    """With the target as its own draft the first child is always right, so every path runs down to a leaf, round after round."""
    rounds = decoded(doubled, "tree", [4, 5, 6], 60)
    for r in rounds[:-1]:
        assert not r.tree.children((r.verdict.path or [0])[-1])
    assert sum(len(r.burst) for r in rounds) / len(rounds) > 2


def test_an_unsound_combination_is_refused_with_the_reason():
    parts = {"name": "x", "title": "x", "idea": "x", "source": "x", "cost": "x", "depth": 2, "width": 2, "nodes": 4}
    with pytest.raises(ValueError, match="best_first with speculative would bias the output"):
        System(drafter="model", policy="best_first", acceptance="speculative", **parts)
    with pytest.raises(KeyError, match="Unknown drafter 'oracle'"):
        System(drafter="oracle", policy="chain", acceptance="token_match", **parts)


def test_a_full_tree_beyond_the_limit_is_refused(embedded):
    with pytest.raises(ValueError, match="depth 5 and width 4 has 1,365 nodes, over the limit of 400"):
        Race(embedded, Settings("Story: x", ("vanilla", "nanogpt-tree"), depth=5, width=4))


def test_debug_prints_a_line_for_every_round(embedded, monkeypatch, capsys):
    plain = decoded(embedded, "tree", [5, 6, 7], 12)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(decode, "DEBUG", True)
    rounds = decoded(embedded, "tree", [5, 6, 7], 12)
    lines = capsys.readouterr().err.splitlines()
    assert [each.burst for each in rounds] == [each.burst for each in plain] and len(lines) == len(rounds)
    for line, each in zip(lines, rounds, strict=True):
        size = f"{len(each.tree) - 1} guesses to depth {max(each.tree.depth)}, {len(each.verdict.path)} kept, {len(each.burst)} tokens"
        assert line.startswith(f"text 0 at {each.position}: {size}; ms: ")
        assert all(f"{name} {1000 * seconds:.2f}" in line for name, seconds in each.seconds.items())
    assert "prefill" in lines[0] and "prefill" not in lines[1] and lines[-1].endswith("; end: length")
