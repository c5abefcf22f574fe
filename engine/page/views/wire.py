"""Wire: a run's messages, a race's among them, as JSON strings for the page and the API. Knows `RepeatedRace` by its public face only.

Every string carries "run" and a "seq" without gaps. The first one carries "start", with what forwards cost here; the last one "end",
with the result. "steps" holds pairs [lane, step] in the order of the lanes' clocks. Each step is sent once.

A race that runs again, unseen, tells of it once by "again", with the first run's result. Where another run is nearer to the median, the
last string holds its "times": for each lane the time and the seconds of every step.
"""

import math
import time
import uuid
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from engine.record.compact_json import to_compact_json_with_rounded_floats
from engine.record.quiet import Message, MessageAndSignalGenerator, WorkSignal
from engine.record.race_file import LaneRecord, Record
from engine.record.trace import Step, Trace, dict_without_empty_chat_turns

BATCH_SECONDS = 1 / 15  # each string costs the page a redraw
WATCHED_SECONDS = 10.0  # how long a race lasts on screen
FIRST_STEPS = 4  # a pace is suggested when each lane has so many measured steps ...
FIRST_SECONDS = 0.5  # ... or after so long


@dataclass(frozen=True)
class RunEvent:
    """A message as a JSON string. Behind the `is_last` one a run only frees what it held."""

    json_text: str
    is_last: bool = False


def serialise_numbered_message(run_name: str, sequence_number: int, message: Message) -> RunEvent:
    """The run's message of that number. The last one carries "end"."""
    return RunEvent(
        to_compact_json_with_rounded_floats({"run": run_name, "seq": sequence_number, **message}), "end" in message
    )


def serialise_and_number_messages(
    run_name: str, steps: MessageAndSignalGenerator
) -> Generator[RunEvent | WorkSignal, None, None]:
    """The messages of the run, numbered from 1. Closing the iterator closes `steps`."""
    number = count(1)
    with closing(steps):
        for step in steps:
            yield step if isinstance(step, WorkSignal) else serialise_numbered_message(run_name, next(number), step)


class UnsentSteps:
    """Steps that are not sent yet, each with the time on its lane's clock. The first message begins with `start`."""

    def __init__(self, record: Record):
        self.record, self.begun = record, False
        self.clocks = [0.0] * len(record.lanes)
        self.steps: list[tuple[int, Message]] = []

    def add(self, lane_index: int, step: Step) -> None:
        self.clocks[lane_index] += step.total_seconds
        self.steps.append((lane_index, build_step_message(step, self.clocks[lane_index])))

    def take_all_steps_as_message(self, **extra_fields: Any) -> Message:
        extra_fields = extra_fields if self.begun else build_start_message(self.record) | extra_fields
        steps, self.steps, self.begun = self.steps, [], True
        return extra_fields | {"steps": steps} if steps else extra_fields


class RepeatableRace(Protocol):
    """What is asked of a race here (`engine.measure.repeated.RepeatedRace`)."""

    def to_record(self) -> Record: ...

    def poll_steps(self) -> Generator[tuple[int, Step] | WorkSignal, None, None]: ...

    def repeat_and_show_median_run_in_steps(self) -> Generator[WorkSignal, None, None]: ...


def run_race_and_its_repeats_as_messages(
    race: RepeatableRace, batch_seconds: float = BATCH_SECONDS
) -> MessageAndSignalGenerator:
    """Runs `race` and yields its events before they are numbered, between quiet steps. Closing closes the race.

    Then `race.repeat_and_show_median_run_in_steps` runs it again, unseen, a step at a time, and the record holds all runs.
    What either raises comes behind all steps so far.
    """
    record: Record = race.to_record()  # before any lane runs, because it measures the costs that are not known yet
    batch, due, seen = UnsentSteps(record), math.inf, [lane.trace for lane in record.lanes]
    try:
        with closing(race.poll_steps()) as steps:
            for each in steps:
                if not isinstance(each, WorkSignal):
                    batch.add(*each)
                elif not batch.steps:
                    yield each
                    continue
                if due == math.inf:
                    due = time.monotonic() + FIRST_SECONDS
                paced = not batch.begun and all(len(trace.steps) >= FIRST_STEPS or trace.is_finished for trace in seen)
                if time.monotonic() >= due or paced:
                    yield batch.take_all_steps_as_message()
                    due = time.monotonic() + batch_seconds
                else:
                    yield each if isinstance(each, WorkSignal) else WorkSignal.STEP
        if not batch.begun:
            yield batch.take_all_steps_as_message()
        with closing(race.repeat_and_show_median_run_in_steps()) as unseen:
            for number, step in enumerate(unseen):
                yield (
                    step
                    if number
                    else batch.take_all_steps_as_message(
                        again=True, slowdown=compute_playback_slowdown(seen), **record.result()
                    )
                )
    except Exception:
        if batch.steps:  # what was written before the fault stays
            yield batch.take_all_steps_as_message()
        raise
    shown = [lane.trace for lane in record.lanes]
    last = batch.take_all_steps_as_message(end=True, slowdown=compute_playback_slowdown(shown), **record.result())
    if shown != seen:
        last["times"] = [
            [[clock, step.seconds] for clock, step in zip(trace.clock_after_steps, trace.steps, strict=True)]
            for trace in shown
        ]
    yield last


def serialise_whole_race_as_event(record: Record) -> str:
    """A finished race as one event: start, every step in the order of the clocks, and the end."""
    steps = [
        (index, build_step_message(step, clock))
        for index, lane in enumerate(record.lanes)
        for clock, step in zip(lane.trace.clock_after_steps, lane.trace.steps, strict=True)
    ]
    body = {"steps": sorted(steps, key=lambda each: each[1]["t"]), "end": True, **record.result()}
    return serialise_numbered_message(uuid.uuid4().hex, 1, build_start_message(record) | body).json_text


def build_start_message(record: Record) -> Message:
    return {
        "start": True,
        "recorded": record.recorded,
        "systems": [build_lane_message_without_steps(lane) for lane in record.lanes],
        "slowdown": compute_playback_slowdown([lane.trace for lane in record.lanes]),
    }


def build_lane_message_without_steps(lane: LaneRecord) -> Message:
    """A lane without its steps."""
    trace = dict_without_empty_chat_turns((key, value) for key, value in vars(lane.trace).items() if key != "steps")
    return {"name": lane.trace.system, **vars(lane), "costs": lane.costs.to_dict(), "trace": trace}


def estimate_total_seconds_of_lane(trace: Trace) -> float:
    """What the whole lane takes on its own clock, judged by its steps so far. A lane without any plays in real time."""
    if trace.is_finished:
        return trace.seconds
    if not trace.tokens:
        return max(trace.seconds, WATCHED_SECONDS)
    return trace.prefill_seconds + trace.decode_seconds_per_token * trace.max_new_tokens


def compute_playback_slowdown(traces: list[Trace]) -> float:
    """Seconds on screen for one on the clocks, so that a race lasts `WATCHED_SECONDS`; at least 1 while it runs."""
    longest = max(max(estimate_total_seconds_of_lane(trace) for trace in traces), 1e-6)
    factor = WATCHED_SECONDS / longest
    return factor if all(trace.is_finished for trace in traces) else max(1.0, factor)


def build_step_message(step: Step, lane_clock_seconds: float) -> Message:
    """A step with its time on the lane's clock, and whether its bonus is kept. A remote server's step has none."""
    return {**vars(step), "t": lane_clock_seconds, "has_bonus": bool(step.tokens) and step.has_bonus}
