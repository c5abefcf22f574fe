"""axe-core finds nothing on any screen, in light and dark, wide and narrow, also once its tables are filled. What axe leaves open about
contrast is computed here, and so is that of all letters in drawings: on whatever is painted below them, such as a bar or a cell."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from engine.page.views import standalone
from helpers import screens
from helpers.families import daily
from helpers.page import PATIENCE, feed, open_view, until
from helpers.traces import made_race

RUN = """async (rules) => {
  for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame); // observers draw anew in the first
  for (const each of document.getAnimations()) if (each.effect.getComputedTiming().endTime < Infinity) each.finish();
  const resultTypes = ['violations', 'incomplete']; // a place is written for nothing else, which would take a third of the time
  const { violations, incomplete } = await axe.run(document, rules ? { resultTypes, runOnly: rules } : { resultTypes });
  const place = ({ target }) => target.join(' ');
  const open = incomplete.find(({ id }) => id === 'color-contrast')?.nodes ?? [];
  const seen = (each) => each.textContent.trim() && each.checkVisibility({ visibilityProperty: true });
  const whole = (each) => seen(each) && opacityOf(each) > 0.99;
  const drawn = [...document.querySelectorAll('svg :is(text, tspan)')].filter(whole); // axe reads none
  await awaitPictures();
  const read = [...open.map((node) => document.querySelector(place(node))), ...drawn];
  return {
    violations: violations.map(({ id, nodes }) => [id, ...nodes.map(place)]),
    faint: read.map((each) => [contrast(each), each.outerHTML.slice(0, 120)]).filter(([ratio]) => !(ratio >= 4.5)),
  };
}"""
CONTRAST = """() => {
  const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const over = (coats) => { // the last one on top of all others
    paint.clearRect(0, 0, 1, 1);
    for (const coat of coats) coat();
    paint.globalAlpha = 1;
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const colour = (value, opacity = 1) => () => {
    Object.assign(paint, { globalAlpha: opacity, fillStyle: value });
    paint.fillRect(0, 0, 1, 1);
  };
  const above = function* (at) { for (; at; at = at.parentElement) yield at; };
  window.opacityOf = (each) => [...above(each)].reduce((all, at) => all * Number(getComputedStyle(at).opacity), 1);
  const picture = (image, x, y) => () => { // a heat map, a pixel or more for each cell
    const loaded = pictures.get(image.href.baseVal);
    const box = image.getBoundingClientRect();
    const [across, down] = [(x - box.left) / box.width, (y - box.top) / box.height];
    paint.globalAlpha = opacityOf(image);
    paint.drawImage(loaded, Math.floor(across * loaded.width), Math.floor(down * loaded.height), 1, 1, 0, 0, 1, 1);
  };
  const pictures = new Map();
  window.awaitPictures = async () => {
    for (const { href } of document.querySelectorAll('svg image')) {
      if (!href.baseVal || pictures.has(href.baseVal)) continue;
      const loaded = Object.assign(new Image(), { src: href.baseVal });
      await loaded.decode();
      pictures.set(href.baseVal, loaded);
    }
  };
  const below = (element, letters) => { // what is painted before the letters, and may lie where they are
    const whole = element.closest('.svg-container') ?? element.closest('svg'); // Plotly lays several on each other
    return [...whole.querySelectorAll(':is(path, rect, circle, ellipse, image)')]
      .filter((each) => element.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_PRECEDING)
      .map((each) => [each, each.getBoundingClientRect()])
      .filter(([, box]) => box.left <= letters.right && box.right >= letters.left)
      .filter(([, box]) => box.top <= letters.bottom && box.bottom >= letters.top)
      .filter(([each]) => !each.closest('defs, clipPath'));
  };
  const under = function* (element, shapes, x, y) {
    for (const [each, { left, right, top, bottom }] of shapes) {
      if (x < left || x > right || y < top || y > bottom) continue;
      if (each.matches('image')) { yield picture(each, x, y); continue; }
      const { fill, fillOpacity } = getComputedStyle(each);
      const there = new DOMPoint(x, y).matrixTransform(each.getScreenCTM().inverse());
      if (fill === 'none' || !each.isPointInFill(there)) continue;
      if (fill.startsWith('url')) throw new Error(`Letters stand on a pattern: ${element.outerHTML}`);
      yield colour(fill, fillOpacity * opacityOf(each));
    }
  };
  window.contrast = (element) => {
    const grounds = [...above(element)].reverse().map((at) => colour(getComputedStyle(at).backgroundColor));
    const style = getComputedStyle(element);
    if (!element.closest('svg')) return ratio(grounds, style.color);
    const letters = element.getBoundingClientRect();
    const { left, right, top, bottom } = letters;
    const shapes = below(element, letters);
    const [across, down] = [[left + 2, (left + right) / 2, right - 2], [0.3, 0.7].map((part) => top + part * (bottom - top))];
    const places = across.flatMap((x) => down.map((y) => [x, y]));
    return Math.min(...places.map((place) => ratio([...grounds, ...under(element, shapes, ...place)], style.fill)));
  };
  const ratio = (grounds, ink) => {
    const [one, other] = [over(grounds), over([...grounds, colour(ink)])].map(light).sort((a, b) => a - b);
    return (other + 0.05) / (one + 0.05);
  };
}"""
PLOTLY = "Boolean(window.Plotly || document.querySelector('#plotly'))"  # it is there, or nobody has asked for it
IN_CHARTS = "document.querySelectorAll('.js-plotly-plot :is(.bartext, .textpoint, .annotation)').length"
READINESS = json.dumps({"words": "Loading PyTorch", "live": False})
WINDOWS = {"wide": {"width": 1280, "height": 720}, "phone": {"width": 390, "height": 844}}
PAGES = 12  # of the walk
SCENES = (0.9, 2.2, 3.6, 4.6, 5.6, 6.9)  # seconds of the story


def click(selector: str):
    return lambda tab: tab.locator(selector).first.click()


def choose(name: str, value: str):
    return lambda tab: tab.locator(f"[name={name}][value={value}]").check(force=True)


def story(seconds: float, keys: str = "s"):
    def show(tab):
        for key in keys:
            tab.keyboard.press(key)
        tab.evaluate("seconds => TreeRace.view.slowStart.story.player.seek(seconds)", seconds)

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
LAB = {view: lambda tab, view=view: open_view(tab, view) for view in ("sweep", "prompts", "pays")}
STORIES = {name: show for name, show in RACE.items() if "story" in name}  # which the replay page shows every day
PAGE = {
    **{name: show for name, show in RACE.items() if name not in STORIES},
    "card": click(".right [data-badge]"),
    "prompts to try": click("[data-gallery] button"),
    "systems": click("#systems input"),
    "save or open": click("[data-take] button"),
    "help": click("[data-help] button"),
    "prix": click("[data-name=prix]"),
    **LAB,
    **{f"learn {number}": walk(number) for number in range(1, PAGES + 1)},
}


def filled(view: str, part: str = "", pick: str = ""):
    """A view of the lab that has its results: a part of it, with a button pressed there."""

    def show(tab):
        open_view(tab, view)
        if part:
            choose(f"{view}-part", part)(tab)
        if pick:
            click(f"[data-lab-{view}] {pick}")(tab)

    return show


FILLED = {
    "sweep": filled("sweep"),
    "prompts": filled("prompts"),
    **{f"pays: {part}": filled("pays", part) for part in ("verdict", "prompts", "what-if")},
}
RESULT = {  # of a grand prix
    "result": lambda tab: tab.evaluate("TreeRace.prix.player.skip()"),
    "menu": click("[data-prix-open]"),
}


@pytest.fixture(scope="module", params=daily(WINDOWS, "wide"))
def context(request, browser) -> Iterator[BrowserContext]:
    with browser.new_context(viewport=WINDOWS[request.param], reduced_motion="reduce") as context:
        context.set_default_timeout(PATIENCE)
        yield context


@pytest.fixture
def visit(context, axe):
    """Opens an address in a tab of its own, which shows a race at its end and has axe-core."""

    def opened(address: str, html: str = ""):
        tab = context.new_page()
        if html:
            tab.route("**", lambda route: route.fulfill(body=READINESS if "readiness" in route.request.url else html))
        tab.goto(address)
        until(tab, "Boolean(window.TreeRace?.view?.result)")
        tab.evaluate("TreeRace.view.skip()")
        tab.evaluate(axe)
        tab.evaluate(CONTRAST)
        return tab

    yield opened
    for tab in context.pages:
        tab.evaluate("localStorage.clear()")  # the theme
        tab.close()


def complaints(tab, screens: dict, begin) -> dict:
    """What there is to say against each screen, by its name and theme. Another theme has other colours and nothing else, and a phone
    has a window's colours, so one theme is enough there."""
    found, themes = {}, [None, ["color-contrast"]] if tab.viewport_size == WINDOWS["wide"] else [None]
    for screen, show in screens.items():
        begin(tab)
        show(tab)
        for rules in themes:
            tab.evaluate("document.querySelector('[data-theme]').click()")
            until(tab, PLOTLY)
            theme = "dark" if tab.evaluate("document.body.classList.contains('dark')") else "light"
            found[screen, theme] = tab.evaluate(RUN, rules)
        tab.keyboard.press("Escape")
        tab.keyboard.press("Escape")
    return {where: each for where, each in found.items() if each != {"violations": [], "faint": []}}


def give(tab, view: str, lines: list) -> None:
    """Chooses a file of such lines in a view of the lab, and waits until it was read."""
    told = tab.locator("[data-lab-words]").text_content()
    file = {"name": "mine.jsonl", "mimeType": "text/plain", "buffer": "\n".join(map(json.dumps, lines)).encode()}
    tab.set_input_files(f"[data-lab-{view}] [data-file]", file)
    expect(tab.locator("[data-lab-words]")).not_to_have_text(told)


def at_the_race(tab) -> None:
    tab.evaluate("TreeRace.screens.showScreen('race')")


@pytest.mark.parametrize(
    "screens_of_it", [PAGE, pytest.param(STORIES, marks=pytest.mark.exhaustive)], ids=["screens", "stories"]
)
def test_no_screen_of_the_page_has_a_violation_or_text_that_is_too_faint(visit, server, screens_of_it):
    assert complaints(visit(server), screens_of_it, at_the_race) == {}


def test_no_filled_table_of_the_lab_has_a_violation_or_text_that_is_too_faint(visit, server):
    tab = visit(server)
    open_view(tab, "prompts")
    give(tab, "prompts", screens.PROMPTS)
    feed(tab, "prompts", screens.prompts_raced())
    open_view(tab, "pays")
    feed(tab, "pays", screens.judged())
    feed(tab, "sweep", screens.swept())
    assert complaints(tab, FILLED, at_the_race) == {}
    rows = {view: tab.locator(f"[data-lab-{view}] tbody tr").count() for view in ("prompts", "pays")}
    assert tab.evaluate(IN_CHARTS) > 10 and rows == {"prompts": 4, "pays": 6}


def test_the_result_of_a_grand_prix_has_no_violation_and_no_text_that_is_too_faint(visit, server):
    tab = visit(server)
    feed(tab, "prix", screens.raced())
    assert complaints(tab, RESULT, PAGE["prix"]) == {}
    expect(tab.locator("[data-prix-table] tbody tr")).to_have_count(len(screens.FIELD))


def test_the_opening_page_has_no_violation_and_no_text_that_is_too_faint(visit):
    """It has a line under its head. All else is the replay page's, and the live page shows the same recorded race everywhere."""
    there = {"live": lambda tab: tab.evaluate("document.querySelector('[data-opening-go]').hidden = false")}
    there |= {name: RACE[name] for name in ("race", f"story at {SCENES[2]} s", "presentation")}
    assert complaints(visit("http://treerace/", standalone.render_opening_page()), there, at_the_race) == {}


def test_the_replay_page_has_no_violation_and_no_text_that_is_too_faint(visit):
    assert complaints(visit("http://treerace/", standalone.render_replay_page(made_race())), RACE, at_the_race) == {}
