"""The opening minute in a real Chromium: the story of one step is seen whole, nothing jumps, no task is long, frames come in time."""

import pytest

from helpers.families import daily
from helpers.page import PATIENCE, start_race, traced, until

SHIFT = 0.02  # of layout, without an input
LONGEST = 1.6  # of the yardstick is a task's limit: 0.1 s where the yardstick takes 0.06 s
# While the live page comes it is 0.16 s: Gradio builds the API's components and ours in one task, 0.06 s longer than ours alone
BUILDING = 2.6
LATE = 0.3  # of the yardstick is a late frame's task
LATE_FRAMES = 12  # may come while a story of eight seconds is told
FRAMES = 20  # at least: a processor with other work draws few of its 480
TRIES = 4  # one must hold: a browser that has just started has more to do, and other work slows a processor
VISITS, NAMES = [((1280, 720), "light"), ((390, 844), "dark")], ["window", "phone"]
TELLING = "Boolean(window.TreeRace?.view?.slowStart.isTelling)"
YARDSTICK = """() => {
  const box = document.body.appendChild(document.createElement('div'));
  for (let word = 0; word < 4000; word += 1) box.appendChild(document.createElement('span')).textContent = `word ${word} `;
  for (let width = 400; width < 430; width += 5) { box.style.width = `${width}px`; box.getBoundingClientRect(); }
  box.remove();
}"""  # 0.07 s of an AMD Zen 3 beside other work
WATCHED = """() => {
  const seen = (window.seen = { shift: 0, frames: 0, said: [] });
  const shifts = new PerformanceObserver((list) => {
    for (const { hadRecentInput, value } of list.getEntries()) seen.shift += hadRecentInput ? 0 : value;
  });
  shifts.observe({ type: 'layout-shift', buffered: true });
  const frame = () => {
    const words = document.querySelector('[data-story]:not([hidden]) [data-story-words]')?.textContent;
    if (words && words !== seen.said.at(-1)) seen.said.push(words);
    seen.frames += 1;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}"""


@pytest.fixture
def visited(browser):
    """A first visit in a window of its own."""
    contexts = []

    def visit(room, scheme):
        viewport = dict(zip(("width", "height"), room, strict=True))
        contexts.append(browser.new_context(viewport=viewport, color_scheme=scheme))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(PATIENCE)
        tab.add_init_script(f"({WATCHED})()")
        return tab

    yield visit
    for context in contexts:
        context.close()


@pytest.fixture
def yardstick(browser) -> float:
    """Seconds of the processor that a fixed piece of a page's work takes on this machine."""
    context = browser.new_context()
    tab = context.new_page()
    with traced(tab) as tasks:
        for _ in range(3):
            tab.evaluate(YARDSTICK)
    context.close()
    return tasks[-2]


def faults(tab, coming: list[float], telling: list[float], yardstick: float, building: float = LONGEST) -> list[str]:
    """What was wrong, of tasks while the page came and while it told its story. `building` is what one may take while it comes."""
    shift, frames = tab.evaluate("[seen.shift, seen.frames]")
    late = sum(task > LATE * yardstick for task in telling)
    wrong = {
        f"{frames} frames in {len(telling)} tasks": not len(telling) > frames > FRAMES,
        f"tasks of {coming[-3:]} s, then of {telling[-3:]} s, where the yardstick takes {yardstick} s": (
            coming[-1] >= building * yardstick or telling[-1] >= LONGEST * yardstick
        ),
        f"{late} late frames of {frames}": late > LATE_FRAMES,
        f"layout shifted by {shift}": shift >= SHIFT,
    }
    return [fault for fault, is_there in wrong.items() if is_there]


def told_whole(tab) -> bool:
    """Six sentences, from the guess to the promise."""
    said = tab.evaluate("seen.said")
    checks, same = "The large model checks all ", "Nothing changes in the text: it only comes sooner."
    return len(said) == 6 and said[1].startswith(checks) and said[-1] == same


def await_story(tab) -> None:
    tab.evaluate("seen.frames = 0")
    until(tab, "!TreeRace.view.slowStart.isTelling && (TreeRace.view.playing || TreeRace.view.atEnd)")
    tab.wait_for_timeout(1500)  # of the race


@pytest.mark.parametrize(("room", "scheme"), daily(VISITS, VISITS[0]), ids=NAMES)
def test_the_opening_page_tells_one_step_whole_and_runs_smoothly(front, visited, yardstick, room, scheme):
    for _ in range(TRIES):
        tab = visited(room, scheme)
        with traced(tab) as coming:
            tab.goto(front.url)
            until(tab, TELLING)
        with traced(tab) as telling:
            await_story(tab)
        assert told_whole(tab), tab.evaluate("seen.said")
        wrong = faults(tab, coming, telling, yardstick)
        if not wrong:
            break
    assert wrong == []


@pytest.mark.parametrize(("room", "scheme"), daily(VISITS, VISITS[1]), ids=NAMES)
def test_the_live_page_comes_and_tells_its_first_race_as_smoothly(server, visited, yardstick, room, scheme):
    for _ in range(TRIES):
        tab = visited(room, scheme)
        tab.add_init_script("sessionStorage.setItem('treerace-told', 'recorded')")  # on the opening page
        with traced(tab) as coming:
            tab.goto(server)
            until(tab, "Boolean(window.TreeRace?.view?.playing)")
            tab.wait_for_timeout(2000)  # of the recorded race
            start_race(tab, tokens=64)
            until(tab, TELLING)
        with traced(tab) as telling:
            await_story(tab)
        assert told_whole(tab), tab.evaluate("seen.said")
        wrong = faults(tab, coming, telling, yardstick, BUILDING)
        told = tab.evaluate("TreeRace.view.run")
        start_race(tab, tokens=64)
        until(tab, f"TreeRace.view.run !== '{told}' && TreeRace.view.playing")
        assert tab.evaluate("seen.said.length") == 6  # once in a visit
        if not wrong:
            break
    assert wrong == []
