"""Measured costs: between and beyond the sizes that were measured."""

from dataclasses import replace

import pytest

from engine.record.costs import Costs, MeanRoundCountsOfShape

COSTS = Costs({1: 5.0, 2: 5.1, 8: 5.8, 16: 7.0, 32: 10.0}, first_ms=1.0, level_ms=0.5)


def test_costs_between_and_beyond_what_was_measured():
    assert (
        COSTS.interpolate_verify_ms(8) == 5.8
        and COSTS.interpolate_verify_ms(12) == pytest.approx(6.4)
        and COSTS.interpolate_verify_ms(64) == pytest.approx(16)
        and Costs({4: 3.0}, 0.0, 0.0).interpolate_verify_ms(9) == 3.0
    )
    assert COSTS.round_ms(8, 0) == 5.8 and COSTS.round_ms(8, 3) == pytest.approx(5.8 + 1.0 + 2 * 0.5)
    assert COSTS.break_even_tau(8, 3) == pytest.approx(7.8 / 5.0) and COSTS.break_even_tau(1, 0) == 1.0


# ---- shapes

DEAR, CHEAP = Costs({1: 4.0, 4: 8.0, 12: 24.0}, 0.0, 0.0), Costs({1: 4.0, 12: 4.4}, 0.0, 0.0)
COUNTED = {
    "6x4x12": MeanRoundCountsOfShape(3.6, 12.0, 6.0),
    "2x3x4": MeanRoundCountsOfShape(2.4, 4.0, 2.0),
    "1x2x3": MeanRoundCountsOfShape(1.2, 3.0, 1.0),
}


def test_the_best_shape_wins_the_most_tokens_for_what_its_rounds_cost():
    """Where rows are dear the small tree is best, where they are nearly free the large one is."""
    assert (
        DEAR.with_predicted_speedups_of_shapes(COUNTED).best_shape == "2x3x4"
        and CHEAP.with_predicted_speedups_of_shapes(COUNTED).best_shape == "6x4x12"
    )
    found = DEAR.with_predicted_speedups_of_shapes(COUNTED).shapes["6x4x12"]
    assert (found.tau, found.cost, found.speedup) == (3.6, 6.0, pytest.approx(0.6))


def test_draft_levels_cost_too_and_costs_fall_on_straight_lines_between_rows():
    drafted = replace(CHEAP, first_ms=2.0, level_ms=3.0).with_predicted_speedups_of_shapes(COUNTED)
    assert drafted.best_shape == "2x3x4" and drafted.shapes["6x4x12"].cost == pytest.approx((4.4 + 2 + 5 * 3) / 4)
    assert DEAR.with_predicted_speedups_of_shapes({"3x2x8": MeanRoundCountsOfShape(2.0, 8.5, 1.0)}).shapes[
        "3x2x8"
    ].cost == pytest.approx(17 / 4, abs=1e-3)


def test_of_equal_shapes_the_first_is_best_which_is_the_papers_own():
    equal = {name: MeanRoundCountsOfShape(2.4, 4.0, 2.0) for name in ("4x4x8", "2x3x4", "1x2x3")}
    backwards = dict(reversed(equal.items()))
    assert (
        DEAR.with_predicted_speedups_of_shapes(equal).best_shape == "4x4x8"
        and DEAR.with_predicted_speedups_of_shapes(backwards).best_shape == "1x2x3"
    )
    assert DEAR.with_predicted_speedups_of_shapes({}).best_shape == ""


def test_costs_rise_with_the_rows_whatever_else_the_machine_did():
    noisy = Costs({1: 9.0, 2: 1.1, 4: 1.4, 8: 1.3, 16: 3.6}, first_ms=0.3, level_ms=0.2)
    assert noisy.with_monotonic_verify_costs() == Costs(
        {1: 1.1, 2: 1.1, 4: 1.3, 8: 1.3, 16: 3.6}, first_ms=0.3, level_ms=0.2
    )
    assert DEAR.with_monotonic_verify_costs() == DEAR
