"""What if: the speedup that a draft tree would have with another acceptance, depth, width, draft cost or batch. Knows costs, no race.

A round of B sequences verifies (1 + depth x width) B rows, and plain decoding takes B rows for one token each. With t(N), the time of
a forward over N rows, and c, the time of a draft level in plain tokens:

    E       = 1 + a + a^2 + ... + a^depth                       tokens a round (Leviathan et al. 2023)
    speedup = E t(B) / (t((1 + depth width) B) + depth c t(B))

Three things are assumed: every depth is accepted with the same chance a where the depth above was; drafting grows with the batch as
plain decoding does; and rows of several sequences cost what rows of one do. Prefill and the host's own work are left out.
`assets/page/lab/what-if-formula.js` computes the same; `tests/page/browser/lab/test_page_pays.py` holds them equal.
"""

from dataclasses import dataclass

from engine.page.views.layout import layout
from engine.record.costs import Costs
from engine.record.trace import Trace
from engine.record.trace_statistics import decode_seconds_per_token, tau

HALVINGS = 60  # of the range in which an acceptance is sought


@dataclass(frozen=True)
class Point:
    """A tree at work. `acceptance` is a share, `depth` and `width` are means, `draft` is a level's time in plain tokens."""

    acceptance: float
    depth: float
    width: float
    draft: float
    batch: int = 1

    @classmethod
    def of(cls, drafted: list[Trace], plain: list[Trace]) -> "Point":
        """The point that races measured: a system's lanes, and the baseline's of the same races."""
        steps = [step for trace in drafted for step in trace.steps]
        levels = sum(max(layout(step.parents)[0]) for step in steps)  # below the roots
        token = decode_seconds_per_token(plain)
        depth = levels / len(steps)
        return cls(
            acceptance=acceptance_of(tau(drafted), depth),
            depth=depth,
            width=sum(len(step.parents) - 1 for step in steps) / levels if levels else 1.0,
            draft=sum(step.seconds.get("draft", 0.0) for step in steps) / levels / token if levels else 0.0,
        )


def tokens_a_round(acceptance: float, depth: float) -> float:
    """E: the burst's mean length, bonus included. A mean depth need not be whole."""
    if acceptance == 1:
        return depth + 1
    return (1 - acceptance ** (depth + 1)) / (1 - acceptance)


def acceptance_of(tokens: float, depth: float) -> float:
    """The chance per token with which rounds of that depth yield so many tokens; at most 1."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_a_round(middle, depth) < tokens else (low, middle)
    return high


def speedup(costs: Costs, point: Point) -> float | None:
    """How many times plain decoding's speed; None where the round has more rows than were measured."""
    rows = (1 + point.depth * point.width) * point.batch
    if rows > max(costs.verify_ms):
        return None
    plain = costs.verify_at(point.batch)
    taken = costs.verify_at(rows) + point.depth * point.draft * plain
    return tokens_a_round(point.acceptance, point.depth) * plain / taken
