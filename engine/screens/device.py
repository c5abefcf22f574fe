"""The device: one thing at a time, a race or a step that makes something ready. Knows turns and words; knows no model.

A race goes before the next step. Neither begins inside the other, so no lane's clock is disturbed.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Device:
    """Whose turn it is, and what for. A turn may end on another thread than it began on, as a stream's does."""

    def __init__(self):
        self.changed = threading.Condition()
        self.taken, self.races_waiting = False, 0
        self.doing = ""  # what the turn is for, in words

    @contextmanager
    def race(self, doing: str = "Making ready what the race needs") -> Iterator[None]:
        """A race's turn. It waits for the turn that runs, and for no step behind that."""
        with self.changed:
            self.races_waiting += 1
            try:
                self.changed.wait_for(lambda: not self.taken)
            finally:
                self.races_waiting -= 1
            self.taken, self.doing = True, doing
        try:
            yield
        finally:
            self.give_back()

    @contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """The turn of a step that makes something ready. It waits until no race runs or waits."""
        with self.changed:
            self.changed.wait_for(lambda: not self.taken and not self.races_waiting)
            self.taken, self.doing = True, doing
        try:
            yield
        finally:
            self.give_back()

    def give_back(self) -> None:
        with self.changed:
            self.taken = False
            self.changed.notify_all()

    @property
    def words(self) -> str:
        """What the device does, and whether a race waits for that."""
        return f"{self.doing}; the race comes next" if self.races_waiting else self.doing


DEVICE = Device()  # of this process
