"""What a page's main thread does, as Chromium's own trace has it. A task counts by the processor time that it takes: other work on the
machine delays it, and makes it no longer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page

CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline"]


@contextmanager
def traced(page: Page) -> Iterator[list[float]]:
    """Fills the list with the seconds of the processor that each task of a page's main thread took meanwhile, the longest last."""
    browser, tasks = page.context.browser, []
    browser.start_tracing(page=page, categories=CATEGORIES)
    try:
        yield tasks
    finally:
        tasks += sorted(tasks_of(browser.stop_tracing()))


def tasks_of(trace: bytes) -> list[float]:
    events = json.loads(trace)["traceEvents"]
    named = [event for event in events if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"]
    mains = {(event["pid"], event["tid"]) for event in named}
    tasks = [event for event in events if event["name"] == "RunTask" and (event["pid"], event["tid"]) in mains]
    return [event["tdur"] / 1e6 for event in tasks if "tdur" in event]
