"""The device: one worker steps everybody's work in turn. Knows threads and news as strings; knows no model and no page.

A lane's clock counts its own steps only, so races may share the device in slices. After a piece of news the worker waits a moment until
it is taken, because sending it would disturb the next step's clock.
"""

import asyncio
import ctypes
import json
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from engine.page.screens.turns import MOST_SECONDS, READYING, Job, Line
from engine.record.quiet import Quiet

SLICE = 0.015  # seconds of a turn, which ends earlier with news
MOMENT = 0.02  # seconds that the worker waits for news to be taken
EVERY = 0.5  # seconds between two words on where a visitor stands
SILENCE, ASLEEP = 10.0, 150.0  # seconds until a page that was heard of counts as lost, shown or hidden
PAUSE = 0.01  # seconds that a job rests when it has nothing to do
REST = 2.0  # seconds without work after which freed memory is given back
MOST_UNWANTED = 1000  # names that are remembered


@dataclass(eq=False)
class Call(Job):
    """A job with the mailbox of the one who waits for it."""

    ring: Callable[[], None] = lambda: None  # tells that there is mail
    news: str | None = None
    more: bool = True  # whether news are sure to come: not from the last ones on until a step has followed them
    over: bool = False
    failure: Exception | None = None
    until: float = float("inf")  # when the page counts as lost


