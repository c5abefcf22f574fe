"""Breaks: each is wrong in what it says and in nothing else, shows in a race and in the measured distance, and frees what it took."""

import gc
import json
import weakref
from math import comb

import pytest
import torch

from engine.breaks import BREAKS, BrokenCommitTarget, BrokenMaskTarget, BrokenPositionTarget
from engine.forward.cache import KVCache
from engine.page.screens.break_distance import expected_total_variation_of_samples, measure_broken_system_distance
from engine.policies import POLICIES
from engine.race import Race, Settings
from engine.rounds.round_gpu import DeviceRoundRunner
from engine.sampling import Sampling
from engine.systems import SYSTEMS, resolve_system_name
from engine.target import Target
from engine.tree import DraftTree
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"
PROMPT = [5, 80, 33, 12, 200, 41, 7]
BRANCHING = [name for name, system in SYSTEMS.items() if system.drafter != "none" and system.policy != "chain"]
FORWARDS = ("mask", "positions", "trim")
FREE = [name for name in BREAKS if name != "constraint"]  # that one needs a constraint: tests/core/test_constraint.py


@pytest.fixture(scope="module")
def pair():
    """The draft is the target itself: long paths are accepted, so that wrong rows are kept."""
    return tiny_pair(same=True)


def tokens(pair, *systems: str, **settings) -> list[list[int]]:
    race = Race(pair, Settings(settings.pop("prompt", TEXT), systems, **settings))
    list(race.run())
    return [lane.trace.tokens for lane in race.lanes]


def figures(pair, name: str, **settings) -> dict:
    *reports, last = measure_broken_system_distance(
        pair, Settings(settings.pop("prompt", TEXT), ("tree", f"tree!{name}"), **settings)
    )
    shares = [report["done"] for report in reports]
    assert shares == sorted(shares) and shares[-1] < last["done"] == 1
    assert all(report["break"] == name for report in (*reports, last))
    assert last["end"] is True and not any("end" in report for report in reports)  # or the page waits for more
    return last


def fork() -> DraftTree:
    """The root, two children, and a child of the first one."""
    tree = DraftTree.from_root_token(9)
    first = tree.add(0, 30, 0.5, 0.5)
    tree.add(0, 77, 0.3, 0.3)
    tree.add(first, 55, 0.2, 0.4)
    return tree


def verified(pair, kind: type[Target], tree: DraftTree) -> torch.Tensor:
    target = kind(pair.target, 64)
    target.prefill_and_return_features(PROMPT)
    return target.verify(tree)[0]


@pytest.mark.parametrize(
    ("kind", "wrong"), [(BrokenMaskTarget, {2, 3}), (BrokenPositionTarget, {2, 3}), (BrokenCommitTarget, set())]
)
def test_a_broken_forward_is_wrong_only_behind_a_branch(pair, kind, wrong):
    """Nodes 0 and 1 are a text; node 2 must not see its sibling nor stand behind it, node 3 must not see node 2."""
    right, broken = verified(pair, Target, fork()), verified(pair, kind, fork())
    off = (right - broken).abs().amax(-1)
    assert {node for node in range(4) if off[node] > 1e-3} == wrong


@pytest.mark.parametrize("kind", [BrokenMaskTarget, BrokenPositionTarget, BrokenCommitTarget])
def test_a_tree_without_branches_hides_every_break(pair, kind):
    chain = DraftTree.from_root_token(9)
    for node, token in enumerate((30, 55, 77)):
        chain.add(node, token, 0.5, 0.5)
    logits = []
    for each in (Target, kind):
        target = each(pair.target, 64)
        target.prefill_and_return_features(PROMPT)
        target.verify(chain)
        target.commit([1, 2])
        logits.append(target.verify(DraftTree.from_root_token(4))[0])
    assert torch.allclose(*logits, atol=1e-4)


