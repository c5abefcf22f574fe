"""Nothing on the page jumps: layout shift of every screen on a phone and in a small window. On a phone the verdict stays in view."""

import pytest
from playwright.sync_api import expect

from engine.page.views import standalone
from helpers.page import NO_STORY, PATIENCE, open_view, pace, play_two_lanes, until
from helpers.traces import FakeRace, make_step, one_node

MOST = 0.02  # of layout shift without an input, over a visit
SHIFTS = """() => {
  window.shifts = [];
  const told = (list) => {
    for (const { hadRecentInput, sources, value } of list.getEntries())
      if (!hadRecentInput) shifts.push([value, ...sources.map(({ node }) => node?.parentElement?.outerHTML.slice(0, 80))]);
  };
  new PerformanceObserver(told).observe({ type: 'layout-shift', buffered: true });
}"""
# Counts what may still move the page: questions to the server without their answers, and timers that end soon. Streams stay open.
COMING = """() => {
  const coming = (window.coming = new Set());
  const { clearTimeout, fetch, setTimeout } = window;
  window.setTimeout = (then, ms, ...given) => {
    if (ms >= 1500) return setTimeout(then, ms, ...given);
    const timer = setTimeout(() => coming.delete(timer) && then(...given), ms);
    coming.add(timer);
    return timer;
  };
  window.clearTimeout = (timer) => (coming.delete(timer), clearTimeout(timer));
  window.fetch = async (...asked) => {
    const question = {};
    coming.add(question);
    const over = () => coming.delete(question);
    try {
      const answer = await fetch(...asked);
      if (answer.headers.get('content-type')?.includes('event-stream')) over();
      else answer.clone().arrayBuffer().finally(over);
      return answer;
    } catch (error) {
      over();
      throw error;
    }
  };
}"""
# Counts the frames, one after the other, in which nothing comes and nothing is animated.
CALM = """() => {
  const ends = (animation) => animation.effect.getComputedTiming().endTime < Infinity;
  const frame = () => {
    const moves = document.getAnimations().some((animation) => animation.playState === 'running' && ends(animation));
    const loads = document.fonts.status === 'loading' || [...document.images].some((image) => !image.complete);
    window.calm = coming.size || moves || loads ? 0 : window.calm + 1;
    requestAnimationFrame(frame);
  };
  frame();
}"""
PHONE, WINDOW = {"width": 390, "height": 844}, {"width": 1280, "height": 720}
OPENED = {
    "race": lambda tab: until(tab, "TreeRace.view.atEnd && TreeRace.view.result"),
    "presentation": lambda tab: tab.keyboard.press("f"),
    "prix": lambda tab: (tab.keyboard.press("Escape"), tab.click("[data-name=prix]")),
    "learn": lambda tab: tab.click("[data-learn]"),
    "lab": lambda tab: tab.click("[data-name=lab]"),
    **{view: lambda tab, view=view: open_view(tab, view) for view in ("prompts", "pays")},
}


@pytest.fixture
def visited(server, browser):
    """A first visit in a window of its own: the recorded race plays. Without the story, which other tests are about."""
    contexts = []

    def visit(viewport):
        contexts.append(browser.new_context(viewport=viewport))
        contexts[-1].set_default_timeout(PATIENCE)
        tab = contexts[-1].new_page()
        tab.add_init_script(f"{NO_STORY} ({SHIFTS})(); ({COMING})(); ({CALM})()")
        tab.goto(server)
        until(tab, "Boolean(window.TreeRace?.view?.result)")
        return tab

    yield visit
    for context in contexts:
        context.close()


def test_hardly_anything_moves_by_itself(visited):
    """On a phone and in a window, which are looked at in turn."""
    tabs = [visited(viewport) for viewport in (PHONE, WINDOW)]
    moved: list[dict[str, list]] = [{}, {}]
    for tab in tabs:
        pace(tab, "2×")
    for screen, opened in OPENED.items():
        for tab in tabs:
            opened(tab)
            tab.evaluate("window.calm = 0")
        for tab, shifts in zip(tabs, moved, strict=True):
            tab.wait_for_function("calm > 20")
            shifts[screen] = tab.evaluate("shifts.splice(0)")
    for shifts in moved:
        assert sum(value for each in shifts.values() for value, *_ in each) < MOST, shifts


def test_on_a_phone_the_verdict_stays_in_view_and_covers_nothing_of_the_lanes(page):
    page.set_viewport_size(PHONE)
    play_two_lanes(page)
    verdict, lanes = page.locator("[data-verdict]"), page.locator("[data-lanes]")
    above, below = verdict.bounding_box(), lanes.bounding_box()
    assert above["y"] + above["height"] <= below["y"]
    page.locator("[data-tree]").evaluate("tree => tree.scrollIntoView({ block: 'center' })")
    expect(verdict).to_be_in_viewport(ratio=1)
    box = verdict.bounding_box()
    seen = "([x, y]) => Boolean(document.elementFromPoint(x, y).closest('[data-verdict]'))"
    assert page.evaluate(seen, [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])
    page.locator("[data-race] [data-next]").focus()
    focused = page.locator("[data-race] [data-next]").bounding_box()
    assert focused["y"] >= box["y"] + box["height"]


PIECES = [
    " a",
    " grand",
    "mother",
    " sud",
    "den",
    "ly",
    " saw",
    " m",
    "itt",
    "ens",
    ".",
    " Every",
    "body",
    " laugh",
    "ed",
] * 4
# Where every burst's letters begin, after each step and at the end: what stands elsewhere then has moved.
MOVED = """() => {
  const { view } = TreeRace;
  view.pick(0);
  const { bursts, text } = view.lanes[0];
  const places = () => [...bursts.querySelectorAll('.ink')].map((ink) => {
    const { left, top } = ink.getClientRects()[0];
    return `${Math.round(left)} ${Math.round(top + text.scrollTop)}`;
  });
  const after = view.steps.map((_, index) => {
    view.go(index);
    return places();
  });
  const end = after.at(-1);
  const moved = after.flatMap((seen) => seen.flatMap((place, at) => (place === end[at] ? [] : [view.steps[at].pieces[0]])));
  return { lines: new Set(end.map((place) => place.split(' ')[1])).size, moved: [...new Set(moved)] };
}"""


def test_a_word_in_pieces_stands_in_its_line_from_the_first_piece_on(browser, tmp_path):
    """Where its later pieces do not fit the line, the first one would else jump to the next line with them."""
    last = len(PIECES) - 1
    steps = [
        (0, one_node(index=at, burst=[99], pieces=[piece], bonus_text=piece, end="length" if at == last else ""))
        for at, piece in enumerate(PIECES)
    ]
    race = FakeRace([*steps, (1, make_step(end="length"))])
    assert list(race.run())
    file = tmp_path / "race.html"
    file.write_text(standalone.render_replay_page(race.to_record()), "utf-8")
    with browser.new_context(viewport=PHONE, reduced_motion="reduce") as context:
        tab = context.new_page()
        tab.goto(file.as_uri())
        until(tab, "Boolean(window.TreeRace?.view?.atEnd)")
        found = tab.evaluate(MOVED)
    assert found["lines"] > 6 and found["moved"] == []
