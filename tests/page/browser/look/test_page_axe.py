"""axe-core finds nothing on any screen, in light and dark, wide and narrow; what it leaves open about contrast is computed here."""

import json
import uuid

import pytest

from engine.page.views import opening, standalone, wire
from engine.page.views.stream import News, numbered
from engine.race import Race, Settings
from helpers.page import open_view, until
from helpers.pairs import tiny_pair
from helpers.traces import made_race

RUN = """async () => {
  await Promise.all(document.getAnimations().map((each) => each.effect.getTiming().iterations < 9 && each.finished));
  const { violations, incomplete } = await axe.run(document);
  const place = ({ target }) => target.join(' ');
  const open = incomplete.find(({ id }) => id === 'color-contrast')?.nodes ?? [];
  const whole = (each) => Boolean(each.getClientRects().length) && [...function* (at) {
    for (; at; at = at.parentElement) yield Number(getComputedStyle(at).opacity);
  }(each)].every((opacity) => opacity > 0.99);
  const drawn = document.querySelectorAll(':is(.tree-drawing, .mask-drawing, .story-stage) :is(text, tspan)'); // axe reads none
  const found = open.map((node) => document.querySelector(place(node)));
  const onPictures = '.textpoint *'; // black or white, whichever can be read on the cell of a heat map: plots/shades.js
  const read = [...found.filter((each) => !each.matches(onPictures)), ...[...drawn].filter(whole)];
  return {
    violations: violations.map(({ id, nodes }) => [id, ...nodes.map(place)]),
    faint: read.map((each) => [contrast(each), each.outerHTML.slice(0, 120)]).filter(([ratio]) => ratio < 4.5),
  };
}"""
CONTRAST = """() => {
  const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const over = (colours) => { // the last one on top of all others
    paint.clearRect(0, 0, 1, 1);
    for (const colour of colours) { paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1); }
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  window.contrast = (element) => {
    const grounds = [];
    for (let at = element; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
    const bar = element.matches('.bartext-inside') && element.closest('.point').querySelector('path');
    if (bar) grounds.push(getComputedStyle(bar).fill);
    const style = getComputedStyle(element);
    const ink = element.closest('svg') ? style.fill : style.color;
    const [one, other] = [over(grounds), over([...grounds, ink])].map(light).sort((a, b) => a - b);
    return (other + 0.05) / (one + 0.05);
  };
}"""
READINESS = json.dumps({"words": "Loading PyTorch", "live": False})
WINDOWS = {"wide": {"width": 1280, "height": 720}, "phone": {"width": 390, "height": 844}}
PAGES = 9  # of the walk
SCENES = (0.9, 2.2, 3.6, 4.6, 5.6, 6.9)  # seconds of the story
TEXT = "Story: Once upon a time"


def click(selector: str):
    return lambda tab: tab.locator(selector).first.click()


def choose(name: str, value: str):
    return lambda tab: tab.locator(f"[name={name}][value={value}]").check(force=True)


def story(seconds: float, keys: str = "s"):
    def show(tab):
        for key in keys:
            tab.keyboard.press(key)
        tab.evaluate("seconds => TreeRace.view.slowStart.story.seek(seconds)", seconds)

    return show


def walk(number: int):
    def show(tab):
        tab.click("[data-learn]")
        tab.locator(f"[data-walk] [aria-label^='Page {number}: ']").click()

    return show


def more(tab) -> None:
    choose("view", "mask")(tab)
    tab.locator("[data-more]").check(force=True)


RACE = {  # what every page with a race can show
    "race": lambda tab: None,
    "drafter's view": choose("view", "guess"),
    "cost": choose("view", "cost"),
    "more of the mask": more,
    **{f"story at {seconds} s": story(seconds) for seconds in SCENES},
    "keys": lambda tab: tab.keyboard.press("?"),
    "presentation": lambda tab: tab.keyboard.press("f"),
    "story in presentation": story(SCENES[2], "fs"),
}
LAB = {view: lambda tab, view=view: open_view(tab, view) for view in ("sweep", "prompts", "pays", "predict")}
PAGE = {
    **RACE,
    "card": click(".right [data-badge]"),
    "prompts to try": click("[data-gallery] button"),
    "systems": click("#systems input"),
    "save or open": click("[data-take] button"),
    "help": click("[data-help] button"),
    "prix": click("[data-name=prix]"),
    **LAB,
    "production": lambda tab: open_view(tab, "production"),
    **{f"learn {number}": walk(number) for number in range(1, PAGES + 1)},
}
RESULT = {  # of a grand prix
    "result": lambda tab: until(tab, "TreeRace.prix.player.atEnd"),
    "menu": click("[data-prix-open]"),
}


@pytest.fixture(params=WINDOWS)
def visit(request, browser, axe):
    """Opens an address in a tab of its own, which shows a race at its end and has axe-core."""
    contexts = []

    def opened(address: str, html: str = ""):
        contexts.append(browser.new_context(viewport=WINDOWS[request.param], reduced_motion="reduce"))
        tab = contexts[-1].new_page()
        if html:
            tab.route("**", lambda route: route.fulfill(body=READINESS if "readiness" in route.request.url else html))
        tab.goto(address)
        until(tab, "Boolean(window.TreeRace?.view?.result)")
        tab.evaluate("TreeRace.view.skip()")
        tab.evaluate(axe)
        tab.evaluate(CONTRAST)
        return tab

    yield opened
    for context in contexts:
        context.close()


def complaints(tab, screens: dict, begin) -> dict:
    """What there is to say against each screen, by its name and theme. A phone has a window's colours, so one theme is enough there."""
    found, themes = {}, 2 if tab.viewport_size == WINDOWS["wide"] else 1
    for screen, show in screens.items():
        begin(tab)
        show(tab)
        for _ in range(themes):
            tab.evaluate("document.querySelector('[data-theme]').click()")
            tab.wait_for_timeout(100)
            theme = "dark" if tab.evaluate("document.body.classList.contains('dark')") else "light"
            found[screen, theme] = tab.evaluate(RUN)
        tab.keyboard.press("Escape")
        tab.keyboard.press("Escape")
    return {where: each for where, each in found.items() if each != {"violations": [], "faint": []}}


def at_the_race(tab) -> None:
    tab.evaluate("TreeRace.screens.showScreen('race')")


def test_no_screen_of_the_page_has_a_violation_or_text_that_is_too_faint(visit, server):
    assert complaints(visit(server), PAGE, at_the_race) == {}


def test_the_result_of_a_grand_prix_has_no_violation_and_no_text_that_is_too_faint(visit, server):
    tab = visit(server)
    field = Settings(TEXT, ("vanilla", "tree", "eagle", "naive"), max_new_tokens=8)
    for step in numbered(uuid.uuid4().hex, wire.messages(Race(tiny_pair(same=True), field))):
        if isinstance(step, News):
            tab.evaluate("message => TreeRace.prix.run.show(message)", json.loads(step.text))
    assert complaints(tab, RESULT, PAGE["prix"]) == {}


def test_the_opening_page_has_no_violation_and_no_text_that_is_too_faint(visit):
    there = {"live": lambda tab: tab.evaluate("document.querySelector('[data-opening-go]').hidden = false")}
    assert complaints(visit("http://treerace/", opening.html()), there | RACE, at_the_race) == {}


def test_the_replay_page_has_no_violation_and_no_text_that_is_too_faint(visit):
    assert complaints(visit("http://treerace/", standalone.html(made_race())), RACE, at_the_race) == {}
