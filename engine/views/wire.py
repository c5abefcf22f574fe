"""A race as a stream of JSON strings: the page and the API read the same ones. Knows Race by its public face only.

The first string carries "start", with what forwards cost here, every string "run" and a "seq" without gaps, the last one "end" with
the result. In between, "steps" holds pairs [lane, step] in the order of the lanes' clocks; each step is sent once.
"""

import json
import math
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from engine.trace import Step, Trace
from engine.views.layout import layout
from engine.views.sentence import estimate, sentence

BATCH_SECONDS = 1 / 15  # each string costs the page a redraw
SLOWDOWNS = (1, 2, 4, 10, 20)
WATCHABLE_SECONDS = 7.5  # how long a race should last on screen
FIRST_STEPS = 4  # measured steps of each lane before a slow motion is suggested ...
FIRST_SECONDS = 0.5  # ... unless that takes longer than this


def events(race: Any, batch_seconds: float = BATCH_SECONDS) -> Iterator[str]:
    """Runs `race` and yields its events; closing the iterator closes the race."""
    run, seq = uuid.uuid4().hex, 0
    clocks = [0.0] * len(race.lanes)
    batch: list[list[Any]] = []
    started = sent = None
    costs = race.costs()  # before any lane runs: what is not known yet is measured now

    def pack(**head: Any) -> str:
        nonlocal seq, batch, sent
        seq += 1
        message = {"run": run, "seq": seq, **head}
        if batch:
            message["steps"] = batch
        batch, sent = [], time.monotonic()
        return to_json(message)

    with closing(race.run()) as steps:
        for lane, step in steps:
            clocks[lane] += step.total_seconds
            batch.append([lane, page_step(step, clocks[lane])])
            now = time.monotonic()
            started = started or now
            if seq == 0:
                if now - started >= FIRST_SECONDS or measured(race):
                    yield pack(**start(race, costs))
            elif now - sent >= batch_seconds:
                yield pack()
    if seq == 0:
        yield pack(**start(race, costs))
    yield pack(end=True, **race.result())


def start(race: Any, costs: list[dict[str, Any]]) -> dict[str, Any]:
    trace: Trace = race.lanes[0].trace
    about = ("name", "title", "idea", "guarantee")
    settings = ("temperature", "seed", "depth", "width", "nodes", "max_new_tokens")
    return {
        "start": True,
        "lanes": [{key: getattr(lane.system, key) for key in about} for lane in race.lanes],
        "pair": trace.pair,
        "hardware": trace.hardware,
        "dtype": trace.dtype,
        "prompt": trace.prompt,
        "prompt_tokens": len(trace.prompt_tokens),
        "settings": {key: getattr(trace, key) for key in settings},
        "costs": costs,
        "slowdown": slowdown(max(expected_seconds(lane.trace) for lane in race.lanes)),
    }


def measured(race: Any) -> bool:
    """Every lane has enough steps, or all the steps it will ever have."""
    return all(
        len(lane.trace.steps) >= FIRST_STEPS or (lane.trace.steps and lane.trace.steps[-1].end) for lane in race.lanes
    )


def expected_seconds(trace: Trace) -> float:
    """What the whole lane will take on its own clock, judged by its steps so far."""
    if not trace.tokens:
        return 0.0
    prefill = sum(step.seconds.get("prefill", 0.0) for step in trace.steps)
    return prefill + (trace.seconds - prefill) / len(trace.tokens) * trace.max_new_tokens


def slowdown(seconds: float) -> int:
    """The slow motion at which a race of so many seconds is best watched; 1 is real time."""
    return min(SLOWDOWNS, key=lambda factor: abs(math.log(max(seconds, 1e-6) * factor / WATCHABLE_SECONDS)))


def page_step(step: Step, clock: float) -> dict[str, Any]:
    """A step with its place on the lane's clock, its sentences and its drawing; a kept bonus is last in `x` and `y`."""
    has_bonus = len(step.burst) > len(step.path)
    x, y = layout([*step.parents, step.path[-1] if step.path else 0] if has_bonus else step.parents)
    return {
        "index": step.index,
        "t": clock,
        "tokens": step.tokens,
        "parents": step.parents,
        "texts": step.texts,
        "score": step.score,
        "q": step.q,
        "p": step.p,
        "verdicts": step.verdicts,
        "path": step.path,
        "bonus": {"token": step.bonus, "text": step.bonus_text, "p": step.bonus_p} if has_bonus else None,
        "burst": step.burst,
        "pieces": step.pieces,
        "end": step.end,
        "seconds": step.seconds,
        "x": x,
        "y": y,
        "sentence": sentence(step),
        "estimate": estimate(step),
    }


def to_json(value: Any) -> str:
    """Compact JSON that every reader parses: floats to six digits, and null where a float is not finite."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
