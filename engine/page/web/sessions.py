"""Sessions: whose news Gradio keeps, and who listens to them. Knows Gradio's queue and names; knows no run.

Gradio keeps the news of 2,000 sessions and throws out the oldest, also while its run is under way. `BoundedEventsBySession` replaces
that.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MOST = 2000  # sessions of which news are kept; no more runs than `CALLS` are under way
MOST_FETCHED = 10_000  # names that are remembered


class BoundedEventsBySession(OrderedDict[str, Any]):
    """Gradio's pending events by session, of bounded size: a new session replaces the oldest one without a run."""

    def __init__(self, gradio_queue: Any):
        """`gradio_queue` is Gradio's."""
        super().__init__()
        self.queue = gradio_queue

    def __setitem__(self, name: str, news: Any) -> None:
        if name not in self and len(self) >= MOST:
            under_way = {event.session_hash for event in self.queue.event_ids_to_events.values()}
            if over := next((each for each in self if each not in under_way), None):
                del self[over]
                self.queue.pending_event_ids_session.pop(over, None)
        super().__setitem__(name, news)

    def __delitem__(self, name: str) -> None:
        if name in self:  # Gradio lets go of a session as often as streams of it end
            super().__delitem__(name)


class OpenStreamCounter(Counter[str]):
    """How many answers go on, by name."""

    @contextmanager
    def count_while_open(self, key: str) -> Iterator[None]:
        self[key] += 1
        try:
            yield
        finally:
            self[key] -= 1
            if not self[key]:
                del self[key]


class StreamListeners:
    """The streams that are open, by the name of a session or of a call."""

    def __init__(self) -> None:
        self.streams = OpenStreamCounter()
        self.fetched: dict[str, None] = {}

    def has_listener(self, *session_or_call_names: str) -> bool:
        """Whether somebody listens to one of these."""
        return any(name in self.streams for name in session_or_call_names)

    def claim_first_fetch_of_stream(self, call_name: str) -> bool:
        """Whether this is the first stream of that name. Gradio would let a second one wait for ever."""
        if call_name in self.fetched:
            return False
        self.fetched[call_name] = None
        if len(self.fetched) > MOST_FETCHED:
            del self.fetched[next(iter(self.fetched))]
        return True


LISTENERS = StreamListeners()  # of this process
