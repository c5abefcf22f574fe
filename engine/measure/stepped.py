"""Stepped: `generate()` token by token, so that other work may go on between two tokens.

`generate()` runs in a thread of its own, which works only while a step is asked for. Its clock counts these times alone.
"""

import threading
import time
from collections.abc import Callable, Generator

from transformers.generation.streamers import BaseStreamer

from engine.measure import peers
from engine.measure.ways import GenerateFunction, WrittenText, run_and_time_generate_function
from engine.models.pairs import LoadedPair
from engine.record.quiet import WorkSignal

STEPPED = (peers.generate_with_transformers, peers.generate_by_mtp_or_gemma_assistant)  # they take a streamer


class GenerationCancelled(Exception):
    """Nobody wants the rest of this text."""


class TokenGate(BaseStreamer):
    """Holds a thread after every token. `seconds` are those in which it was let run."""

    def __init__(self):
        self.asked, self.held = threading.Semaphore(0), threading.Semaphore(0)
        self.wanted, self.seconds, self.since = True, 0.0, 0.0

    def release_and_await_one_token(self) -> None:
        """Lets the thread go on to its next token, and waits for that."""
        self.asked.release()
        self.held.acquire()

    def await_release_or_cancel(self) -> None:
        self.asked.acquire()
        if not self.wanted:
            raise GenerationCancelled
        self.since = time.perf_counter()

    def count_seconds_and_report_token(self) -> None:
        self.seconds += time.perf_counter() - self.since
        self.held.release()

    def put(self, value: object) -> None:
        self.count_seconds_and_report_token()
        self.await_release_or_cancel()

    def end(self) -> None:
        pass


def generate_in_steps(
    pair: LoadedPair,
    prompt_ids: list[int],
    max_tokens: int,
    temperature: float,
    generate: Callable[..., list[int]] = peers.generate_with_transformers,
) -> Generator[WorkSignal, None, WrittenText]:
    """A way of `generate()`, a step a forward; returns what it wrote. Closing it ends the thread. Raises what `generate()` raises."""
    gate, written, failures = TokenGate(), list[int](), list[BaseException]()

    def write() -> None:
        try:
            gate.await_release_or_cancel()
            written.extend(generate(pair, prompt_ids, max_tokens, temperature, streamer=gate))
        except GenerationCancelled:
            pass
        except BaseException as error:  # it is the caller's
            failures.append(error)
        gate.count_seconds_and_report_token()

    thread = threading.Thread(target=write, name="generate", daemon=True)
    thread.start()
    try:
        gate.release_and_await_one_token()
        while not written and not failures:
            yield WorkSignal.STEP
            gate.release_and_await_one_token()
    finally:
        gate.wanted = False
        gate.asked.release()
        thread.join()
    if failures:
        raise failures[0]
    return WrittenText(written, gate.seconds)


def run_generate_function_in_steps(
    pair: LoadedPair, generate: GenerateFunction, prompt_ids: list[int], max_tokens: int, temperature: float
) -> Generator[WorkSignal, None, WrittenText]:
    """What a way writes: a step a token where it can be held up, else one step."""
    if generate in STEPPED:
        return (yield from generate_in_steps(pair, prompt_ids, max_tokens, temperature, generate))
    yield WorkSignal.STEP
    return run_and_time_generate_function(pair, generate, prompt_ids, max_tokens, temperature)
