"""The guided walk in a real Chromium: every page of it, what it recognises, and what is broken on purpose."""

import io

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from engine.breaks import BREAKS
from engine.page.screens.answers import CURVES as CURVE_FILE
from helpers.families import daily
from helpers.page import HOSTILE, IMAGE, PATIENCE, RESULT, choose, dial, finish, pace, path_is_legible, play, shown_step
from helpers.traces import bushy, make_step, one_node

PAGES = 12
CONTROLS = "[...document.querySelectorAll('#prompt textarea, #systems input, #dials input[type=number]')].map((each) => each.value)"
FADED_IN = """async () => {
  for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame); // a new style begins its animation in the first
  await Promise.all(document.getAnimations().map((each) => each.effect.getComputedTiming().endTime < Infinity && each.finished));
}"""
# The sides of what a page of the walk lights up, and of the ring around it.
LIT = """() => [TreeRace.walk.page.lit, '[data-ring]'].map((each) => (({ left, top, right, bottom }) =>
  [left, top, right, bottom])(document.querySelector(each).getBoundingClientRect()))"""
IS_LIT = f"() => {{ const [lit, ring] = ({LIT})(); return lit.every((side, at) => Math.abs(side - ring[at]) <= 8); }}"
SETTLED = "() => !TreeRace.controls.busy"
# Presses Cancel at the first progress, because the rest may be measured before a click from here arrives.
CANCELS = """() => void new MutationObserver((_, seen) => {
    const bar = document.querySelector(".walk-result progress");
    const button = [...document.querySelectorAll("button")].find((each) => each.textContent === "Cancel");
    if (bar?.value && button) { seen.disconnect(); button.click(); }
}).observe(document.body, { attributes: true, childList: true, subtree: true })"""


def card(page: Page):
    return page.get_by_role("complementary", name="Guided walk")


def open_walk(page: Page) -> None:
    page.get_by_role("button", name="Learn", exact=True).click()
    expect(card(page)).to_be_visible()
    page.wait_for_function(SETTLED)


def go(page: Page, number: int) -> None:
    card(page).get_by_role("button", name=f"Page {number}: ").click()
    page.wait_for_function(SETTLED)


def is_done(page: Page) -> None:
    expect(card(page).locator("[data-done]")).to_have_text("done ✓")


def show_a_race(page: Page, **changes) -> None:
    """A made-up race, so that a page that needs a tree has one; the left lane has none."""
    lanes, step = [{"tokens": 3, "tau": 1.0}, {"tokens": 3, "tau": 3.0}], make_step(**{"end": "length", **changes})
    play(page, [(0, one_node(burst=[99], end="length")), (1, make_step()), (1, step)], **{**RESULT, "lanes": lanes})


def test_the_walk_goes_from_the_first_page_to_the_last_and_puts_everything_back(page):
    dial(page, "number input for Temperature", 0.4)
    before, size = page.evaluate(CONTROLS), page.evaluate("document.documentElement.scrollHeight")
    open_walk(page)
    assert page.evaluate(CONTROLS) != before
    titles = []
    for number in range(1, PAGES + 1):
        expect(card(page).locator("[data-place]")).to_have_text(f"Learn · {number} of {PAGES}")
        titles.append(card(page).get_by_role("heading").text_content())
        page.wait_for_function(SETTLED)
        if number == 1:
            shown = page.evaluate("TreeRace.view.run")
            page.click("#race-go")
            page.wait_for_function("shown => TreeRace.view.run !== shown && TreeRace.view.result", arg=shown)
            finish(page)
            is_done(page)
        if number == 2:
            page.locator(".lane.right .burst").nth(2).click()
            is_done(page)
        page.wait_for_function(IS_LIT)
        [_, ring], whole = page.evaluate(LIT), page.evaluate("document.documentElement.scrollHeight")
        assert 0 <= ring[0] < ring[2] <= 1280 and 0 <= ring[1] < ring[3] <= 720 and whole == size
        dock = card(page).bounding_box()
        assert dock["x"] + dock["width"] <= ring[0], f"page {number}: the card hides what is lit"
        card(page).locator("[data-next]").click()
    assert len(set(titles)) == PAGES
    expect(card(page)).to_be_hidden()
    expect(page.locator("[data-light]")).to_be_hidden()
    page.wait_for_function(SETTLED)
    assert page.evaluate(CONTROLS) == before
    expect(page.get_by_role("button", name="Learn", exact=True)).to_be_focused()
    assert "learn" not in page.url