def test_the_wrong_trim_keeps_the_rows_of_another_branch(pair):
    after = {}
    for kind in (Target, BrokenCommitTarget):
        target = kind(pair.target, 64)
        target.prefill_and_return_features(PROMPT)
        target.verify(fork())
        target.commit([2])
        assert target.committed_rows == len(PROMPT) + 2
        after[kind] = target.verify(DraftTree.from_root_token(4))[0][0]
    for kind, kept in ((Target, 77), (BrokenCommitTarget, 30)):
        fresh = Target(pair.target, 64)
        fresh.prefill_and_return_features([*PROMPT, 9, kept])
        assert torch.allclose(after[kind], fresh.verify(DraftTree.from_root_token(4))[0][0], atol=1e-4), kept


def test_naive_acceptance_is_right_at_temperature_0(pair):
    right, broken = tokens(pair, "tree", "tree!acceptance", max_new_tokens=48)
    assert right == broken


@pytest.mark.parametrize("name", BREAKS)
def test_the_suggested_race_parts_early_and_the_right_lane_writes_plain_decodings_text(embedded, name):
    suggestion = BREAKS[name].suggestion
    assert suggestion["systems"] == ("tree", f"tree!{name}")
    settings = {**suggestion, "systems": ("vanilla", *suggestion["systems"]), "max_new_tokens": 24}
    race = Race(embedded, Settings(**settings))
    list(race.run())
    plain, right, broken = (lane.trace.tokens for lane in race.lanes)
    assert plain == right
    assert plain[:12] != broken[:12]
    assert race.result()["identical"] == "lossy"


@pytest.mark.parametrize("name", FORWARDS)
def test_a_broken_forward_is_far_from_the_target_and_the_right_one_is_not(embedded, name):
    suggestion = BREAKS[name].suggestion
    found = figures(embedded, name, prompt=suggestion["prompt"], max_new_tokens=24)
    assert found["wrong"] > 0.05 and found["worst"] > 0.3 and found["right"] < 1e-5
    assert found["places"] > 24 and found["draws"] is found["floor"] is None and found["temperature"] == 1
    assert found["rows"] == sorted(found["rows"], key=lambda row: -abs(row["right"] - row["wrong"]))
    assert abs(found["rows"][0]["right"] - found["rows"][0]["wrong"]) > 0.05
    assert "the right one" in found["sentence"] and "e-" not in found["sentence"]
    json.dumps(found)


def test_the_naive_rule_is_far_from_the_target_and_the_exact_one_is_at_the_floor(embedded):
    suggestion = BREAKS["acceptance"].suggestion
    found = figures(embedded, "acceptance", prompt=suggestion["prompt"], temperature=suggestion["temperature"])
    assert found["wrong"] > 5 * found["right"] and found["right"] < 1.5 * found["floor"]
    assert found["draws"] == 1200 and found["places"] is found["worst"] is None and found["temperature"] == 0.8
    assert found["rows"][0]["wrong"] > found["rows"][0]["right"] + 0.2  # a favourite that comes out too often
    assert found["after"].endswith("She looked under the bed and")
    json.dumps(found)


@pytest.mark.parametrize("name", FREE)
def test_distances_of_a_random_pair(pair, name):
    found = figures(pair, name, temperature=2.0, seed=3, max_new_tokens=40)
    if name in FORWARDS:
        assert found["wrong"] > 1e-3 and found["right"] < 1e-5
    else:
        assert found["wrong"] > 2 * found["right"] and found["right"] < 1.5 * found["floor"]


def test_what_chance_makes_is_the_mean_absolute_deviation():
    n, p = 7, 0.3
    exact = sum(comb(n, k) * p**k * (1 - p) ** (n - k) * abs(k / n - p) for k in range(n + 1))
    assert expected_total_variation_of_samples(torch.tensor([p, 1 - p, 0.0], dtype=torch.float64), n) == pytest.approx(
        exact
    )
    assert expected_total_variation_of_samples(torch.tensor([0.0, 1.0]), n) == 0


@pytest.mark.parametrize(
    ("system", "name"),
    [
        (system, name)
        for system in BRANCHING
        for name, each in BREAKS.items()
        if name in FREE
        and SYSTEMS[system].acceptance
        != each.replaced_system_fields.get("acceptance")  # that one is refused, see below
    ],
)
def test_every_system_that_branches_can_be_broken(pair, system, name):
    [written] = tokens(pair, f"{system}!{name}", temperature=0.8, max_new_tokens=24)
    assert len(written) == 24


