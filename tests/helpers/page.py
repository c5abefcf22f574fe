"""Hands for the tests of the page: they choose, race, and play made-up races in an open tab."""

import json
import shutil

from playwright.sync_api import Page, expect

from engine.views import wire
from helpers.traces import FakeRace

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
FLAGS += ["--disable-component-update", "--disable-sync"]
PATIENCE = 120_000  # milliseconds; a busy machine is slow, a broken page waits for ever
PROMPT = "Story: Once upon a time, there was a little fox who"
RESULT = {"lanes": [{"tokens": 3}] * 2, "speedup": 2.0, "identical": True, "divergence": None}
IMAGE = "<img src=x onerror=window.__hostile=1>"
HOSTILE = [" <b>x</b>", IMAGE, "<a href='javascript:1'>y</a>", "&amp;", "${1+1}{{x}}"]
expect.set_options(timeout=60_000)


def dial(page: Page, label: str, value: float) -> None:
    box = page.locator("#dials").get_by_label(label, exact=True).first
    box.fill(str(value))
    box.press("Tab")


def start_race(page: Page, prompt: str = PROMPT, tokens: int = 32) -> None:
    page.fill("#prompt textarea", prompt)
    dial(page, "New tokens", tokens)
    page.click("#race-go")


def finish(page: Page) -> None:
    page.wait_for_selector("[data-race][data-state=done]", timeout=PATIENCE)


def race(page: Page, prompt: str = PROMPT, tokens: int = 32) -> None:
    start_race(page, prompt, tokens)
    finish(page)


def play(page: Page, steps: list, **result) -> None:
    """The events of a made-up race of (lane, step), its result changed, as if the server had sent them."""
    for event in wire.events(FakeRace(steps)):
        message = json.loads(event)
        if message.get("end"):
            message |= result
        page.evaluate("event => dispatchEvent(new CustomEvent('treerace', { detail: event }))", message)
    finish(page)


def pace(page: Page, times: str) -> None:
    """At which speed the page plays: 0.1×, 0.25×, 1× or 4×."""
    page.get_by_role("radio", name=times, exact=True).dispatch_event("click")


def choose(page: Page, lane: int, title: str) -> None:
    page.locator("#systems input").nth(lane).click()
    page.get_by_role("option", name=title).click()


FRAMES = """seconds => new Promise((done) => {
  let [first, frames] = [null, 0];
  const frame = (now) => {
    first ??= now;
    if (now - first >= 1000 * seconds || !TreeRace.view.playing) done((1000 * frames) / Math.max(1, now - first));
    else requestAnimationFrame(frame);
    frames += 1;
  };
  requestAnimationFrame(frame);
})"""


def fps(page: Page, seconds: float = 3.0) -> float:
    """Frames a second while the shown race plays, for so long or until it ends."""
    return page.evaluate(FRAMES, seconds)


def shown_step(page: Page) -> int:
    return page.evaluate("TreeRace.view.step")


def texts(page: Page) -> list[str]:
    return page.locator("[data-bursts]").all_text_contents()
