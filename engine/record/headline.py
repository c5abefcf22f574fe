"""Headline: the speedups of a race that ran several times, as medians with their spread. Standard library only; knows no race.

The same seed gives the same text, so further runs are the same steps in other seconds. A median is the ratio of a run that took place:
of an even number of runs the lower one of the middle two.
"""

import math
import statistics

SecondsByRunAndLane = list[list[float]]  # by run, by lane: seconds with prefill


def compute_speedups_over_first_lane(tokens_by_lane: list[int], seconds_by_lane: list[float]) -> list[float]:
    """By lane: tokens a second by those of the first lane, 0 where that wrote nothing."""
    speeds = [count / seconds for count, seconds in zip(tokens_by_lane, seconds_by_lane, strict=True)]
    return [speed / speeds[0] if speeds[0] else 0.0 for speed in speeds]


def median_and_spread_of_speedups(
    tokens_by_lane: list[int], seconds_by_run: SecondsByRunAndLane
) -> list[dict[str, float]]:
    """By lane, over all runs: the median `speedup`, and the `least` and the `most`."""
    lanes = zip(*(compute_speedups_over_first_lane(tokens_by_lane, run) for run in seconds_by_run), strict=True)
    return [{"speedup": statistics.median_low(lane), "least": min(lane), "most": max(lane)} for lane in lanes]


def is_speed_ratio_a_tie(ratio: float) -> bool:
    """Whether a ratio of two speeds reads 1.0 when it is rounded: clocks cannot tell who is faster. As in `numbers.js`."""
    return 0.95 < ratio < 1.05


def find_run_nearest_to_median_speedups(tokens_by_lane: list[int], seconds_by_run: SecondsByRunAndLane) -> int:
    """The run whose speedups are nearest to the medians, by their ratios; the first of equals."""
    middle = [lane["speedup"] for lane in median_and_spread_of_speedups(tokens_by_lane, seconds_by_run)]

    def far(run: list[float]) -> float:
        found = zip(compute_speedups_over_first_lane(tokens_by_lane, run), middle, strict=True)
        return math.fsum(abs(math.log(mine / usual)) for mine, usual in found if mine and usual)

    return min(range(len(seconds_by_run)), key=lambda at: far(seconds_by_run[at]))