CURVES = {3: "chain", 9: "nodes", 10: "temperature", 11: "batch"}  # by page
TREES = {3: [13, 13], 9: [4, None, 64], 10: [], 11: []}  # how many nodes are drawn at most; None: the fastest tree's


def test_the_curves_are_there_at_once_and_name_their_finding(page):
    open_walk(page)
    panel = page.locator("[data-curve].curve")
    for number, curve in CURVES.items():
        go(page, number)
        expect(panel.locator("[data-curve-finding]")).to_have_text(CURVE_FILE[curve]["finding"])
        expect(panel.locator("[data-curve-origin]")).to_contain_text("recorded on 2 CPU cores, AMD EPYC")
        expect(panel.locator(".curve-drawing .line")).not_to_have_count(0)
        assert panel.locator(".curve-trees .canvas").count() == len(TREES[number])
        expect(page.locator("#race-go")).to_be_hidden()
        boxes = [part.bounding_box() for part in panel.locator(".plot, .curve-foot, .curve-finding").all()]
        assert all(box["x"] + box["width"] <= 1280 and box["y"] + box["height"] <= 720 for box in boxes), curve
    go(page, 4)
    expect(panel).to_be_hidden()
    expect(page.locator("#race-go")).to_be_visible()


def test_a_curve_measured_here_is_drawn_over_the_recorded_one(page):
    """The messages are made up: a measurement takes minutes."""
    open_walk(page)
    go(page, 9)
    lines = page.locator("[data-curve-second] .line")
    expect(lines).to_have_count(1)
    point = {"x": 2, "tau": 1.5, "speedup": 9.0, "identical": True, "disturbed": ""}
    about = {"curve": "nodes", "axis": "nodes", "tokens": 8, "pair": "mine", "hardware": "my machine"}
    line = {"title": "draft tree", "text": "", "points": []}
    messages = [
        {"start": True, **about, "lines": [line], "done": 0},
        {"point": point, "line": 0, "done": 0.5},
        {"point": {**point, "x": 4, "speedup": 11.0}, "line": 0, "done": 1},
        {"end": True, **about, "lines": [{**line, "points": [point, {**point, "x": 4, "speedup": 11.0}]}],
         "finding": HOSTILE[0], "trees": [], "done": 1},
    ]  # fmt: skip
    page.evaluate(
        "all => all.forEach((each, at) => TreeRace.walk.curve.run.show({ ...each, run: 'mine', seq: at + 1 }))",
        messages,
    )
    expect(lines).to_have_count(2)
    expect(page.locator("[data-curve-second] .line.before")).to_have_count(1)
    expect(page.locator("[data-curve-second] .peak")).to_have_text("4 nodes: 11.0×")
    expect(page.locator("[data-curve-finding]")).to_have_text(HOSTILE[0])
    expect(page.locator("[data-curve-origin]")).to_contain_text("Measured here: mine, my machine.")
    is_done(page)


def test_one_press_measures_a_curve_and_another_stops_it(page):
    open_walk(page)
    go(page, 9)
    button = page.locator("[data-curve-measure]")
    button.click()
    expect(button).to_have_text("Stop")
    stop = "button => TreeRace.walk.curve.measured?.lines[0].points.length && (button.click(), true)"
    page.wait_for_function(stop, arg=button.element_handle(), timeout=PATIENCE)
    expect(page.locator("[data-curve-origin]")).to_contain_text("Stopped")
    expect(button).to_have_text("Measure on this machine")


def test_the_tree_comes_by_itself_without_a_race_and_race_is_free(page):
    play(page, [(lane, one_node(burst=[99], end="length")) for lane in (0, 1)], **RESULT)  # without any branch
    open_walk(page)
    go(page, 4)
    page.wait_for_function("TreeRace.view.recorded && TreeRace.view.systems[1].name === 'tree'")
    assert page.evaluate("!TreeRace.view.isLive")
    page.locator("#dials").get_by_label("Nodes").fill("16")
    page.click("#race-go")
    page.wait_for_function("TreeRace.view.recorded === null && TreeRace.view.result")
    assert page.evaluate("TreeRace.view.systems[1].trace.nodes") == 16
    finish(page)
    is_done(page)
    expect(card(page).locator(".walk-bar > :first-child").last).to_have_text("draft tree, 15 guesses")


