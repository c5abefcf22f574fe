"""Wire: a run's messages, a race's among them, as JSON strings for the page and the API. Knows Repeated by its public face only.

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
from typing import Any

from engine.record.compact_json import to_compact_json
from engine.record.quiet import Message, Steps, WorkSignal
from engine.record.race_file import LaneRecord, Record
from engine.record.trace import Step, Trace, omit_no_turns

BATCH_SECONDS = 1 / 15  # each string costs the page a redraw
WATCHED_SECONDS = 10.0  # how long a race lasts on screen
FIRST_STEPS = 4  # a pace is suggested when each lane has so many measured steps ...
FIRST_SECONDS = 0.5  # ... or after so long


@dataclass(frozen=True)
class RunEvent:
    """A message as a JSON string. Behind the `last` one a run only frees what it held."""

    text: str
    last: bool = False


def serialise_numbered_message(run: str, seq: int, message: Message) -> RunEvent:
    """The run's message of that number. The last one carries "end"."""
    return RunEvent(to_compact_json({"run": run, "seq": seq, **message}), "end" in message)


def serialise_and_number_messages(run: str, steps: Steps) -> Generator[RunEvent | WorkSignal, None, None]:
    """The messages of the run, numbered from 1. Closing the iterator closes `steps`."""
    number = count(1)
    with closing(steps):
        for step in steps:
            yield step if isinstance(step, WorkSignal) else serialise_numbered_message(run, next(number), step)


class UnsentSteps:
    """Steps that are not sent yet, each with the time on its lane's clock. The first message begins with `start`."""

    def __init__(self, record: Record):
        self.record, self.begun = record, False
        self.clocks = [0.0] * len(record.lanes)
        self.steps: list[tuple[int, Message]] = []

    def add(self, lane: int, step: Step) -> None:
        self.clocks[lane] += step.total_seconds
        self.steps.append((lane, build_step_message(step, self.clocks[lane])))

    def take_all_steps_as_message(self, **head: Any) -> Message:
        head = head if self.begun else build_start_message(self.record) | head
        steps, self.steps, self.begun = self.steps, [], True
        return head | {"steps": steps} if steps else head


def run_race_as_messages(race: Any, batch_seconds: float = BATCH_SECONDS) -> Steps:
    """Runs `race` and yields its events before they are numbered, between quiet steps. Closing closes the race.

    Then `race.run_again` runs it again, unseen, a step at a time, and the record holds all runs.
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
        with closing(race.run_again()) as unseen:
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
    return serialise_numbered_message(uuid.uuid4().hex, 1, build_start_message(record) | body).text


def build_start_message(record: Record) -> Message:
    return {
        "start": True,
        "recorded": record.recorded,
        "systems": [build_lane_message(lane) for lane in record.lanes],
        "slowdown": compute_playback_slowdown([lane.trace for lane in record.lanes]),
    }


def build_lane_message(lane: LaneRecord) -> Message:
    """A lane without its steps."""
    trace = omit_no_turns((key, value) for key, value in vars(lane.trace).items() if key != "steps")
    return {"name": lane.trace.system, **vars(lane), "costs": lane.costs.to_dict(), "trace": trace}


def estimate_lane_seconds(trace: Trace) -> float:
    """What the whole lane takes on its own clock, judged by its steps so far. A lane without any plays in real time."""
    if trace.is_finished:
        return trace.seconds
    if not trace.tokens:
        return max(trace.seconds, WATCHED_SECONDS)
    return trace.prefill_seconds + trace.decode_seconds_per_token * trace.max_new_tokens


def compute_playback_slowdown(traces: list[Trace]) -> float:
    """Seconds on screen for one on the clocks, so that a race lasts `WATCHED_SECONDS`; at least 1 while it runs."""
    longest = max(max(estimate_lane_seconds(trace) for trace in traces), 1e-6)
    factor = WATCHED_SECONDS / longest
    return factor if all(trace.is_finished for trace in traces) else max(1.0, factor)


def build_step_message(step: Step, clock: float) -> Message:
    """A step with its time on the lane's clock, and whether its bonus is kept. A remote server's step has none."""
    return {**vars(step), "t": clock, "has_bonus": bool(step.tokens) and step.has_bonus}
