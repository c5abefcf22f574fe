"""Quiet: what steps of long work yield when they have no news. Whoever takes the steps may do something else in between."""

import time
from collections.abc import Generator
from enum import Enum
from typing import Any


class WorkSignal(Enum):
    """What long work yields between messages: a step was made, nothing could be done, or a piece of the work is complete."""

    STEP = "a step was taken, and there is more to do"
    PIECE = "the step has completed a piece of work, of those that are counted"
    IDLE = "there is nothing to do for a moment: what is left is on its way from a server"


Message = dict[str, Any]
MessageAndSignalGenerator = Generator[
    Message | WorkSignal, None, None
]  # of a run: its messages, and quiet steps between them


class MessageIntervalTimer:
    """Says now and then that a message is due, so that not every step sends one."""

    def __init__(self, interval_seconds: float):
        self.seconds, self.last = interval_seconds, time.monotonic()

    def restart_if_interval_passed(self) -> bool:
        """Whether so many seconds have passed since it last said so."""
        now = time.monotonic()
        if now - self.last < self.seconds:
            return False
        self.last = now
        return True