def test_back_and_forward_go_between_learn_the_screens_and_their_pages(page):
    open_walk(page)
    go(page, 4)
    page.get_by_role("button", name="Grand prix").click()
    assert "screen=prix" in page.url and "learn=4" in page.url
    page.go_back()
    expect(card(page).locator("[data-place]")).to_have_text(f"Learn · 4 of {PAGES}")
    expect(card(page)).to_be_visible()
    page.go_back()
    expect(card(page)).to_be_hidden()
    page.go_forward()
    expect(card(page).get_by_role("heading")).to_have_text("A tree keeps several futures")
    page.go_forward()
    expect(page.locator("[data-prix]")).to_be_visible()


def test_a_link_opens_the_page_and_what_is_there_to_try_is_seen(page, server):
    page.wait_for_load_state("networkidle")  # Gradio complains of requests that a page leaves behind
    page.goto(f"{server}?learn=5")
    expect(card(page).get_by_role("heading")).to_have_text("The mask keeps branches apart")
    show_a_race(page)
    expect(page.locator("[data-mask]")).to_be_visible()
    expect(card(page).locator("[data-picture]")).to_contain_text("·little sees")
    page.hover("[data-mask] .row >> nth=0", force=True)
    is_done(page)
    expect(card(page).locator(".cell")).to_have_text(["the text so far", "·was"])
    card(page).get_by_role("button", name="Next row").click()
    expect(card(page).locator(".cell")).to_have_text(["the text so far", "·was", "·a"])
    expect(page.locator("[data-tree] g.node.lit")).to_have_count(2)
    expect(page.locator("[data-mask] .row.lit")).to_have_count(1)
    expect(card(page).get_by_role("button", name="Next row")).to_be_focused()

    go(page, 6)
    rows = card(page).locator("tbody tr")
    assert [row.split("\t") for row in rows.all_inner_texts()] == [
        ["·was", "0", "0", "7"], ["·a", "1", "1", "8"], ["·the", "2", "1", "8"],
        ["·big", "3", "2", "9"], ["·little", "4", "2", "9"], ["·end", "5", "2", "9"],
    ]  # fmt: skip
    expect(card(page).locator("[data-done]")).to_be_empty()
    rows.nth(2).focus()
    is_done(page)
    expect(page.locator("[data-tree] g.node.lit")).to_have_count(2)  # the second guess, and the root

    go(page, 7)
    expect(card(page).locator(".cell")).to_have_text(["■ ·a", "■ ·little", "◆ ·fox"])
    page.get_by_text("Drafter’s view", exact=True).click()
    is_done(page)

    go(page, 8)
    kept, dropped = card(page).locator(".cell.kept"), card(page).locator(".cell.dropped")
    expect(kept).to_have_text(["·was", "·a", "·little"] * 2)
    expect(dropped).to_have_text(["·the", "·big", "·end"])
    assert shown_step(page) == 0
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    assert shown_step(page) == 1
    is_done(page)
    assert "learn=8" in page.url


def test_the_keys_of_the_walk_leave_the_arrows_to_the_steps(page):
    show_a_race(page)
    open_walk(page)
    place = card(page).locator("[data-place]")
    page.keyboard.press("PageDown")
    expect(place).to_have_text(f"Learn · 2 of {PAGES}")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert shown_step(page) == 1
    page.keyboard.press("PageUp")
    expect(place).to_have_text(f"Learn · 1 of {PAGES}")
    page.focus("#prompt textarea")
    page.keyboard.press("PageDown")
    expect(place).to_have_text(f"Learn · 1 of {PAGES}")
    card(page).locator("[data-next]").focus()
    page.keyboard.press("Escape")
    expect(card(page)).to_be_hidden()


def test_the_card_tells_a_step_as_a_story_on_which_the_walks_light_does_not_lie(page):
    show_a_race(page)
    open_walk(page)
    go(page, 5)
    button, story = (
        card(page).get_by_role("button", name="See this step as a story"),
        page.locator("[data-race] > [data-story]"),
    )
    button.focus()
    page.keyboard.press("Enter")
    expect(story).to_be_visible()
    page.keyboard.press("Space")
    page.evaluate(FADED_IN)
    box = story.bounding_box()
    corner = {"x": box["x"] + 6, "y": box["y"] + box["height"] / 3, "width": 1, "height": 1}
    shot = Image.open(io.BytesIO(page.screenshot(clip=corner))).convert("RGB")
    assert shot.getpixel((0, 0)) == (255, 255, 255)  # the surface's own colour
    page.keyboard.press("Escape")
    expect(story).to_be_hidden()
    expect(card(page)).to_be_visible()
    expect(button).to_be_focused()
    page.keyboard.press("Escape")
    expect(card(page)).to_be_hidden()


