"""Predict first, in a real Chromium on the embedded models: no race without a choice, and the reveal says who won and why."""

import json

from playwright.sync_api import expect

from engine.page.views import wire
from helpers.page import PATIENCE, dial, open_view, path_is_legible, until
from helpers.traces import FakeRace, bushy, made_race, one_node

VIEW = "[data-lab-predict]"
# What stands on the cards when the race begins. A short race may be over before a test could ask.
AT_THE_START = """() => { window.seen = []; const view = document.querySelector("[data-lab-predict]");
  new MutationObserver(() => { if (view.dataset.run === "running") window.seen.push([
    view.querySelectorAll("[data-won]").length, view.querySelectorAll("[name=predict]:disabled").length]); })
    .observe(view, { attributeFilter: ["data-run"] }); }"""


def test_the_visitor_chooses_then_the_trees_race_and_the_page_says_why(page):
    open_view(page, "predict")
    cards = page.locator(f"{VIEW} .guess")
    expect(cards).to_have_count(3)
    trees = [cards.nth(at).locator("g.node") for at in range(3)]
    for tree, nodes in zip(trees, (4, 8, 40), strict=True):
        expect(tree).to_have_count(nodes)
    assert [cards.nth(at).locator(".edge").count() for at in range(3)] == [3, 7, 39]
    page.click("#lab-go")
    expect(page.get_by_test_id("toast-body")).to_contain_text("Choose first which tree you think wins")
    expect(page.locator("[data-lab-words]")).to_have_text("Choose a tree first.")

    page.locator("[name=predict][value=medium]").check(force=True)
    expect(page.locator("[data-lab-words]")).to_have_text("You say the medium tree wins. Press Start.")
    dial(page, "New tokens", 48)
    page.evaluate(AT_THE_START)
    page.click("#lab-go")
    page.wait_for_selector(f"{VIEW}[data-run=done] [data-won=true]", timeout=PATIENCE)
    assert page.evaluate("window.seen[0]") == [0, 3]

    speeds = [float(each.rstrip("×")) for each in page.locator(f"{VIEW} .figures b").all_text_contents()]
    [winner] = page.locator(f"{VIEW} [data-won=true] > b").all_text_contents()
    assert dict(zip(("small", "medium", "large"), speeds, strict=True))[winner] == max(speeds)
    right = "You were right: the medium tree wins" if winner == "medium" else f"You said medium: the {winner} tree wins"
    expect(page.locator(f"{VIEW} [data-why]")).to_contain_text(right)
    expect(page.locator(f"{VIEW} [data-why]")).to_contain_text("tokens a round, for the time of")
    fits = "[document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollHeight <= innerHeight]"
    assert page.evaluate(fits) == [True, True]

    page.locator("[name=predict][value=small]").check(force=True)
    expect(page.locator(f"{VIEW} [data-why]")).to_have_text("")
    assert page.locator(f"{VIEW} [data-won]").count() == 0


def test_pointing_lights_a_path_in_a_sketch_and_says_more_of_a_tree_that_raced(page):
    open_view(page, "predict")
    tree, tip = page.get_by_role("img", name="A medium tree"), page.locator(f"{VIEW} > .tip")
    lit = tree.locator("g.node.lit")
    tree.locator("g.node").last.hover(force=True)
    expect(lit.first).to_be_attached()
    by_mouse = lit.count()
    assert tree.locator(".edge.lit").count() == by_mouse - 1 and tip.is_hidden()
    page.mouse.move(0, 0)
    expect(lit).to_have_count(0)
    tree.focus()
    page.keyboard.press("ArrowUp")
    expect(lit).to_have_count(by_mouse)
    assert not page.locator("[name=predict]:checked").count()
    step = next(step for lane, step in json.loads(wire.replay(made_race()))["steps"] if lane == 1)
    page.evaluate("step => TreeRace.predict.grow('medium', step)", step)
    expect(lit).to_have_count(0)
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    expect(lit).to_have_count(3)
    expect(tip).to_contain_text("·little")
    tree.click()
    expect(page.locator("[name=predict][value=medium]")).to_be_checked()
    expect(page.locator("[data-lab-words]")).to_have_text("You say the medium tree wins. Press Start.")


DRAWN_ANEW = """[...document.querySelectorAll(".guess svg")].every(
  (svg) => Number(svg.getAttribute("width")) === svg.parentElement.clientWidth)"""


def test_words_of_a_deep_tree_are_legible_in_its_card(page):
    open_view(page, "predict")
    deep = {size: bushy(nodes, 9, end="length") for size, nodes in (("medium", 12), ("large", 40))}
    for size, step in deep.items():
        race = FakeRace([(0, one_node(burst=[99], end="length")), (1, step)])
        assert list(race.run())
        page.evaluate(
            "([size, race]) => TreeRace.predict.grow(size, race.steps[1][1])",
            [size, json.loads(wire.replay(race.record()))],
        )
    for width, height in ((1280, 720), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        until(page, DRAWN_ANEW)
        for size, step in deep.items():
            path_is_legible(page.get_by_role("img", name=f"A {size} tree"), step)
