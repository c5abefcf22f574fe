"""Wire: a race as a stream of JSON strings, the same for the page and the API. Knows Race by its public face only.

Every string carries "run" and a "seq" without gaps. The first one carries "start", with what forwards cost here; the last one "end",
with the result. "steps" holds pairs [lane, step] in the order of the lanes' clocks. Each step is sent once.
"""

import math
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from engine.record.race_file import LaneRecord, Record
from engine.record.trace import Step, Trace
from engine.views.layout import layout
from engine.views.sentence import estimate, sentence
from engine.views.stream import numbered

BATCH_SECONDS = 1 / 15  # each string costs the page a redraw
SLOWDOWNS = (1, 4, 10)  # the slow motions that a race may begin with; the page offers more speeds
WATCHABLE_SECONDS = 7.5  # how long a race should last on screen
FIRST_STEPS = 4  # a slow motion is suggested when each lane has so many measured steps ...
FIRST_SECONDS = 0.5  # ... or after so long


def events(race: Any, batch_seconds: float = BATCH_SECONDS) -> Iterator[str]:
    """Runs `race` and yields its events. Closing the iterator closes the race."""
    with closing(numbered(messages(race, batch_seconds))) as all_steps:  # type: ignore[type-var]  # a generator
        yield from (event for event in all_steps if event)


def messages(race: Any, batch_seconds: float = BATCH_SECONDS) -> Iterator[dict[str, Any] | None]:
    """`events` before they are numbered, and None for a step of the race that gives none.

    An empty message stands for a moment in which all that is left is on its way from a remote server.
    """
    clocks = [0.0] * len(race.lanes)
    batch: list[list[Any]] = []
    started = sent = None
    record: Record = race.record()  # before any lane runs, because it measures the costs that are not known yet

    def pack(**head: Any) -> dict[str, Any]:
        nonlocal batch, sent
        message = head | {"steps": batch} if batch else head
        batch, sent = [], time.monotonic()
        return message

    with closing(race.polled()) as steps:
        for each in steps:
            now = time.monotonic()
            if each is None and not batch:
                yield {}
                continue
            if each is not None:
                lane, step = each
                clocks[lane] += step.total_seconds
                batch.append([lane, page_step(step, clocks[lane])])
            started = started or now
            if sent is None:
                if now - started >= FIRST_SECONDS or all(measured(lane.trace) for lane in record.lanes):
                    yield pack(**start(record))
                    continue
            elif now - sent >= batch_seconds:
                yield pack()
                continue
            yield {} if each is None else None
    if sent is None:
        yield pack(**start(record))
    yield pack(end=True, **record.result())


def replay(record: Record) -> str:
    """A finished race as one event: start, every step in the order of the clocks, and the end."""
    steps = []
    for index, lane in enumerate(record.lanes):
        clock = 0.0
        for step in lane.trace.steps:
            clock += step.total_seconds
            steps.append((clock, index, page_step(step, clock)))
    steps.sort(key=lambda each: each[:2])
    body = {"steps": [[index, step] for _, index, step in steps], "end": True, **record.result()}
    [event] = numbered(message for message in [start(record) | body])
    return str(event)


def start(record: Record) -> dict[str, Any]:
    longest = max(expected_seconds(lane.trace) for lane in record.lanes)
    return {
        "start": True,
        "recorded": record.recorded,
        "systems": [system(lane) for lane in record.lanes],
        "slowdown": slowdown(longest),
    }


def system(lane: LaneRecord) -> dict[str, Any]:
    """A lane's system and settings, without its steps."""
    trace = {key: value for key, value in vars(lane.trace).items() if key != "steps"}
    about = {"name": lane.trace.system, "title": lane.title, "idea": lane.idea, "guarantee": lane.guarantee}
    return {**about, "costs": lane.costs.to_dict(), "trace": trace}


def measured(trace: Trace) -> bool:
    """Whether the lane has enough steps to judge its speed by, or will get no more."""
    return len(trace.steps) >= FIRST_STEPS or trace.ended


def expected_seconds(trace: Trace) -> float:
    """What the whole lane takes on its own clock, judged by its steps so far. A lane without any plays in real time."""
    if trace.ended:
        return trace.seconds
    if not trace.tokens:
        return max(trace.seconds, WATCHABLE_SECONDS)
    prefill = sum(step.seconds.get("prefill", 0.0) for step in trace.steps)
    return prefill + (trace.seconds - prefill) / len(trace.tokens) * trace.max_new_tokens


def slowdown(seconds: float) -> int:
    """The slow motion in which a race of so many seconds is watched best; 1 is real time."""
    return min(SLOWDOWNS, key=lambda factor: abs(math.log(max(seconds, 1e-6) * factor / WATCHABLE_SECONDS)))


def page_step(step: Step, clock: float) -> dict[str, Any]:
    """A step with its time on the lane's clock, its sentences and its drawing. A bonus that is kept stands last in `x` and `y`.

    A remote server's step has nothing to draw.
    """
    has_bonus = bool(step.tokens) and len(step.burst) > len(step.path)
    x, y = layout([*step.parents, step.path[-1] if step.path else 0] if has_bonus else step.parents)
    drawn = {"t": clock, "x": x, "y": y, "has_bonus": has_bonus, "sentence": sentence(step), "estimate": estimate(step)}
    return {**vars(step), **drawn}
