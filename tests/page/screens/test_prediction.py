"""Prediction: the three trees, and that a race needs a choice first."""

from itertools import pairwise

import pytest

from engine.page.screens import orders
from engine.page.screens.orders import predicted, trees
from engine.race import LIMITS, SHAPE
from engine.systems import find
from helpers.pairs import tiny_pair


def test_the_three_trees_grow_in_every_way_and_can_be_raced():
    pair = tiny_pair()
    shapes = [[getattr(find(name), dial) for dial in SHAPE] for name in trees(True).values()]
    for smaller, larger in pairwise(shapes):
        assert all(one < other for one, other in zip(smaller, larger, strict=True))
    assert all(shape[at] <= LIMITS[dial][1] for shape in shapes for at, dial in enumerate(SHAPE))
    race = {**predicted(True, '{"guess": "large"}'), "prompt": "Once", "max_new_tokens": 8}
    assert orders.order(pair, "prix", race).tokens == 4 * 8
    assert race["systems"] == ["vanilla", *trees(True).values()]


def test_a_pair_without_a_draft_model_races_prompt_lookup():
    assert [name.split(":")[0] for name in trees(False).values()] == ["lookup"] * 3


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        ('{"guess": ""}', "Choose first which tree you think wins: small, medium, large; got ''."),
        ('{"guess": "huge"}', "Choose first which tree you think wins"),
        ('{"guess": ["small"]}', "Choose first which tree you think wins"),
        ("{}", "The order must name guess"),
        ('{"guess": "small", "systems": []}', "'systems' is wrong in it"),
        (None, "The order"),
    ],
)
def test_without_a_choice_nothing_races(order, sentence):
    with pytest.raises(ValueError) as refusal:
        predicted(True, order)
    assert sentence in str(refusal.value)
