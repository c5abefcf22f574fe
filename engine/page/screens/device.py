"""The device: one worker steps everybody's work in turn. Knows threads and events; knows no model and no page.

A lane's clock counts its own steps only, so races may share the device in slices. After a piece of news the worker waits a moment until
it is taken, because sending it would disturb the next step's clock.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from engine.page.screens.heap import give_memory_back
from engine.page.screens.turns import MOST_SECONDS, READYING, Job, Line
from engine.page.views.stream import News, placed
from engine.record.quiet import Quiet

SLICE = 0.015  # seconds of a turn, which ends earlier with news
MOMENT = 0.02  # seconds that the worker waits for news to be taken
EVERY = 0.5  # seconds between two words on where a visitor stands
SILENCE, ASLEEP = 10.0, 150.0  # seconds until a page that was heard of counts as lost, shown or hidden
PAUSE = 0.01  # seconds that a job rests when it has nothing to do
GRACE = 1.0  # seconds of the device in which a run whose time is over may send the steps that it holds back
REST = 2.0  # seconds without work after which freed memory is given back
MOST_UNWANTED = 1000  # names that are remembered


@dataclass(frozen=True)
class Ended:
    """No event of a call comes behind this one. `failure` is what its work has raised."""

    failure: Exception | None = None


@dataclass(eq=False)
class Call(Job):
    """A job, and how the one who waits for it is told of its events."""

    tell: Callable[[News | Ended], None] = lambda event: None
    until: float = math.inf  # when the page counts as lost
    told: bool = False  # whether its last step was news, behind which a race holds no step back


class Device:
    """The worker and the line before it. Its thread begins with the first call; if it has died, the next call begins another."""

    def __init__(self):
        self.changed = threading.Condition()
        self.line: Line[Call] = Line()
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
        loop, mail = asyncio.get_running_loop(), asyncio.Queue[News | Ended]()

        def tell(event: News | Ended) -> None:
            with suppress(RuntimeError):  # the server is ending
                loop.call_soon_threadsafe(mail.put_nowait, event)

        call.tell = tell
        self.enter(call)
        try:
            if watched:
                call.until = time.monotonic() + ASLEEP  # a page gives its first sign sooner than that
                yield placed(call.name, "")
            said, silent, last, due = "", True, False, time.monotonic() + EVERY
            while True:
                self.listen(call)
                event = await arrived(mail)
                if isinstance(event, Ended):
                    if event.failure is not None:
                        raise event.failure
                    return
                if isinstance(event, News):
                    silent, last = False, event.last
                    yield event.text
                if time.monotonic() >= due and not last:
                    place, due = self.place(call), time.monotonic() + EVERY
                    if place != said or silent:  # the server notices that a visitor has left when it says something
                        yield placed(call.name, place)
                    said, silent = place, True
        finally:
            self.leave(call)

    def carry_out(self, steps: Iterator[Quiet]) -> None:
        """Takes steps that make something ready, while nobody asks for anything else. Returns after the last one."""
        mail = SimpleQueue[News | Ended]()
        self.enter(Call(lambda: steps, rank=READYING, tell=mail.put))
        while True:
            with suppress(Empty):
                event = mail.get(timeout=EVERY)
                break
            self.attend()
        if isinstance(event, Ended) and event.failure is not None:
            raise event.failure

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

    # ---- coming and going

    def enter(self, call: Call) -> None:
        with self.changed:
            self.line.enter(call)
            self.calls[call.name] = call
            self.changed.notify_all()
        self.attend()

    def listen(self, call: Call) -> None:
        """The call's visitor has taken what was told, and waits for more. Raises `ValueError` when his page is lost."""
        with self.changed:
            if time.monotonic() > call.until:
                raise ValueError("The page was not heard of for a while, so its run has ended. Press Start again.")
            call.listening = True
            self.changed.notify_all()

    def leave(self, call: Call) -> None:
        """The call's visitor has all he wants. What has begun is closed by the worker, before anybody's next step."""
        with self.changed:
            call.gone = True
            self.calls.pop(call.name, None)
            if call in self.line.waiting:
                self.end(call, Ended())
            self.changed.notify_all()

    def end(self, call: Call, how: Ended) -> None:
        self.line.leave(call)
        call.tell(how)

    # ---- the worker

    def attend(self) -> None:
        """Begins a worker when there is none, or when the last one has died. It goes on with everybody's work."""
        with self.changed:
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self.work, name="device", daemon=True)
                self.thread.start()

    def work(self) -> None:
        rest_at = math.inf  # when freed memory is given back
        while True:
            with self.changed:
                call = self.current = self.line.next()
                if call is None:
                    left = min(self.line.pause(), rest_at - time.monotonic(), threading.TIMEOUT_MAX)
                    self.changed.wait(max(0.0, left))
            if call is not None:
                self.turn(call)
                rest_at = time.monotonic() + REST
            elif time.monotonic() >= rest_at:
                give_memory_back()
                rest_at = math.inf

    def turn(self, call: Call) -> None:
        begun = time.perf_counter()
        event = self.next_event(call, begun + SLICE)
        if isinstance(event, Ended):
            event = closed(call, event)
        with self.changed:
            self.current = None
            self.line.charge(call, time.perf_counter() - begun)
            call.told = isinstance(event, News)
            if isinstance(event, Ended):
                self.end(call, event)
            elif isinstance(event, News):
                call.listening = False
                call.tell(event)
                self.changed.wait_for(lambda: call.listening or call.gone, MOMENT)
            elif event is Quiet.IDLE:  # others go on meanwhile
                call.resting = self.line.now() + PAUSE

    def next_event(self, call: Call, until: float) -> News | Quiet | Ended:
        """Steps until there is news, until the turn is over or until no step is left. What a step raises is its caller's alone."""
        try:
            if call.gone:
                return Ended()
            most = MOST_SECONDS[call.rank]
            if call.used > (most if call.told else most + GRACE):
                raise ValueError(
                    f"This run has used {most:.0f} s of the device, the most that one may. Ask for less at a time."
                )
            if call.steps is None:
                call.steps = call.work()
            for event in call.steps:
                over = call.gone or call.rank == READYING or time.perf_counter() >= until
                if over or event is not Quiet.STEP:
                    return event
            return Ended()
        except BaseException as error:
            return failed(error)


def closed(call: Call, how: Ended) -> Ended:
    """Closes the steps of a call that ends so, which frees what they hold. What that raises is how it ends."""
    steps, call.steps = call.steps, None
    try:
        if steps is not None:
            getattr(steps, "close", lambda: None)()
    except BaseException as error:
        return failed(error)
    return how


def failed(error: BaseException) -> Ended:
    """`SystemExit` in a stream would end the whole server."""
    return Ended(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))


async def arrived(mail: asyncio.Queue[News | Ended]) -> News | Ended | Quiet:
    """The next event, or that there is none for now."""
    try:
        return await asyncio.wait_for(mail.get(), EVERY)
    except asyncio.TimeoutError:
        return Quiet.IDLE


DEVICE = Device()  # of this process