def test_what_the_visitor_changed_during_the_walk_stays(page):
    choose(page, 1, "bigram tree")
    open_walk(page)
    page.fill("#prompt textarea", "Story: my own")
    card(page).get_by_role("button", name="Close the walk").click()
    page.wait_for_function("document.querySelectorAll('#systems input')[1].value === 'bigram tree'")
    assert page.input_value("#prompt textarea") == "Story: my own"


def test_tokens_on_the_card_are_never_markup(page):
    open_walk(page)
    go(page, 8)
    show_a_race(page, texts=[" was", *HOSTILE], bonus_text=IMAGE)
    page.locator("h1").click()
    page.keyboard.press("End")
    for number in (5, 6, 7, 8):
        go(page, number)
        page.keyboard.press("End")
        expect(card(page).locator("[data-picture]")).to_contain_text("<")
    assert page.evaluate("window.__hostile") is None and card(page).locator("img, [data-picture] a").count() == 0


def test_words_of_a_deep_tree_are_legible_beside_the_walk(page):
    open_walk(page)
    step = bushy(12, 9, end="length")
    lanes = [{"tokens": 3, "tau": 1.0}, {"tokens": 3, "tau": 3.0}]
    for width, height in ((1280, 720), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        play(page, [(0, one_node(burst=[99], end="length")), (1, step)], **{**RESULT, "lanes": lanes})
        expect(page.locator("[data-tree] g.node")).to_have_count(13)
        path_is_legible(page.locator("[data-tree]"), step)


@pytest.mark.parametrize("name", daily(BREAKS, "mask", "acceptance"))
def test_what_is_broken_on_purpose_parts_from_the_right_text_and_is_measured(page, name):
    show_a_race(page)
    open_walk(page)
    pace(page, "real time")
    go(page, PAGES)
    before = page.evaluate(CONTROLS)
    switch = card(page).get_by_role("switch", name=BREAKS[name].title)
    switch.click()
    page.wait_for_function("TreeRace.view.systems[1]?.name.includes('!') && TreeRace.view.result")
    assert page.evaluate("TreeRace.view.systems.map(({ name }) => name)") == ["tree", f"tree!{name}"]
    finish(page)
    left, right = page.locator("[data-bursts]").all_text_contents()
    assert left != right
    expect(page.locator(".burst.parted")).to_have_count(2)
    expect(page.locator(".lane.right [data-badge]")).to_have_accessible_name(
        f"lossy: about draft tree, {BREAKS[name].title} (broken)"
    )
    expect(card(page).locator(".walk-says")).to_contain_text("The texts part at token")
    expect(card(page).locator(".walk-sentence")).not_to_be_empty()
    page.wait_for_function("TreeRace.runs.on.distance.state === 'done'")  # or it counts as failed a few seconds later
    broken, sound = (float(card(page).locator(f".walk-bar.{kind} > b").text_content()) for kind in ("wrong", "right"))
    assert broken > 3 * sound and broken > 0.001
    assert card(page).locator(".walk-result tbody tr").count() >= 1
    switch.click()
    expect(switch).not_to_be_checked()
    page.wait_for_function(SETTLED)
    assert page.evaluate(CONTROLS) == before
    assert page.evaluate("TreeRace.view.systems.map(({ name }) => name)") == ["vanilla", "tree"]
    expect(page.locator("#systems input").first).to_be_visible()


def test_a_measurement_can_be_cancelled_and_the_break_switched_off(page):
    show_a_race(page)
    open_walk(page)
    pace(page, "real time")
    go(page, 5)
    before, _ = page.evaluate(CONTROLS), page.evaluate(CANCELS)
    card(page).get_by_role("switch", name=BREAKS["mask"].title).click()
    expect(card(page).locator(".walk-result")).to_contain_text("Stopped")
    card(page).locator("[data-next]").click()
    expect(card(page).get_by_role("heading")).to_have_text("Positions go by depth")
    page.wait_for_function(SETTLED)
    assert page.evaluate(CONTROLS) == before
    expect(card(page).locator("tbody tr")).to_have_count(6)
