"""Lender: keeps what is expensive to make, a cache with its graphs, for the next borrower. Knows no tensor."""

import weakref
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Made = TypeVar("Made")
KEPT = 6  # idle caches with their graphs that stay in memory


class Lender:
    """Lends out what is expensive to make, and keeps up to `KEPT` idle ones."""

    def __init__(self):
        self.idle: deque[tuple[Hashable, object]] = deque(maxlen=KEPT)

    def lend(self, key: Hashable, make: Callable[[], Made], borrower: object) -> Made:
        """What was made for `key`: an idle one, else a new one. It comes back when the borrower is collected. Safe from any thread."""
        found: Any = None
        for entry in list(self.idle):
            if entry[0] == key:
                try:
                    self.idle.remove(entry)
                except ValueError:  # another thread was faster
                    continue
                found = entry[1]
                break
        found = make() if found is None else found
        weakref.finalize(borrower, self.idle.append, (key, found)).atexit = False
        return found
