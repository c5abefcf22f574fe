"""Lending: ZeroGPU lends a GPU for one call at a time, in a process of its own. Knows requests as plain values; knows no page.

`spaces.GPU` wraps what a request does, where GPUs are lent. Elsewhere the device's worker runs requests.
"""

import os
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace

from anyio.to_thread import run_sync

from engine.models.pairs import LoadedPair, Pair
from engine.page.screens.cards import choose_initial_lane_systems, find_pair_by_name_or_first
from engine.page.screens.device import DEVICE, PAUSE
from engine.page.screens.requests import RunRequest
from engine.page.views.wire import RunEvent, serialise_and_number_messages
from engine.record.quiet import WorkSignal

LENDS = "SPACES_ZERO_GPU" in os.environ
LEAST, MOST = 15, 120  # seconds that a loan is asked for
ARRIVING = 10.0  # seconds until the first step: a GPU arrives, weights move, systems warm up
SPARE = 1.5  # times the expected seconds


@dataclass(eq=False)
class ServedPairs:
    """What a page serves: a pair, whose place another may take, and others beside it.

    A request runs on the pair that was there when it was made. Every visitor chooses between the pairs for himself.
    """

    pair: LoadedPair
    additional_pairs: list[LoadedPair] = field(default_factory=list)
    replacement_being_loaded: Pair | None = None  # that takes the place of `pair` once it is loaded

    @property
    def pairs(self) -> list[LoadedPair]:
        return [self.pair, *self.additional_pairs]

    @property
    def initial_lane_systems(self) -> tuple[str, str]:
        """The systems that the lanes of a page start with."""
        return choose_initial_lane_systems(self.replacement_being_loaded or self.pair)

    def choose_pair(self, pair_name: object) -> LoadedPair:
        """The pair of that name; the page's own for "". Raises `ValueError` for a name that no pair here has."""
        return find_pair_by_name_or_first(self.pairs, pair_name)


PACE = SimpleNamespace(seconds=0.05)  # that a token takes, of the calls so far; it begins with a guess
SERVED: dict[str, ServedPairs] = {}  # by "page": what a loan's process inherits instead of being sent it


def estimate_gpu_loan_seconds(run_name: str, pair_name: str, request: RunRequest) -> int:
    """The seconds that a loan for this request is asked for. It is given what `run_request_yielding_failure_last` is."""
    return round(min(MOST, max(LEAST, ARRIVING + SPARE * PACE.seconds * request.max_tokens)))


@dataclass(frozen=True)
class LentGpuProcessFailure:
    """What was raised in the other process, from which an error arrives without its words."""

    sentence: str
    exception_type: type[Exception] = RuntimeError


def run_request_yielding_failure_last(
    run_name: str, pair_name: str, request: RunRequest
) -> Generator[RunEvent | LentGpuProcessFailure, None, None]:
    """The request's news on the pair of that name, in the run of that name. What it raises comes last."""
    try:
        for event in serialise_and_number_messages(run_name, request.run(SERVED["page"].choose_pair(pair_name))):
            if isinstance(event, RunEvent):
                yield event
            elif event is WorkSignal.IDLE:
                time.sleep(PAUSE)
    except ValueError as error:
        yield LentGpuProcessFailure(str(error), ValueError)
    except Exception as error:
        yield LentGpuProcessFailure(f"{type(error).__name__}: {error}")


if LENDS:
    run_request_yielding_failure_last = import_module("spaces").GPU(duration=estimate_gpu_loan_seconds)(
        run_request_yielding_failure_last
    )


async def stream_request_on_lent_gpu(run_name: str, pair_name: str, request: RunRequest) -> AsyncGenerator[str, None]:
    """The news of a request on a GPU that is lent for it. Closing the stream ends the loan. Raises what
    `run_request_yielding_failure_last` tells.
    """
    begun = 0.0
    steps = run_request_yielding_failure_last(run_name, pair_name, request)
    try:
        while event := await run_sync(next, steps, None):
            begun = begun or time.monotonic()
            if run_name in DEVICE.unwanted:  # its page has said so
                return
            if isinstance(event, LentGpuProcessFailure):
                raise event.exception_type(event.sentence)
            yield event.json_text
        PACE.seconds += ((time.monotonic() - begun) / max(1, request.max_tokens) - PACE.seconds) / 4
    finally:
        await run_sync(steps.close)
