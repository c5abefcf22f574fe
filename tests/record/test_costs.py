"""Measured costs: between and beyond the sizes that were measured."""

import pytest

from engine.record.costs import Costs

COSTS = Costs({1: 5.0, 2: 5.1, 8: 5.8, 16: 7.0, 32: 10.0}, first_ms=1.0, level_ms=0.5)


def test_costs_between_and_beyond_what_was_measured():
    assert (
        COSTS.verify_at(8) == 5.8
        and COSTS.verify_at(12) == pytest.approx(6.4)
        and COSTS.verify_at(64) == pytest.approx(16)
    )
    assert COSTS.round_ms(8, 0) == 5.8 and COSTS.round_ms(8, 3) == pytest.approx(5.8 + 1.0 + 2 * 0.5)
    assert COSTS.break_even(8, 3) == pytest.approx(7.8 / 5.0) and COSTS.break_even(1, 0) == 1.0
