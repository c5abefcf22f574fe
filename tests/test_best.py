"""The drafter `best`: the strongest that a pair has, and when it copies instead."""

from dataclasses import replace

import pytest
import torch
from conftest import tiny_pair

from engine.drafters.best import CHAIN, GRAM, BestDrafter, Copier
from engine.race import Race, Settings
from engine.tree import DraftTree

TEXT = [9, 4, 7, 1, 2, 3, 8, 8, 5, 1, 2, 3]


def started(pair, prompt: list[int]) -> BestDrafter:
    drafter = BestDrafter(pair, 140)
    drafter.begin(prompt, torch.zeros(len(prompt) - 1, 4, 64) if drafter.reads_features else None)
    return drafter


def test_it_is_the_strongest_that_the_pair_has():
    pair = tiny_pair()
    pairs = (pair, replace(pair, learned={}), replace(pair, learned={}, draft=None))
    kinds = [type(BestDrafter(each, 100).inner).__name__ for each in pairs]
    assert kinds == ["EagleDrafter", "ModelDrafter", "LookupDrafter"]


def test_a_copy_is_what_followed_the_longest_match():
    copier = Copier()
    copier.extend(TEXT)
    assert copier.suggestion() == (GRAM, [8, 8, 5, 1, 2, 3])
    copier.extend([6, 5, 1, 2, 3])
    assert copier.suggestion() == (GRAM + 1, [6, 5, 1, 2, 3])  # 5 1 2 3 stood there, too: the longer match wins
    copier.extend([77])
    assert copier.suggestion() == (0, [])
    assert len(max((c.suggestion()[1] for c in [copied([5] * 40)]), key=len)) <= CHAIN


def copied(tokens: list[int]) -> Copier:
    copier = Copier()
    copier.extend(tokens)
    return copier


def test_it_copies_for_nothing_where_copies_come_true_and_stops_where_they_do_not():
    drafter = started(tiny_pair(), TEXT * 2)
    assert drafter.length > GRAM and drafter.copying
    tree = DraftTree.rooted(3)
    for depth, token in enumerate(drafter.chain[:3]):
        row = drafter.log_q(tree, [depth])[0]
        assert row.argmax() == token and row.exp().sum() == pytest.approx(1.0, abs=1e-4)
        tree.add(depth, token, 1.0, 1.0)
    stray = tree.add(0, 200, 1.0, 1.0)
    assert drafter.log_q(tree, [stray]) is None and drafter.forwards == 0
    promised = drafter.copier.expected(drafter.length)
    length = drafter.length
    drafter.commit(DraftTree.rooted(3), [], 200, torch.zeros(1, 4, 64))
    assert drafter.copier.expected(length) < promised
    assert not drafter.copying and drafter.log_q(DraftTree.rooted(200), [0]) is not None and drafter.forwards == 1


def test_a_burst_that_ends_before_the_copy_does_says_nothing_against_it():
    drafter = started(tiny_pair(), TEXT)
    drafter.copying = False
    drafter.log_q(DraftTree.rooted(3), [0])
    drafter.commit(DraftTree.rooted(3), [], drafter.chain[0], torch.zeros(1, 4, 64))
    assert not drafter.copier.tried


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_auto_with_copies_writes_plain_decodings_text(embedded, temperature):
    """A text that repeats itself, so that copies are made and accepted."""
    prompt = "# Python\nNAMES = ['one', 'two', 'three']\nOTHERS = ['one', 'two', 'three']\nTHIRD = ['one', 'two',"
    race = Race(embedded, Settings(prompt, ("vanilla", "auto"), temperature=temperature, max_new_tokens=40))
    drafter, copies = race.lanes[1].drafter, []
    inner = drafter.copied
    drafter.copied = lambda *args: copies.append(1) or inner(*args)
    list(race.run())
    assert copies and race.result()["identical"] is True
