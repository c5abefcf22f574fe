"""Kept streams: what a session is told goes on for a while without its reader, who may come again for the rest.

A proxy may end an answer after some seconds, and Gradio then ends all runs of its session. Events are numbered in their order, from 0.
Knows HTTP as ASGI has it; knows no run.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

KEPT = 10.0  # seconds that a stream goes on unread, and that its events are kept
ENDING = 1.0  # seconds that a stream whose session begins another one may take to end
FIRST = "first"  # what a page says that has heard nothing, and comes again if the stream breaks
HEARD = re.compile(rf"(?:.*&)?heard=({FIRST}|\d{{1,9}})(?:&.*)?".encode())
# An application's, given `receive` and `send`
AppAwaitingReceiveAndSend = Callable[[Callable, Callable], Awaitable[None]]


def parse_received_event_count_or_first(scope: dict) -> str:
    """How many events the reader has, or `FIRST`; "" for one who does not come again."""
    said = HEARD.fullmatch(scope["query_string"])
    return said[1].decode() if said else ""


class ResumableStream:
    """An event stream whose events are kept, so that a reader who lost the connection can resume it. It is told that its reader has
    left when nobody has read for `KEPT` seconds.
    """

    def __init__(self, application: AppAwaitingReceiveAndSend):
        self.head: dict[str, Any] = {}
        self.events: deque[tuple[float, dict]] = deque()  # when each came, and its chunk
        self.count = self.sent = 0  # events that came, and that some reader was sent
        self.reader: object | None = None  # the one who came last
        self.is_over, self.asks = False, True
        self.news, self.unread = asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self.run_application_to_end(application))

    async def run_application_to_end(self, application: AppAwaitingReceiveAndSend) -> None:
        try:
            await application(self.receive, self.store_message)
        finally:
            self.is_over = True
            self.wake_reader()

    async def receive(self) -> dict[str, Any]:
        if self.asks:
            self.asks = False
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.unread.wait()
        return {"type": "http.disconnect"}

    async def store_message(self, message: dict) -> None:
        if message["type"] == "http.response.start":
            self.head = message
        elif message.get("body"):
            now = time.monotonic()
            self.events.append((now, message))
            self.count += 1
            while self.count - len(self.events) < self.sent and now - self.events[0][0] > KEPT:
                self.events.popleft()
        self.wake_reader()

    def wake_reader(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    def has_events_from(self, first_event: int) -> bool:
        """Whether the stream can be resumed from this event number: all events from there on are kept or may still come."""
        return self.count - len(self.events) <= first_event <= self.count - self.is_over

    async def send_events_from(self, next_event: int, receive: Callable, send: Callable) -> None:
        """Sends the events from number `next_event` on, until the last one, until this reader has left or until another one comes."""
        left = asyncio.create_task(await_disconnect(receive))
        left.add_done_callback(lambda _: self.wake_reader())
        me = self.reader = object()
        self.wake_reader()
        has_begun = False
        try:
            while not left.done():
                news = self.news
                if self.head and not has_begun:
                    await send(self.head)
                    has_begun = True
                while next_event < self.count and self.reader is me and not left.done():
                    _, message = self.events[next_event - self.count]
                    await send({**message, "more_body": True})
                    next_event += 1
                    self.sent = max(self.sent, next_event)
                if self.is_over or self.reader is not me:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    return
                await news.wait()
        finally:
            left.cancel()
            self.reader = None if self.reader is me else self.reader
            asyncio.get_running_loop().call_later(KEPT, self.disconnect_app_if_unread_since, self.sent)

    def disconnect_app_if_unread_since(self, events_sent_when_reader_left: int) -> None:
        """`events_sent_when_reader_left` is how many events had been sent when a reader left."""
        if not self.reader and self.sent == events_sent_when_reader_left:
            self.unread.set()


async def await_disconnect(receive: Callable) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class ResumableStreams(dict[str, ResumableStream]):
    """The streams that may be read, by session."""

    async def replace_stream_of_session(self, session: str, application: AppAwaitingReceiveAndSend) -> ResumableStream:
        """The session's next stream. The one before it has ended, or is told that its reader has left."""
        if before := self.get(session):
            await asyncio.wait([before.task], timeout=ENDING)
            before.unread.set()
        begun = self[session] = ResumableStream(application)
        loop = asyncio.get_running_loop()
        begun.task.add_done_callback(lambda _: loop.call_later(KEPT, self.remove_if_still_current, session, begun))
        return begun

    def find_stream_resumable_from(self, session: str, first_event: int) -> ResumableStream | None:
        """The session's stream, where it holds what comes behind so many events."""
        kept = self.get(session)
        return kept if kept and kept.has_events_from(first_event) else None

    def remove_if_still_current(self, session: str, stream: ResumableStream) -> None:
        if self.get(session) is stream:
            del self[session]
