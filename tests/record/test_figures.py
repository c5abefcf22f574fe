"""Figures over several lanes and traces: the worst verdict is told, and longer texts weigh more. No model, no page."""

from dataclasses import replace
from itertools import combinations

import pytest

from engine.record import trace_statistics
from engine.record.race_file import select_worst_comparison_result
from engine.record.trace import Trace
from helpers.traces import one_node

WORST_FIRST = ("failed", False, "lossy", "other text", "law", "text", True)


def trace(steps: int, prefill: float, verify: float, draft: float = 0.0, tokens: int = 1) -> Trace:
    """So many steps of `tokens` tokens each. The first one reads the prompt."""
    made = [
        one_node(index=at, burst=[7] * tokens, pieces=["x"] * tokens, seconds={"verify": verify, "draft": draft})
        for at in range(steps)
    ]
    made[0] = replace(made[0], seconds={**made[0].seconds, "prefill": prefill})
    return Trace("vanilla", "a pair", "a machine", "fp32", "Once", [1, 2], 0.0, 3, 4, 4, 8, 40, made)


@pytest.mark.parametrize(("worse", "better"), [*combinations(WORST_FIRST, 2)])
def test_of_two_verdicts_the_worse_is_told(worse, better):
    """A broken promise is worse than a system that promises nothing."""
    assert (
        select_worst_comparison_result([better, worse, True])
        == worse
        == select_worst_comparison_result([worse, better])
    )


def test_figures_of_several_texts_weigh_every_second_and_every_token():
    """A short text that is written fast, and a long one that is not: means of their own figures would be others."""
    short, long = trace(2, prefill=1.0, verify=0.5, tokens=4), trace(20, prefill=2.0, verify=0.5, draft=0.5)
    both = [short, long]
    assert trace_statistics.pooled_tau(both) == pytest.approx(28 / 22)
    assert trace_statistics.pooled_seconds_per_token_with_prefill(both) == pytest.approx((2.0 + 22.0) / 28)
    assert trace_statistics.pooled_decode_seconds_per_token(both) == pytest.approx((1.0 + 20.0) / 28)
    shares = {"prefill": 3.0 / 24, "draft": 10.0 / 24, "verify": 11.0 / 24, "rest": 0.0}
    assert trace_statistics.pooled_time_shares_by_phase(both) == pytest.approx(shares)
