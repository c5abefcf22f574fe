"""Pace: how many calls somebody may begin, so that a flood is turned away before it costs anything. Knows names and seconds."""

import os
import time
from collections.abc import Callable, Mapping

MOST_NAMES = 10_000  # that are remembered


class Pace:
    """Everybody may begin `burst` calls at once, and `rate` more every second."""

    def __init__(self, burst: float, rate: float, now: Callable[[], float] = time.monotonic):
        self.burst, self.rate, self.now = burst, rate, now
        self.left: dict[str, tuple[float, float]] = {}  # by name: calls that were left, and when

    def allows(self, name: str) -> bool:
        """Whether this one may begin a call now; it counts as begun."""
        left, noted = self.left.pop(name, (self.burst, self.now()))
        left = min(self.burst, left + self.rate * (self.now() - noted))
        self.left[name] = (left - 1 if left >= 1 else left, self.now())
        if len(self.left) > MOST_NAMES:
            del self.left[next(iter(self.left))]  # who has asked for nothing the longest
        return left >= 1


def address_of(headers: Mapping[str, str], peer: str) -> str:
    """Where a request comes from: the peer, or on Spaces whom the proxy next to it names."""
    passed_on = headers.get("x-forwarded-for", "") if "SPACE_ID" in os.environ else ""
    return passed_on.rpartition(",")[2].strip() or peer
