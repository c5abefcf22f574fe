"""Stepped: `generate()` token by token, so that other work may go on between two tokens.

`generate()` runs in a thread of its own, which works only while a step is asked for. Its clock counts these times alone.
"""

import threading
import time
from collections.abc import Callable, Generator

from transformers.generation.streamers import BaseStreamer

from engine.measure import peers
from engine.measure.ways import Written
from engine.models.pairs import LoadedPair
from engine.record.quiet import Quiet


class Unwanted(Exception):
    """Nobody wants the rest of this text."""


class Gate(BaseStreamer):
    """Holds a thread after every token. `seconds` are those in which it was let run."""

    def __init__(self):
        self.asked, self.held = threading.Semaphore(0), threading.Semaphore(0)
        self.wanted, self.seconds, self.since = True, 0.0, 0.0

    def ask(self) -> None:
        """Lets the thread go on to its next token, and waits for that."""
        self.asked.release()
        self.held.acquire()

    def enter(self) -> None:
        self.asked.acquire()
        if not self.wanted:
            raise Unwanted
        self.since = time.perf_counter()

    def leave(self) -> None:
        self.seconds += time.perf_counter() - self.since
        self.held.release()

    def put(self, value: object) -> None:
        self.leave()
        self.enter()

    def end(self) -> None:
        pass


def stepped(
    pair: LoadedPair, prompt: list[int], tokens: int, temperature: float, way: Callable = peers.generated
) -> Generator[Quiet, None, Written]:
    """A way of `generate()`, a step a forward; returns what it wrote. Closing it ends the thread. Raises what `generate()` raises."""
    gate, written, failures = Gate(), list[int](), list[BaseException]()

    def write() -> None:
        try:
            gate.enter()
            written.extend(way(pair, prompt, tokens, temperature, streamer=gate))
        except Unwanted:
            pass
        except BaseException as error:  # it is the caller's
            failures.append(error)
        gate.leave()

    thread = threading.Thread(target=write, name="generate", daemon=True)
    thread.start()
    try:
        gate.ask()
        while not written and not failures:
            yield Quiet.STEP
            gate.ask()
    finally:
        gate.wanted = False
        gate.asked.release()
        thread.join()
    if failures:
        raise failures[0]
    return Written(written, gate.seconds)
