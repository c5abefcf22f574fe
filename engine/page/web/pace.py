"""Pace: how many calls somebody may begin, so that a flood is turned away before it costs anything. Knows names and seconds."""

import asyncio
import math
import os
import time
from collections.abc import Mapping
from typing import Any

MOST_NAMES = 10_000  # that are remembered
LONGEST = 60.0  # seconds that a turn is waited for: a hall full of visitors at one address opens the page at once


class RateLimiter:
    """Everybody may begin `burst_calls` at once, and `calls_per_second` more. Who comes faster is turned away, or waits."""

    def __init__(self, burst_calls: float, calls_per_second: float):
        self.burst, self.rate, self.now, self.sleep = burst_calls, calls_per_second, time.monotonic, asyncio.sleep
        # By name: calls that were left, and when; below 0 some wait for theirs
        self.left: dict[str, tuple[float, float]] = {}

    def get_wait_seconds_and_book_call_if_within(self, caller: str, max_wait_seconds: float = 0.0) -> float:
        """Seconds until this one may begin another call. It counts as begun when they are no more than `max_wait_seconds`."""
        left, noted = self.left.pop(caller, (self.burst, self.now()))
        left = min(self.burst, left + self.rate * (self.now() - noted))
        wait = 0.0 if left >= 1 else (1 - left) / self.rate if self.rate else math.inf
        self.left[caller] = (left - (wait <= max_wait_seconds), self.now())
        if len(self.left) > MOST_NAMES:
            del self.left[next(iter(self.left))]  # who has asked for nothing the longest
        return wait

    def book_call_if_allowed_now(self, caller: str) -> bool:
        """Whether this one may begin a call now."""
        return not self.get_wait_seconds_and_book_call_if_within(caller)

    async def wait_for_turn(self, caller: str) -> bool:
        """Whether the turn has come. False at once when it would not come within `LONGEST` seconds."""
        wait = self.get_wait_seconds_and_book_call_if_within(caller, LONGEST)
        if 0 < wait <= LONGEST:
            await self.sleep(wait)
        return wait <= LONGEST


# Of the page and its files; so many a second take a few hundredths of a core
READS = RateLimiter(burst_calls=600, calls_per_second=150)
# Of pages that say that they are there, or ask how far the engine is
SIGNS = RateLimiter(burst_calls=100, calls_per_second=50)


def client_address_or_network_of_scope(scope: Mapping[str, Any]) -> str:
    """The address that a request of ASGI comes from."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return client_address_of(headers, (scope.get("client") or ("",))[0])


def client_address_of(headers: Mapping[str, str], peer_address: str) -> str:
    """Where a request comes from: the peer, or on Spaces whom the proxy next to it names."""
    passed_on = headers.get("x-forwarded-for", "") if "SPACE_ID" in os.environ else ""
    return passed_on.rpartition(",")[2].strip() or peer_address
