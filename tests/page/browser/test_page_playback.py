"""Playing a race again, in a real Chromium: speeds, clocks, steps and smoothness; most races here are made up."""

import json
import re

import pytest
from playwright.sync_api import expect

from helpers.page import RESULT, ROUNDS, pace, play_two_lanes, race, state, traced, two_lanes
from helpers.traces import FakeRace, events

SPEEDS = {"½×": 0.5, "1×": 1, "2×": 2, "real time": None}  # of the pace at which a race lasts ten seconds
LAYOUT_SHIFTS = """() => {
  window.shifts = [];
  const observer = new PerformanceObserver((list) => { // what a press changes is no jump
    shifts.push(...list.getEntries().filter((each) => !each.hadRecentInput).map((each) => each.value));
  });
  observer.observe({ type: 'layout-shift' });
}"""

# In a second of the race that plays.
FRAMES = """() => new Promise((done) => {
  let [first, frames] = [null, 0];
  const frame = (now) => {
    first ??= now;
    if (now - first >= 1000 || !TreeRace.view.playing) done(frames);
    else requestAnimationFrame(frame);
    frames += 1;
  };
  requestAnimationFrame(frame);
})"""


@pytest.mark.looks
def test_a_race_is_played_again_without_the_server(page):
    play_two_lanes(page)
    whole = state(page)["texts"]
    button = page.locator("[data-play]")
    expect(button).to_have_accessible_name("Play again")
    expect(page.locator("[data-verdict]")).to_contain_text("identical")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("TreeRace.view.speeds.suggest(10 / 0.12)")  # a race of 0.12 s takes ten
    pace(page, "2×")
    button.click()
    expect(button).to_have_accessible_name("Pause")
    expect(page.locator("[data-verdict]")).to_be_hidden()
    page.wait_for_function(
        "most => { const { view } = TreeRace, { shown } = view.lanes[1];"
        " return shown > 2 && shown < most && (view.toggle(), true); }",
        arg=ROUNDS,
    )
    paused = state(page)
    assert not paused["playing"] and len(paused["texts"][1]) < len(whole[1])
    expect(button).to_have_accessible_name("Play")
    pace(page, "real time")
    page.keyboard.press("Space")
    page.wait_for_function("!TreeRace.view.playing")
    expect(button).to_have_accessible_name("Play again")
    expect(page.locator("[data-verdict]")).to_be_visible()
    assert state(page)["texts"] == whole
    assert [url for url in asked if "/alive?run=none" not in url] == []  # a sign of life asks for nothing


@pytest.mark.looks
def test_a_stopped_race_plays_to_where_it_was_stopped(page):
    play_two_lanes(page)
    page.evaluate("view => { view.result = null; view.over('stopped'); }", page.evaluate_handle("TreeRace.view"))
    expect(page.locator("#race [data-words]")).to_contain_text("Stopped")
    begun = "() => { const { view } = TreeRace; view.toggle(); return [view.playing, view.time]; }"
    assert page.evaluate(begun) == [True, 0]
    page.wait_for_function("!TreeRace.view.playing")
    assert state(page)["bursts"] == [2 * ROUNDS, ROUNDS]
    expect(page.locator("#race [data-words]")).to_contain_text("Stopped")


@pytest.mark.looks
def test_the_speeds_are_relative_to_a_race_of_ten_seconds_and_to_real_time(page):
    play_two_lanes(page)
    fitting = 10 / 0.12
    page.evaluate("rate => TreeRace.view.speeds.suggest(rate)", fitting)
    for key, (speed, times) in enumerate(SPEEDS.items(), 1):
        page.keyboard.press(str(key))
        expect(page.get_by_role("radio", name=speed, exact=True)).to_be_checked()
        rate = page.evaluate("TreeRace.view.speeds.rate")
        assert rate == pytest.approx(fitting / times if times else 1)
        words = "about 1/83 of real time; clocks as measured" if times == 1 else None if times else "real time"
        if words:
            expect(page.locator("[data-pace]")).to_have_text(words)


def test_a_race_behind_its_story_takes_the_pace_of_all_that_has_come(page):
    """Its first message came before its first step and told real time: the story over, the race would be gone in a blink."""
    first, last = [json.loads(event) for event in events(FakeRace(two_lanes()))]
    page.evaluate("sessionStorage.clear()")
    for event in (first | {"slowdown": 1.0}, last):
        page.evaluate("event => TreeRace.view.race.show(event)", event)
    assert page.evaluate("TreeRace.view.slowStart.isTelling")
    page.keyboard.press("Escape")
    assert not page.evaluate("TreeRace.view.slowStart.isTelling")
    assert page.evaluate("TreeRace.view.speeds.fitting") == last["slowdown"] > 50


