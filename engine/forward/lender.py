"""Lender: keeps what is expensive to make, a cache with its graphs, for the next borrower."""

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any


class IdleCacheLender:
    """Lends out what is expensive to make, and keeps idle ones of up to `max_bytes` together, those that came back last.

    What is lent has a `size` in bytes. What is not `whole` was made when memory was short, and is not kept.
    """

    def __init__(self, max_bytes: int):
        self.most, self.lock = (
            max_bytes,
            threading.RLock(),
        )  # a borrower may be collected while this thread holds the lock
        self.idle: list[tuple[Hashable, Any]] = []

    def lend_idle_or_new(self, key: Hashable, make: Callable[[], Any], borrower: object) -> Any:
        """What was made for `key`: the idle one that came back last, else a new one. It comes back when the borrower is collected."""
        found = self.take_idle(key)
        found = make() if found is None else found
        weakref.finalize(borrower, self.return_to_idle_and_evict, key, found).atexit = False
        return found

    def take_idle(self, key: Hashable) -> Any:
        """Take the idle one of that key that came back last; None without one."""
        with self.lock:
            found = next((entry for entry in reversed(self.idle) if entry[0] == key), None)
            if found is None:
                return None
            self.idle.remove(found)
            return found[1]

    def return_to_idle_and_evict(self, key: Hashable, made: Any) -> None:
        if not made.whole:
            return
        with self.lock:
            self.idle.append((key, made))
            while self.idle and sum(each.size for _, each in self.idle) > self.most:
                self.idle.pop(0)

    def clear(self) -> None:
        """Keep nothing that is idle."""
        with self.lock:
            self.idle.clear()
