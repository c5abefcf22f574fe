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


def draw_bootstrap_indices(prompt_count: int, seed: int) -> np.ndarray:
    """Indices of prompts `[RESAMPLES, prompt_count]`, drawn with replacement. The same seed gives the same indices."""
    even = torch.full((1, prompt_count), 1 / prompt_count)
    [drawn] = Sampling(seed=seed).draw_with_replacement(even, [RESAMPLES * prompt_count], "bootstrap over prompts")
    return np.array([index for index, _ in drawn]).reshape(RESAMPLES, prompt_count)


def compute_speedups_by_prompt(other_seconds: list[float], own_seconds: list[float]) -> list[float]:
    """How many times as fast as the others, prompt by prompt. Both are seconds a token."""
    return [other / own for other, own in zip(other_seconds, own_seconds, strict=True)]


def geometric_mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def bootstrap_interval_of_geometric_mean(speedups: list[float], resampled_indices: np.ndarray) -> list[float]:
    """The lower and the upper end of the mean's interval, from the resamples `resampled_indices [R, prompts]`."""
    return np.exp(percentile_ends(np.log(speedups)[resampled_indices].mean(axis=1))).tolist()


def percentile_ends(resampled_means: np.ndarray) -> np.ndarray:
    """The lower and the upper end of a percentile bootstrap's interval, from what each resample gave `[R]`."""
    outside = (1 - CONFIDENCE) / 2
    return np.quantile(resampled_means, [outside, 1 - outside])


def compare_with_plain_and_generate(
    system_seconds: list[float],
    plain_seconds: list[float],
    generate_seconds: list[float],
    resampled_indices: np.ndarray,
) -> dict:
    """One system's figures against plain decoding and against `generate()`. All three lists are seconds a token by prompt."""
    by_prompt, beside = (
        compute_speedups_by_prompt(plain_seconds, system_seconds),
        compute_speedups_by_prompt(generate_seconds, system_seconds),
    )
    return {
        "speedup": geometric_mean(by_prompt),
        "interval": bootstrap_interval_of_geometric_mean(by_prompt, resampled_indices),
        "vs_generate": geometric_mean(beside),
        "vs_generate_interval": bootstrap_interval_of_geometric_mean(beside, resampled_indices),
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
