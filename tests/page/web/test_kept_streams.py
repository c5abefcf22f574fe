"""Kept streams: a reader that lost his connection gets the rest, each event once, and one that stays away frees what he had."""

import asyncio
from contextlib import suppress

import pytest

from engine.page.web import kept_streams
from engine.page.web.guard import QUEUE, RequestGuardMiddleware
from engine.page.web.sessions import LISTENERS
from helpers.commands import awaited

SESSION, COUNT = "abc", 6
EVENTS = [b"data: %d\n\n" % number for number in range(COUNT)]


class Gradio:
    """Tells the events one by one, each when `go_on` allows it, and ends early when it is told that its reader has left."""

    def __init__(self):
        self.go_on, self.calls, self.has_left, self.headers = asyncio.Semaphore(0), 0, asyncio.Event(), {}

    async def __call__(self, scope, receive, send):
        self.calls, self.headers = self.calls + 1, dict(scope["headers"])
        left = asyncio.create_task(self.watch(receive))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for event in EVENTS:
            next_one = asyncio.create_task(self.go_on.acquire())
            await asyncio.wait([next_one, left], return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                return
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        left.cancel()

    async def watch(self, receive):
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        self.has_left.set()


class Reader:
    """A connection: what came through it, and when it is cut."""

    def __init__(self, guard: RequestGuardMiddleware, query: str):
        self.cut, self.status, self.events, self.has_ended = asyncio.Event(), 0, [], False
        scope = {"type": "http", "method": "GET", "path": QUEUE, "query_string": query.encode(), "client": ("::1", 1)}
        scope |= {"headers": [(b"accept-encoding", b"br")], "root_path": ""}
        self.task = asyncio.create_task(guard(scope, self.receive, self.send))

    async def receive(self):
        await self.cut.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.events += [message["body"]] if message["body"] else []
            self.has_ended = not message.get("more_body")

    async def has(self, count: int):
        while len(self.events) < count:
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(kept_streams, "KEPT", 0.05)
    monkeypatch.setattr(kept_streams, "ENDING", 0.05)


def guarded() -> tuple[RequestGuardMiddleware, Gradio]:
    gradio = Gradio()
    guard = object.__new__(RequestGuardMiddleware)  # of its doors only this one is tried
    RequestGuardMiddleware.__init__(guard, gradio, type("NoDoors", (), {"file_by_address": {}})())
    return guard, gradio


def test_a_reader_who_comes_again_gets_what_is_behind_what_he_has(monkeypatch):
    """What was sent and got lost on its way is sent again."""
    monkeypatch.setattr(kept_streams, "KEPT", 5.0)

    async def lose() -> None:
        guard, gradio = guarded()
        first = Reader(guard, f"session_hash={SESSION}&heard=first")
        gradio.go_on.release()
        gradio.go_on.release()
        await first.has(2)
        assert LISTENERS.has_listener(SESSION) and b"accept-encoding" not in gradio.headers
        first.cut.set()
        await first.task
        assert not LISTENERS.has_listener(SESSION)
        gradio.go_on.release()  # an event comes while nobody reads
        await asyncio.sleep(0.01)
        second = Reader(guard, f"session_hash={SESSION}&heard=1")
        for _ in EVENTS:
            gradio.go_on.release()
        await second.task
        assert (first.events, second.events) == (EVENTS[:2], EVENTS[1:])
        assert second.status == 200 and second.has_ended and not first.has_ended
        assert gradio.calls == 1 and not gradio.has_left.is_set()
        last = Reader(guard, f"session_hash={SESSION}&heard={COUNT - 1}")  # the end itself was lost
        await last.task
        assert last.events == EVENTS[-1:] and last.has_ended

    awaited(lose())


def test_who_comes_again_takes_the_place_of_a_connection_that_is_still_open():
    """A proxy may keep its side of one that it has cut off."""

    async def come() -> None:
        guard, gradio = guarded()
        first = Reader(guard, f"session_hash={SESSION}&heard=first")
        gradio.go_on.release()
        await first.has(1)
        second = Reader(guard, f"session_hash={SESSION}&heard=1")
        await first.task
        for _ in EVENTS:
            gradio.go_on.release()
        await second.task
        assert (first.events, second.events) == (EVENTS[:1], EVENTS[1:]) and first.has_ended
        assert not guard.streams[SESSION].unread.is_set()

    awaited(come())


def test_a_stream_that_nobody_reads_for_a_while_ends_and_is_forgotten():
    async def leave() -> None:
        guard, gradio = guarded()
        reader = Reader(guard, f"session_hash={SESSION}&heard=first")
        gradio.go_on.release()
        await reader.has(1)
        reader.cut.set()
        await reader.task
        assert not gradio.has_left.is_set()
        await asyncio.wait_for(gradio.has_left.wait(), 5)
        while guard.streams:
            await asyncio.sleep(0.01)
        late = Reader(guard, f"session_hash={SESSION}&heard=1")
        await late.task
        assert late.status == 404 and gradio.calls == 1

    awaited(leave())


@pytest.mark.parametrize("heard", [0, 3])
def test_events_that_are_not_there_are_refused(heard):
    """Those that are too old, and those that have not come in a stream that is over."""

    async def ask() -> None:
        guard, gradio = guarded()
        for _ in EVENTS:
            gradio.go_on.release()
        await Reader(guard, f"session_hash={SESSION}&heard=first").task
        kept = guard.streams[SESSION]
        for _ in range(COUNT - 2):
            kept.events.popleft()
        held = [kept.has_events_from(number) for number in range(COUNT + 1)]
        assert held == [False, False, False, False, True, True, False]
        late = Reader(guard, f"session_hash={SESSION}&heard={heard}")
        await late.task
        assert late.status == 404

    awaited(ask())


def test_events_are_kept_for_a_while_only_once_they_are_sent():
    async def wait() -> None:
        guard, gradio = guarded()
        reader = Reader(guard, f"session_hash={SESSION}&heard=first")
        gradio.go_on.release()
        await reader.has(1)
        await asyncio.sleep(0.06)
        gradio.go_on.release()
        await reader.has(2)
        kept = guard.streams[SESSION]
        assert [message["body"] for _, message in kept.events] == EVENTS[1:2] and kept.count == 2
        reader.cut.set()
        await reader.task
        kept.reader = object()  # whose connection is slow
        await asyncio.sleep(0.06)
        for _ in range(2):
            gradio.go_on.release()
        while kept.count < 4:
            await asyncio.sleep(0)
        assert [message["body"] for _, message in kept.events][-2:] == EVENTS[2:4]
        kept.unread.set()

    awaited(wait())


def test_a_sessions_next_stream_is_not_mixed_with_the_last_one():
    async def begin() -> None:
        guard, gradio = guarded()
        first = Reader(guard, f"session_hash={SESSION}&heard=first")
        gradio.go_on.release()
        await first.has(1)
        second = Reader(guard, f"session_hash={SESSION}&heard=first")
        await asyncio.wait_for(gradio.has_left.wait(), 5)  # the first one, which had not ended
        for _ in range(2 * COUNT):
            gradio.go_on.release()
        await second.task
        assert second.events == EVENTS and gradio.calls == 2
        with suppress(asyncio.CancelledError):
            await first.task

    awaited(begin())


def test_who_does_not_say_that_he_comes_again_reads_gradios_own_answer():
    """A caller of the API who leaves frees the device at once."""

    async def leave() -> None:
        guard, gradio = guarded()
        reader = Reader(guard, f"session_hash={SESSION}")
        gradio.go_on.release()
        await reader.has(1)
        assert not guard.streams
        reader.cut.set()
        with suppress(AssertionError):
            await reader.task

    awaited(leave())