def test_the_clocks_follow_the_speed(page):
    """A frame at a time, by hand: two hundredths of a second on the page, where the race begins and where half of it is over."""
    play_two_lanes(page)
    passed = page.evaluate(
        """() => {
          const { view } = TreeRace;
          const loop = window.requestAnimationFrame;
          window.requestAnimationFrame = () => 0;
          view.speeds.suggest(100);
          return [['½×', 0], ['1×', 0], ['2×', 0], ['1×', 0.06], ['real time', 0]].map(([speed, from]) => {
            for (const radio of view.speeds.radios) radio.checked = radio.value === speed;
            view.player.seek(from);
            view.player.play();
            view.player.last = 0;
            view.player.frame(20);
            return view.time - from;
          });
        }"""
    )
    half = 0.4 + 1.61 / 2
    assert passed == pytest.approx([0.4 * 0.0001, 0.4 * 0.0002, 0.4 * 0.0004, half * 0.0002, 0.02], rel=0.01)


@pytest.mark.looks
def test_every_part_shows_the_step_that_is_chosen(page):
    play_two_lanes(page)
    page.locator(".lane.right .burst").nth(4).click()
    right = state(page)
    assert (right["step"], right["focus"], right["bursts"]) == (4, 1, [10, 5])
    assert "fox4" in right["sentence"] and right["place"] == f"step 5 of {ROUNDS}" and right["scrub"] == "4"
    assert (right["nodes"], right["rows"]) == (7, 6)
    page.locator(".lane.left .burst").nth(6).click()
    left = state(page)
    assert (left["step"], left["focus"], left["bursts"]) == (6, 0, [7, 3])
    assert left["sentence"].startswith("No guesses") and left["place"] == f"step 7 of {2 * ROUNDS}"
    assert (left["nodes"], left["rows"]) == (2, 1)
    page.keyboard.press("End")
    assert state(page)["bursts"] == [2 * ROUNDS, ROUNDS]
    page.keyboard.press("Home")
    assert state(page)["bursts"] == [1, 0]


# ---- smoothness


def test_a_race_is_smooth_and_nothing_jumps(page):
    """A frame takes the processor for less than a twentieth of a second."""
    page.evaluate(LAYOUT_SHIFTS)
    race(page, tokens=40)
    pace(page, "½×")
    page.locator("[data-play]").click()
    page.wait_for_function("TreeRace.view.playing")
    with traced(page) as tasks:
        frames = page.evaluate(FRAMES)
    assert tasks and sum(tasks) < frames / 20
    assert page.evaluate("shifts.reduce((sum, each) => sum + each, 0)") < 0.005


@pytest.mark.looks
def test_a_race_that_runs_again_tells_its_first_result_and_then_the_median(page):
    """The first run's verdict stands until the last event brings the median, and the times of the run that is shown."""
    *before, last = [json.loads(event) for event in events(FakeRace(two_lanes()))]
    last |= {**RESULT, "lanes": [{"tokens": 36}] * 2}  # long enough to say how fast
    first = {**last, "again": True, "speedup": 2.5, "least": 2.5, "most": 2.5, "seq": last["seq"]}
    del first["end"]
    last.pop("steps", None)  # they came with the first run's result
    send = "event => TreeRace.view.race.show(event)"
    for event in (*before, first):
        page.evaluate(send, event)
    page.wait_for_selector("[data-race][data-state=done]")
    runs = page.locator("#race [data-runs]")
    expect(page.locator("[data-outcome]")).to_have_text("2.5× faster")
    branches = "No branch won here: its favourites alone would have kept as much."
    expect(runs).to_have_text(re.compile(rf"^{branches} .*\. The first run; it runs again, unseen, for a median\.$"))
    slower = [[0.02 * (at + 1), {"verify": 0.02}] for at in range(2 * ROUNDS)]
    faster = [[0.01 * (at + 1), {"verify": 0.01}] for at in range(ROUNDS)]
    median = {"runs": [[0.24, 0.12]] * 3, "least": 1.9, "most": 2.2, "times": [slower, faster], "seq": last["seq"] + 1}
    page.evaluate(send, {**last, **median})
    expect(page.locator("[data-outcome]")).to_have_text("2.0× faster")
    expect(runs).to_have_text(re.compile(rf"^{branches} .*\. 1\.9 to 2\.2 in 3 runs\.$"))
    assert page.evaluate("TreeRace.view.lanes.map((lane) => lane.lastTime)") == pytest.approx([0.48, 0.12])
    page.evaluate("event => TreeRace.view.feed(event)", {**last, **median, "disturbed": "Disturbed: so it was."})
    expect(runs).to_have_text(re.compile(r"\. 1\.9 to 2\.2 in 3 runs\. Disturbed: so it was\.$"))
