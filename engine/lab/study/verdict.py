"""Verdict: from counts, prompt by prompt, to what is said of a claim.

A gain is the geometric mean over prompts of two counts' quotient, both of the same prompt. Its interval is the bootstrap over prompts
of `engine.measure.verdict`. Every comparison has a 95 % interval of its own, so about one in twenty is wrong by chance alone.
"""

from typing import NamedTuple

from engine.measure.verdict import interval, mean, resamples
from engine.measure.words import TOO_FEW

CONFIRMED, NOT_CONFIRMED, NOT_TESTABLE = "confirmed", "not confirmed", "not testable at this size"


class Gain(NamedTuple):
    """`ratio` is `more` over `than`, `low` and `high` are the ends of its interval. All three are geometric means over prompts.

    `published` is the least ratio that the paper gives, 1 where any gain is the claim.
    """

    more: float
    than: float
    ratio: float
    low: float
    high: float
    prompts: int
    published: float


def gain(more: list[float], than: list[float], published: float = 1.0) -> Gain:
    """From two lists of counts by prompt, all above 0. The same counts give the same interval."""
    quotients = [mine / other for mine, other in zip(more, than, strict=True)]
    low, high = interval(quotients, resamples(len(quotients), seed=0))
    return Gain(mean(more), mean(than), mean(quotients), low, high, len(quotients), published)


def lacking(found: Gain) -> str:
    """What the gain lacks for its claim, "" when it lacks nothing: all of the interval above 1, some of it at the published size."""
    if found.high < 1:
        return "it is a loss"
    if found.low <= 1:
        return f"the interval holds 1, so {found.prompts} prompts show no gain"
    if found.high < found.published:
        return f"there is a gain, but a smaller one than the published {found.published:g} times"
    return ""


def verdict(gains: dict[str, Gain], beyond: str = "") -> tuple[str, str]:
    """What is said of a claim, and why. `gains` are its comparisons by name; all of them must hold.

    `beyond` says why the claim cannot be tested, whatever the gains are.
    """
    if beyond:
        return NOT_TESTABLE, beyond
    fewest = min(found.prompts for found in gains.values())
    if fewest < TOO_FEW:
        return NOT_TESTABLE, f"An interval over {fewest} prompts says too little. Give at least {TOO_FEW}."
    if wrong := [f"{name}: {words}" for name, found in gains.items() if (words := lacking(found))]:
        return NOT_CONFIRMED, "; ".join(wrong)
    sizes = [f"{found.published:g}" for found in gains.values() if found.published > 1]
    reached = f" and reaches the published {sizes[0]} times" if sizes else ""
    return CONFIRMED, f"{'The' if len(gains) == 1 else 'Every'} interval lies above 1{reached}."
