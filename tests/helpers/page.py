"""What the tests of the page do in an open tab: choose, race, and play made-up races."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Locator, Page, expect

from engine.page.screens.answers import PROMPTS
from engine.record.trace import Step
from engine.systems import SYSTEMS
from helpers.traces import FakeRace, events, make_step, one_node

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
FLAGS += ["--disable-component-update", "--disable-sync"]
FLAGS += ["--font-render-hinting=none"]  # letters as wide without windows as in them
PATIENCE = 120_000  # milliseconds; a busy machine is slow, a broken page waits for ever
PROMPT = "Story: Once upon a time, there was a little fox who"
[ENDLESS] = [
    each["prompt"] for each in PROMPTS["code"] if each["title"] == "A stack"
]  # a story ends within a second, this goes on
TRACED = ["devtools.timeline", "disabled-by-default-devtools.timeline"]  # what Chromium traces
RESULT = {"lanes": [{"tokens": 3}] * 2, "speedup": 2.0, "identical": True, "divergence": None}
IMAGE = "<img src=x onerror=window.__hostile=1>"
HOSTILE = [" <b>x</b>", IMAGE, "<a href='javascript:1'>y</a>", "&amp;", "${1+1}{{x}}"]
expect.set_options(timeout=60_000)

# For a tab before it opens the page. People watch a race for ten seconds, and the first one of a visit begins with a story.
NO_STORY = "sessionStorage.setItem('treerace-told', 'recorded live');"
REAL_TIME = """new MutationObserver(() => {
  for (const radio of document.querySelectorAll("input[value='real time']:not([data-found])")) {
    radio.dataset.found = '';
    radio.click();
  }
}).observe(document, { childList: true, subtree: true });"""


# What a page is asked for before a test marked `looks` uses it, and what brings it back afterwards: to its first screen, with its own
# choices and settings, and nothing open.
REMEMBER = """async () => {
  const { controls } = TreeRace;
  await controls.change((now) => ((window.opening = { address: location.href, settings: now }), {}));
}"""
BEGIN_ANEW = """async () => {
  const { address, settings } = window.opening;
  document.activeElement?.blur();
  for (let at = 0; at < 3; at += 1) document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
  if (document.body.classList.contains('dark')) document.querySelector('[data-theme]').click();
  TreeRace.screens.showScreen('race');
  TreeRace.view.skip();
  for (const each of document.querySelectorAll('#race :is([type=radio], [type=checkbox])'))
    if (each.checked !== each.defaultChecked && (each.type === 'checkbox' || each.defaultChecked)) each.click();
  document.querySelector('#race input[name=order]').click();
  document.querySelector("#race input[value='real time']").click();
  await TreeRace.controls.change(() => settings);
  history.replaceState(null, '', address);
  window.scrollTo(0, 0);
}"""


def dial(page: Page, label: str, value: float) -> None:
    box = page.locator("#dials").get_by_label(label, exact=True).first
    box.fill(str(value))
    box.press("Tab")


def start_race(page: Page, prompt: str = PROMPT, tokens: int = 32) -> None:
    page.fill("#prompt textarea", prompt)
    dial(page, "New tokens", tokens)
    before = page.evaluate("TreeRace.view.race.id")
    page.click("#race-go")
    page.wait_for_function(
        "before => TreeRace.view.race.id !== before", arg=before
    )  # else the race before may pass for it


def finish(page: Page) -> None:
    page.wait_for_selector("[data-race][data-state=done]", timeout=PATIENCE)
    page.wait_for_function("!TreeRace.view.result?.again")  # it may run again, unseen


def race(page: Page, prompt: str = PROMPT, tokens: int = 32) -> None:
    start_race(page, prompt, tokens)
    finish(page)


def refused(page: Page, words: str) -> None:
    """The page refuses something with these words, which are read and closed."""
    sentence = page.get_by_test_id("toast-body")
    expect(sentence).to_contain_text(words)
    page.get_by_test_id("toast-close").click()
    expect(sentence).to_have_count(0)


def play(page: Page, steps: list, **result) -> None:
    """Plays a made-up race of (lane, step), as if the server had sent its events. `result` overrides fields of its result."""
    for event in events(FakeRace(steps)):
        message = json.loads(event)
        if message.get("end"):
            message |= result
        page.evaluate("event => TreeRace.view.race.show(event)", message)
    finish(page)


def feed(page: Page, view: str, messages: list[dict]) -> None:
    """Shows a run's messages in a screen or a view of the lab, as if the server had sent them."""
    page.evaluate("([view, all]) => all.forEach((each) => TreeRace[view].run.show(each))", [view, messages])


def pace(page: Page, times: str) -> None:
    """Sets the page's playing speed: ½×, 1×, 2× or real time."""
    page.get_by_role("radio", name=times, exact=True).dispatch_event("click")


def choose(page: Page, lane: int, title: str) -> None:
    """Choose in the lane's menu; a system for the right lane brings its shape along, which the dials have then."""
    menu = page.locator("#systems input").nth(lane)
    menu.click()
    page.get_by_role("option", name=re.compile(rf"^{re.escape(title)}(?!,)")).click()
    expect(menu).to_have_value(re.compile(re.escape(title)))
    chosen = menu.input_value().removesuffix(" · lossy")
    for system in SYSTEMS.values():
        if lane == 1 and system.title == chosen:
            for name, value in (("Depth", system.depth), ("Width", system.width)):
                expect(page.get_by_label(f"number input for {name}", exact=True)).to_have_value(str(value))