def test_a_broken_system_says_so():
    for name, each in BREAKS.items():
        system = resolve_system_name(f"tree!{name}")
        assert (system.name, system.guarantee, system.source) == (f"tree!{name}", "lossy", "broken on purpose")
        assert each.title in system.title and "broken" in system.title and each.wrong in system.idea
        assert json.loads(json.dumps(each.to_dict()))["suggestion"]["systems"] == ["tree", f"tree!{name}"]
    assert not any(system.broken for system in SYSTEMS.values())


def test_shapes_and_mixes_can_be_broken():
    shaped = resolve_system_name("tree:3x2x8!mask")
    assert (shaped.name, shaped.depth, shaped.width, shaped.nodes) == ("tree:3x2x8!mask", 3, 2, 8)
    mixed = resolve_system_name("model/kary/token_match:2x3x13!trim")
    assert (mixed.policy, mixed.broken, mixed.nodes) == ("kary", "trim", 13)
    behind = resolve_system_name("tree!acceptance:2x3x13")
    assert (behind.acceptance, behind.broken, behind.width) == ("independent", "acceptance", 3)
    assert "top" in POLICIES[behind.policy].supported_proposal_modes


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tree!upside-down", "Unknown break 'upside-down'. Available: mask, positions, trim, acceptance, constraint"),
        ("tree!", "Unknown break ''"),
        ("tree!mask!trim", "Unknown break 'mask!trim'. .* one at a time"),
        ("magic!mask", "Unknown system 'magic'"),
        ("vanilla!mask", "vanilla has no branches, so the break mask changes nothing there. Break tree instead"),
        ("vanilla!acceptance", "vanilla has no branches"),
        ("chain!positions", "chain has no branches"),
        ("naive!acceptance", "naive is broken that way already"),
    ],
)
def test_what_cannot_be_broken_gets_a_sentence(name, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings(TEXT, ("tree", name))


def test_only_a_broken_system_is_measured(pair):
    with pytest.raises(ValueError, match="tree is not broken, so there is nothing to measure"):
        measure_broken_system_distance(pair, Settings(TEXT, ("vanilla", "tree")))
    with pytest.raises(ValueError, match="holds 160 and must leave room"):
        measure_broken_system_distance(pair, Settings("x" * 500, ("tree", "tree!mask")))


def test_a_broken_lane_takes_no_rounds_on_the_device(pair):
    sampling, shape = Sampling(device=torch.device("cpu")), {"depth": 2, "width": 2, "nodes": 4}
    assert isinstance(resolve_system_name("tree").open_rounds(pair, 64, shape, sampling), DeviceRoundRunner)
    broken = [resolve_system_name(f"tree!{name}").open_rounds(pair, 64, shape, sampling) for name in BREAKS]
    assert not any(isinstance(rounds, DeviceRoundRunner) for rounds in broken)


@pytest.mark.parametrize("name", FREE)
def test_a_broken_lane_reaches_the_end_of_the_context(pair, name):
    race = Race(pair, Settings("x" * 140, (f"tree:4x4x30!{name}",), max_new_tokens=90))
    list(race.run())
    assert race.lanes[0].trace.steps[-1].end == "context"


def caches() -> list[KVCache]:
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is KVCache]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trim", "acceptance"])
def test_a_closed_race_and_a_cancelled_measurement_free_their_caches(name):
    pair = tiny_pair()
    settings = Settings(TEXT, ("tree", f"tree!{name}"), temperature=0.8, max_new_tokens=40)
    before = {id(cache) for cache in caches()}
    for made in (Race(pair, settings).run(), measure_broken_system_distance(pair, settings)):
        next(made)
        left = [weakref.ref(cache) for cache in caches() if id(cache) not in before]
        assert left
        made.close()
        del made
        gc.collect()
        assert not any(cache() for cache in left)


def test_low_temperatures_leave_the_naive_rule_standing(embedded):
    """At 0.05 q rounds to 0 for a favourite that the draft finds unlikely."""
    prompt = BREAKS["acceptance"].suggestion["prompt"]
    [written] = tokens(embedded, "naive", prompt=prompt, temperature=0.05, max_new_tokens=40)
    assert len(written) == 40
