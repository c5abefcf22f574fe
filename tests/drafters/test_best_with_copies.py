"""The drafter `best`: the strongest that a pair has, what it can copy for nothing, and what `auto` makes of that."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from engine.contracts import Drafter
from engine.drafters import DRAFTERS
from engine.drafters.best_with_copies import CHAIN, GRAM, BestDrafterWithCopies, HitCountingLongestMatchCopier
from engine.policies.auto import CostAdaptiveTree
from engine.race import Race, Settings
from engine.record.calibration import Calibration
from engine.record.costs import Costs
from engine.rounds import timing
from engine.rounds.pair_costs import PairCosts
from engine.sampling import Sampling
from engine.tree import DraftTree
from helpers.pairs import tiny_pair

COSTS = Costs({1: 5.0, 2: 5.1, 8: 5.8, 16: 7.0, 32: 10.0}, first_ms=1.0, level_ms=0.5)

TEXT = [9, 4, 7, 1, 2, 3, 8, 8, 5, 1, 2, 3]


def started(pair, prompt: list[int]) -> BestDrafterWithCopies:
    drafter = BestDrafterWithCopies(pair, 140)
    drafter.begin(prompt, torch.zeros(len(prompt) - 1, 4, 64) if drafter.reads_features else None)
    return drafter


def test_it_is_one_of_what_the_pair_has():
    pair = tiny_pair()
    pairs = (pair, replace(pair, learned={}), replace(pair, learned={}, draft=None))
    assert [BestDrafterWithCopies.inner_drafter_candidates(each) for each in pairs] == [
        ["eagle", "model", "dspark", "mtp"],
        ["model"],
        ["lookup"],
    ]
    kinds = [type(BestDrafterWithCopies(each, 100).inner).__name__ for each in pairs]
    assert kinds == ["EagleDrafter", "ModelDrafter", "LookupDrafter"]


@pytest.mark.parametrize("chosen", BestDrafterWithCopies.inner_drafter_candidates(tiny_pair()))
def test_auto_drafts_with_what_promises_the_most_here(chosen, monkeypatch):
    """All drafters guess equally well and forwards cost the same, but for one, whose draft is cheap."""
    pair = tiny_pair()
    ranks = {name: [[0.6, 0.2]] * 4 for name in BestDrafterWithCopies.inner_drafter_candidates(pair)}
    pair = replace(pair, calibration=replace(pair.calibration, ranks=ranks))
    monkeypatch.setattr(timing, "time_verify_ms_by_rows", lambda *_, **__: {1: 5.0, 24: 6.0})
    monkeypatch.setattr(
        timing,
        "time_first_and_further_draft_level_ms",
        lambda _, name, **__: (0.1, 0.1) if name == chosen else (2.0, 1.0),
    )
    costs = PairCosts(pair).get_or_measure_costs("best")
    assert (costs.best_drafter, costs.first_ms) == (chosen, 0.1) and costs.promised.keys() == ranks.keys()
    assert all(1 < costs.promised[name] < costs.promised[chosen] for name in ranks if name != chosen)
    race = Race(pair, Settings("abc abc", ("vanilla", "auto"), max_new_tokens=40))
    kind = DRAFTERS[chosen]
    assert type(race.lanes[1].rounds.drafter.inner) is kind
    for _ in race.run():
        pass
    assert race.result()["identical"] is True and race.to_record().lanes[1].costs.best_drafter == chosen


def test_without_a_calibration_the_first_is_taken_and_nothing_is_promised(monkeypatch):
    monkeypatch.setattr(timing, "time_verify_ms_by_rows", lambda *_, **__: {1: 5.0, 24: 6.0})
    monkeypatch.setattr(
        timing, "time_first_and_further_draft_level_ms", lambda _, name, **__: (float(name == "eagle"), 1.0)
    )
    costs = PairCosts(replace(tiny_pair(), calibration=Calibration())).get_or_measure_costs("best")
    assert (costs.first_ms, costs.promised, costs.best_drafter) == (1.0, {}, "")


def test_a_copy_is_what_followed_the_longest_match():
    copier = HitCountingLongestMatchCopier()
    copier.append_and_index(TEXT)
    assert copier.find_match_length_and_copies([]) == (GRAM, [8, 8, 5, 1, 2, 3] * 2)  # and round again
    copier.append_and_index([6, 5, 1, 2, 3])
    assert copier.find_match_length_and_copies([]) == (
        GRAM + 1,
        [6, 5, 1, 2, 3, 6, 5, 1, 2, 3, 6, 5],
    )  # 5 1 2 3 stood there, too: the longer match wins
    copier.append_and_index([77])
    assert copier.find_match_length_and_copies([]) == (0, [])
    copier.append_and_index([5] * 40)
    assert copier.find_match_length_and_copies([])[1] == [5] * CHAIN


def test_a_copy_goes_on_behind_what_was_drafted():
    drafter = started(tiny_pair(), [*TEXT, 4])
    tree = DraftTree.from_root_token(4)
    nodes = [0, one := tree.add(0, 7, 1.0, 1.0), two := tree.add(one, 1, 1.0, 1.0), stray := tree.add(0, 200, 1.0, 1.0)]
    assert [drafter.draft_free_chain_and_token_chance(tree, node)[0] for node in nodes] == [
        [],
        [],
        [2, 3, 8, 8, 5, 1, 2, 3, 4, 7, 1, 2],
        [],
    ]
    deep = tree.add(two, 2, 1.0, 1.0)
    assert (
        drafter.draft_free_chain_and_token_chance(tree, deep)[1]
        > drafter.draft_free_chain_and_token_chance(tree, two)[1]
        > 0
        == drafter.draft_free_chain_and_token_chance(tree, stray)[1]
    )
    assert drafter.draft_forward_count == 0


def test_chances_of_copies_follow_what_came_true():
    copier = HitCountingLongestMatchCopier()
    first = copier.estimate_copy_hit_chance(GRAM)
    copier.count_copy_hits_and_first_miss(GRAM, [1, 2, 3], [1, 2, 3, 4])
    better = copier.estimate_copy_hit_chance(GRAM)
    copier.count_copy_hits_and_first_miss(GRAM, [1, 2, 3], [9])
    assert first < better > copier.estimate_copy_hit_chance(GRAM)
    assert copier.estimate_copy_hit_chance(GRAM) > 0.5  # three came true, one did not


def test_a_burst_that_ends_before_the_copy_does_says_nothing_against_it():
    drafter = started(tiny_pair(), TEXT)
    [token, *_], chance = drafter.draft_free_chain_and_token_chance(DraftTree.from_root_token(3), 0)
    drafter.commit(DraftTree.from_root_token(3), [], token, torch.zeros(1, 4, 64))
    assert drafter.copier.estimate_copy_hit_chance(GRAM) > chance


def grown(drafter, root: int, policy: CostAdaptiveTree) -> DraftTree:
    return policy.grow(drafter, root, 30, Sampling(), 99)


def test_auto_copies_instead_of_drafting_where_that_promises_more():
    drafter, policy = started(tiny_pair(), TEXT * 3), CostAdaptiveTree(12, 4, 24, "ranked", costs=COSTS)
    tree = grown(drafter, 3, policy)
    assert (
        drafter.draft_forward_count == 0
        and tree.tokens[1:4] == drafter.draft_free_chain_and_token_chance(DraftTree.from_root_token(3), 0)[0][:3]
    )
    assert max(tree.depth) == len(tree) - 1 <= 12
    drafter.copier.wrong = defaultdict(lambda: 50)
    grown(drafter, 3, policy)
    assert drafter.draft_forward_count > 0


def test_auto_goes_on_with_copies_where_drafting_stops():
    """The drafter favours 7, 1, 2, behind which the text has more; and a limit of depth holds for copies too."""

    class Saying(Drafter):
        draft_free_chain_and_token_chance = BestDrafterWithCopies.draft_free_chain_and_token_chance

        def __init__(self):
            self.copier = HitCountingLongestMatchCopier()
            self.copier.append_and_index([*TEXT, 4])
            self.behind_root = self.copier.find_match_length_and_copies([])

        def log_q(self, tree, nodes):
            self.draft_forward_count += 1
            rows = torch.full((len(nodes), 300), -12.0)
            for row, node in zip(rows, nodes, strict=True):
                row[{4: 7, 7: 1}.get(tree.tokens[node], 2)] = 0.0
            return rows

    for depth in (12, 5):
        drafter = Saying()
        drafter.copier.true[GRAM + 1] = 50
        policy = CostAdaptiveTree(depth, 4, 24, "ranked", costs=COSTS)
        policy.reach = 3.0
        tree = grown(drafter, 4, policy)
        assert drafter.draft_forward_count == 3 and tree.tokens == [
            4,
            7,
            1,
            2,
            *[3, 8, 8, 5, 1, 2, 3, 4, 7][: depth - 3],
        ]
        assert tree.parents == [*range(-1, len(tree) - 1)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_auto_with_copies_writes_plain_decodings_text(embedded, temperature):
    """A text that repeats itself, so that copies are made and accepted."""
    prompt = "# Python\nNAMES = ['one', 'two', 'three']\nOTHERS = ['one', 'two', 'three']\nTHIRD = ['one', 'two',"
    race = Race(embedded, Settings(prompt, ("vanilla", "auto"), temperature=temperature, max_new_tokens=40))
    drafter, copies = race.lanes[1].rounds.drafter, []
    inner = drafter.draft_free_chain_and_token_chance
    drafter.draft_free_chain_and_token_chance = lambda *args: copies.append(inner(*args)) or copies[-1]
    list(race.run())
    assert any(chain for chain, _ in copies) and race.result()["identical"] is True