def until(page: Page, expression: str, seconds: int = 60) -> None:
    """Waits until the expression holds, also where the page's policy forbids it to evaluate texts by itself."""
    for _ in range(10 * seconds):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"In {seconds} s it never held: {expression}")


def press(page: Page, button: str, when: str) -> None:
    """The page presses the button as soon as the expression holds. A click from here could come when all is over."""
    page.wait_for_function(f"({when}) && (document.querySelector('{button}').click(), true)")


RESTS = """async () => {
  while ((await (await fetch('readiness')).json()).runs) await new Promise(requestAnimationFrame);
  for (let frame = 0; frame < 10; frame += 1) await new Promise(requestAnimationFrame);
}"""


def at_rest(page: Page) -> None:
    """Waits until no run is left at the server, and for ten frames more: what goes on after a Stop has gone on by then."""
    page.evaluate(RESTS)


def shown_step(page: Page) -> int:
    return page.evaluate("TreeRace.view.step")


def texts(page: Page) -> list[str]:
    return page.locator("[data-bursts]").all_text_contents()


ROUNDS = 12


def two_lanes() -> list[tuple[int, Step]]:
    """The left lane takes two short steps for each of the right one's; both end together after 0.12 s."""
    steps = []
    for index in range(ROUNDS):
        end = "length" if index == ROUNDS - 1 else ""
        fox = f" fox{index}"
        for half, stop in ((0, ""), (1, end)):
            steps.append(
                (0, one_node(index=2 * index + half, burst=[99], pieces=[" fox"], bonus_text=" fox", end=stop))
            )
        seconds = {"draft": 0.004, "verify": 0.006}
        drafted = make_step(index=index, seconds=seconds, bonus_text=fox, pieces=[" a", " little", fox], end=end)
        steps.append((1, drafted))
    return steps


def play_two_lanes(page: Page) -> None:
    play(page, two_lanes(), **RESULT)


def state(page: Page) -> dict:
    return page.evaluate(
        """() => {
          const { view } = TreeRace;
          const text = (name) => document.querySelector(`#race [data-${name}]`).textContent;
          const mask = document.querySelector('[data-mask]');
          return {
            step: view.step, focus: view.focus, playing: view.playing, bursts: view.lanes.map((lane) => lane.shown),
            sentence: text('sentence'), place: text('step'), scrub: document.querySelector('[data-scrub]').value,
            nodes: document.querySelectorAll('[data-tree] g.node').length, rows: mask.querySelectorAll('.row').length,
            texts: [...document.querySelectorAll('[data-bursts]')].map((each) => each.textContent),
          };
        }"""
    )


SAVE = "Save or open a race"


def whole(page: Page) -> None:
    """Shows the race to its end without waiting for it."""
    page.evaluate("TreeRace.view.skip()")


def menu(page: Page) -> None:
    page.get_by_role("button", name=SAVE).click()


def idle(page: Page, server: str, motion: str = "no-preference") -> Page:
    """Opens another tab, in which no race begins with a story. What the first tab has fetched and compiled is there."""
    tab = page.context.new_page()
    tab.set_viewport_size({"width": 1280, "height": 720})
    tab.emulate_media(reduced_motion=motion)
    tab.add_init_script(NO_STORY)
    tab.set_default_timeout(PATIENCE)
    tab.goto(server)
    return tab


LABELS = """tree => [...tree.querySelectorAll('.label')].map((label) => {
  const { left, right, top, bottom } = label.getBoundingClientRect();
  const room = tree.getBoundingClientRect();
  const inside = left >= room.left && right <= room.right + 0.5 && top >= room.top - 1 && bottom <= room.bottom + 1;
  const size = label.getAttribute('font-size') * label.getScreenCTM().a;
  return [Number(label.closest('g.node').dataset.node), label.textContent, size, inside];
})"""


def path_is_legible(tree: Locator, step: Step) -> None:
    """In its drawing every label has letters of ten pixels, and words of the accepted path and of the bonus are whole."""
    labels = tree.evaluate(LABELS)
    assert min(size for _, _, size, _ in labels) >= 10 and all(inside for *_, inside in labels)
    words = {node: text for node, text, *_ in labels}
    for node in (0, *step.path):
        assert words[node] == step.texts[node].replace(" ", "·")
    assert words[len(step.tokens)].startswith(step.bonus_text.replace(" ", "·"))


def open_view(page: Page, view: str) -> None:
    """Opens one of the lab's views: sweep, prompts or pays."""
    page.evaluate("TreeRace.screens.showScreen('lab')")
    page.evaluate("view => TreeRace.lab.show(view)", view)


@contextmanager
def traced(page: Page) -> Iterator[list[float]]:
    """Fills the list with the seconds of the processor that each task of a page's main thread took meanwhile, the longest last.

    Other work on the machine delays a task, and makes its time no longer.
    """
    browser, tasks = page.context.browser, []
    browser.start_tracing(page=page, categories=TRACED)
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