class Device:
    """The worker and the line before it. Its thread begins with the first call; if it has died, the next call begins another."""

    def __init__(self, budget: float = float("inf")):
        """`budget` is in bytes, for the caches of all that run together."""
        self.changed = threading.Condition()
        self.line: Line[Call] = Line(budget)
        self.calls: dict[str, Call] = {}
        self.unwanted: dict[str, None] = {}  # names of calls that were dropped before they came
        self.doing = ""  # what is being made ready, in words
        self.current: Call | None = None  # whose turn it is
        self.thread: threading.Thread | None = None

    # ---- for those who call

    async def stream(self, call: Call, watched: bool = False) -> AsyncGenerator[str, None]:
        """The call's news as they come, and before the last ones now and then where its visitor stands. Closing it frees everything.

        A `watched` stream begins with the call's name. By it the page says that it is there (`heard`) or wants it no more (`dropped`).
        Raises what the work raises, and `ValueError` when it is not let in, takes too long or has lost its page.
        """
        if call.name in self.unwanted:
            return
        loop, bell, said, due = asyncio.get_running_loop(), asyncio.Event(), "", time.monotonic() + EVERY
        quiet = True  # whether nothing was said since it was last looked

        def ring() -> None:
            with suppress(RuntimeError):  # the server is ending
                loop.call_soon_threadsafe(bell.set)

        call.ring = ring
        self.enter(call)
        try:
            if watched:
                call.until = time.monotonic() + ASLEEP  # a page gives its first sign sooner than that
                yield json.dumps({"run": call.name, "place": ""})
            while True:
                bell.clear()
                if news := self.taken(call):
                    quiet = False
                    yield news
                elif call.over:
                    return
                else:
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(bell.wait(), EVERY)
                if time.monotonic() >= due and call.more:
                    place, due = self.place(call), time.monotonic() + EVERY
                    if place != said or quiet:  # the server notices that a visitor has left when it says something
                        yield json.dumps({"run": call.name, "place": place})
                    said, quiet = place, True
        finally:
            self.leave(call)

    def carry_out(self, steps: Iterator[Quiet]) -> None:
        """Takes steps that make something ready, while nobody asks for anything else. Returns after the last one."""
        done = threading.Event()
        call = Call(lambda: steps, rank=READYING, ring=done.set)
        self.enter(call)
        while not done.wait(EVERY):
            self.attend()
        self.taken(call)

    def heard(self, name: str, hidden: bool = False) -> bool:
        """Notes that the page of this call is there. False when there is no such call."""
        with self.changed:
            if call := self.calls.get(name):
                call.until = time.monotonic() + (ASLEEP if hidden else SILENCE)
        return call is not None

    def dropped(self, name: str) -> None:
        """The page of this call no longer wants it. Its stream ends without words."""
        with self.changed:
            if call := self.calls.get(name):
                self.leave(call)
            else:
                self.unwanted[name] = None
                if len(self.unwanted) > MOST_UNWANTED:
                    del self.unwanted[next(iter(self.unwanted))]

    @property
    def words(self) -> str:
        """What is being made ready, and whether somebody waits for that."""
        if not self.line.everyone:
            return self.doing
        return f"{self.doing}; the race comes next" if self.is_readying else "The rest is made ready behind the races"

    def is_alone(self) -> bool:
        """Whether nobody waits or runs beside the run that asks."""
        with self.changed:
            return len(self.line.everyone) <= 1

    @property
    def is_readying(self) -> bool:
        return self.current is not None and self.current.rank == READYING

    def place(self, call: Call) -> str:
        """Where the call's visitor stands, in words."""
        self.attend()
        with self.changed:
            if self.is_readying and call.steps is None:
                return f"{self.doing}; your run comes next."
            return self.line.place(call)

    # ---- the mailbox

    def enter(self, call: Call) -> None:
        with self.changed:
            self.line.enter(call)
            self.calls[call.name] = call
            self.changed.notify_all()
        self.attend()

    def taken(self, call: Call) -> str | None:
        """The call's news, or None after which it listens for more. Raises what the work has raised."""
        with self.changed:
            news, call.news = call.news, None
            if news is None:
                if call.failure is not None:
                    raise call.failure
                if time.monotonic() > call.until:
                    raise ValueError("The page was not heard of for a while, so its run has ended. Press Start again.")
                call.listening = True
                self.changed.notify_all()
            return news

    def leave(self, call: Call) -> None:
        """The call's visitor has all he wants. What has begun is closed by the worker, before anybody's next step."""
        with self.changed:
            call.gone = True
            self.calls.pop(call.name, None)
            if call in self.line.waiting:
                self.end(call)
            self.changed.notify_all()

    def end(self, call: Call, failure: BaseException | None = None) -> None:
        if failure is not None and not isinstance(failure, Exception):
            failure = RuntimeError(type(failure).__name__)  # `SystemExit` in a stream would end the whole server
        call.over, call.failure = True, failure
        self.line.leave(call)
        call.ring()

    # ---- the worker

    def attend(self) -> None:
        """Begins a worker when there is none, or when the last one has died. It goes on with everybody's work."""
        with self.changed:
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self.work, name="device", daemon=True)
                self.thread.start()

    def work(self) -> None:
        rested = True
        while True:
            with self.changed:
                call = self.current = self.line.next()
                pause = self.line.pause()
                asked = call is not None or self.changed.wait(pause or (None if rested else REST)) or pause is not None
            if call is not None:
                self.turn(call)
                rested = False
            elif not asked:
                give_memory_back()
                rested = True

    def turn(self, call: Call) -> None:
        begun, failure = time.perf_counter(), None
        try:
            over = call.gone or self.has_ended(call, begun + SLICE)
        except BaseException as error:  # it is the caller's, and everybody else goes on
            over, failure = True, error
        if over:
            failure = closed(call) or failure
        with self.changed:
            self.current = None
            self.line.charge(call, time.perf_counter() - begun)
            if over:
                self.end(call, failure)
            elif call.news is not None:
                call.listening = False
                call.ring()
                self.changed.wait_for(lambda: call.listening or call.gone, MOMENT)

    def has_ended(self, call: Call, until: float) -> bool:
        """Steps until there is news, until the turn is over or until no step is left. While it is
        idle, others go on."""
        if call.used > (most := MOST_SECONDS[call.rank]):
            raise ValueError(
                f"This run has used {most:.0f} s of the device, the most that one may. Ask for less at a time."
            )
        if call.steps is None:
            call.steps = call.work()
        try:
            while True:
                news = next(call.steps)
                call.more = isinstance(news, Quiet)
                if news is Quiet.IDLE:
                    call.resting = self.line.now() + PAUSE
                    return False
                if isinstance(news, str):
                    call.news = news
                    return False
                if call.gone or call.rank == READYING or time.perf_counter() >= until:
                    return False
        except StopIteration:
            return True


def closed(call: Call) -> BaseException | None:
    """Closes the call's steps, which frees what they hold. Returns what that raises."""
    steps, call.steps = call.steps, None
    try:
        if steps is not None:
            getattr(steps, "close", lambda: None)()
    except BaseException as error:
        return error
    return None


def give_memory_back() -> None:
    """Has the C library return freed memory to the operating system. After some load, glibc keeps a quarter of the process (20 ms)."""
    with suppress(OSError, TypeError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


DEVICE = Device()  # of this process
