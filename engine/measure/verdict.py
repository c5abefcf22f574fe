"""Verdict: from seconds a token, prompt by prompt, to yes, no or only.

A speedup over several prompts is the geometric mean of the prompts' own. Its interval is a percentile bootstrap over prompts (Efron
1979). All systems share the resamples. The best one is chosen after the fact, so of equals its interval is a little too kind.
"""

import math

import numpy as np
import torch

from engine.sampling import Sampling

RESAMPLES = 2_000
CONFIDENCE = 0.95
YES, NO, ONLY = "yes", "no", "only"


def draw_resamples(prompts: int, seed: int) -> np.ndarray:
    """Indices of prompts `[RESAMPLES, prompts]`, drawn with replacement. The same seed gives the same indices."""
    even = torch.full((1, prompts), 1 / prompts)
    [drawn] = Sampling(seed=seed).draw_with_replacement(even, [RESAMPLES * prompts], "bootstrap over prompts")
    return np.array([index for index, _ in drawn]).reshape(RESAMPLES, prompts)


def divide_seconds_by_prompt(other_seconds: list[float], own_seconds: list[float]) -> list[float]:
    """How many times as fast as the others, prompt by prompt. Both are seconds a token."""
    return [other / own for other, own in zip(other_seconds, own_seconds, strict=True)]


def geometric_mean(speedups: list[float]) -> float:
    """The geometric mean."""
    return math.exp(math.fsum(map(math.log, speedups)) / len(speedups))


def bootstrap_interval_of_mean(speedups: list[float], resamples: np.ndarray) -> list[float]:
    """The lower and the upper end of the mean's interval, from the resamples `resamples [R, prompts]`."""
    return np.exp(percentile_ends(np.log(speedups)[resamples].mean(axis=1))).tolist()


def percentile_ends(resampled: np.ndarray) -> np.ndarray:
    """The lower and the upper end of a percentile bootstrap's interval, from what each resample gave `[R]`."""
    outside = (1 - CONFIDENCE) / 2
    return np.quantile(resampled, [outside, 1 - outside])


def compare_with_plain_and_generate(
    system_seconds: list[float], plain_seconds: list[float], generate_seconds: list[float], resamples: np.ndarray
) -> dict:
    """One system's figures against plain decoding and against `generate()`. All three lists are seconds a token by prompt."""
    by_prompt, beside = (
        divide_seconds_by_prompt(plain_seconds, system_seconds),
        divide_seconds_by_prompt(generate_seconds, system_seconds),
    )
    return {
        "speedup": geometric_mean(by_prompt),
        "interval": bootstrap_interval_of_mean(by_prompt, resamples),
        "vs_generate": geometric_mean(beside),
        "vs_generate_interval": bootstrap_interval_of_mean(beside, resamples),
        "gaining": sum(speedup > 1 for speedup in by_prompt),
        "by_prompt": by_prompt,
    }


def best_lossless_row_of(system_rows: list[dict]) -> dict:
    """The row of the highest speedup, the first of equals. A lossy system is never the best, because it may write another text."""
    return max((row for row in system_rows if row["guarantee"] != "lossy"), key=lambda row: row["speedup"])


def judge_yes_no_or_only(best_row: dict) -> str:
    """What the best system's row says: "no" when the interval ends or the mean is below 1, "yes" when it begins above, else "only"."""
    low, high = best_row["interval"]
    if high < 1 or best_row["speedup"] < 1:
        return NO
    return YES if low > 1 else ONLY
