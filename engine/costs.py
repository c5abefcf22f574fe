"""Costs: what forwards take on this machine, measured when a pair is loaded. The policy `auto` sizes its trees by them.

They never reach a rule or a draw: two machines with other costs draft other trees and write the same text.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)


def between(known: dict[int, float], at: int) -> float:
    """The value at `at`: straight lines between what was measured, and on behind it."""
    places = sorted(known)
    if len(places) == 1:
        return known[places[0]]
    above = next((index for index, each in enumerate(places) if each >= at), len(places) - 1)
    left, right = places[max(above - 1, 0)], places[max(above, 1)]
    return known[left] + (known[right] - known[left]) / (right - left) * (at - left)


@dataclass(frozen=True)
class Costs:
    """Milliseconds: `verify_ms[N]` of a target forward over N rows; by drafter `first_ms`, the forward that answers for the root, and
    `level_ms`, one for a level of a few nodes below it."""

    verify_ms: dict[int, float]
    first_ms: dict[str, float]
    level_ms: dict[str, float]

    def verify_at(self, rows: int) -> float:
        return between(self.verify_ms, rows)

    def break_even(self, drafter: str, rows: int, levels: int) -> float:
        """The tau at which a tree of `rows` nodes, drafted in `levels` levels, costs as much a token as plain decoding."""
        drafting = self.first_ms.get(drafter, 0.0) + max(0, levels - 1) * self.level_ms.get(drafter, 0.0)
        return (self.verify_at(rows) + drafting * (levels > 0)) / self.verify_at(1)

    def to_dict(self) -> dict[str, dict]:
        return asdict(self)
