"""On a stage: a race, the next prompt and another system by keys alone, in presentation mode; a link that races by itself."""

import re

import pytest
from playwright.sync_api import expect

from helpers.page import dial, finish, open_view, play_two_lanes, shown_step

RUN = "TreeRace.view.run"


def new_race(page, press) -> None:
    """Does `press`, and waits until the server's race that it began is over."""
    before = page.evaluate(RUN)
    press()
    page.wait_for_function(f"{RUN} !== {before!r} && TreeRace.view.result".replace("None", "null"))
    page.evaluate("TreeRace.view.skip()")
    finish(page)


def test_the_keyboard_alone_races_in_presentation_mode(page):
    dial(page, "New tokens", 12)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("f")
    expect(page.locator("#race-go")).to_be_hidden()
    new_race(page, lambda: page.keyboard.press("r"))
    new_race(page, lambda: page.keyboard.press("Enter"))
    prompt = page.evaluate("TreeRace.view.systems[0].trace.prompt")
    new_race(page, lambda: page.keyboard.press("n"))
    assert page.evaluate("TreeRace.view.systems[0].trace.prompt") != prompt
    system = page.evaluate("TreeRace.view.systems[1].name")
    new_race(page, lambda: page.keyboard.press("ArrowDown"))
    other = page.evaluate("TreeRace.view.systems[1].name")
    new_race(page, lambda: page.keyboard.press("ArrowUp"))
    assert other != system == page.evaluate("TreeRace.view.systems[1].name")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert shown_step(page) == 1
    button = page.locator("[data-race-again]")
    expect(button).to_be_visible()
    new_race(page, button.click)
    page.keyboard.press("Escape")
    expect(page.locator("[data-stage]")).to_have_count(0)
    expect(button).to_be_hidden()


def test_escape_leaves_the_presentation_with_a_menu_open_and_a_click_opens_it_again(page):
    play_two_lanes(page)
    stage, card = page.locator("[data-stage]"), page.locator(".right [data-card]")
    page.keyboard.press("f")
    expect(stage).to_have_count(1)
    page.evaluate("document.querySelector('.right [data-badge]').click()")
    page.keyboard.press("Escape")
    expect(stage).to_have_count(0)
    expect(card).to_be_hidden()
    page.locator(".right [data-badge]").click()
    expect(card).to_be_visible()
    page.keyboard.press("f")
    page.keyboard.press("Escape")
    page.locator(".right [data-badge]").click()
    expect(card).to_be_visible()


@pytest.mark.parametrize("go", ["&go=1", ""])
def test_a_link_races_by_itself_where_it_says_so(page, server, go):
    page.goto(f"{server}?right=lookup&tokens=12&seed=5{go}")
    expect(page.get_by_label("Seed", exact=True)).to_have_value("5")
    if go:
        page.wait_for_function("TreeRace.view.result")
        assert page.evaluate("TreeRace.view.systems[1].name") == "lookup"
    else:
        page.wait_for_function("TreeRace.view.recorded")  # an example, until Race is pressed
        assert page.evaluate("!TreeRace.view.isLive")


def test_on_a_phone_the_verdict_stands_above_the_lanes(page):
    page.set_viewport_size({"width": 390, "height": 844})
    play_two_lanes(page)
    top = "(at) => document.querySelector(at).getBoundingClientRect().top"
    assert page.evaluate(top, "[data-verdict]") < page.evaluate(top, ".lane.left")


def test_learn_tells_of_the_lanes_prompt_and_its_badge_is_whole(page, server):
    page.goto(server)
    page.wait_for_function("window.TreeRace?.view?.result")
    page.click("[data-learn]")
    recorded = page.evaluate("TreeRace.view.systems[0].trace.prompt")
    expect(page.locator("#prompt textarea")).to_have_value(recorded)
    page.wait_for_function("!TreeRace.controls.busy")
    badge = page.locator(".lane.left [data-badge]")  # the right one says which system is next
    box = badge.bounding_box()
    assert abs(box["width"] - box["height"]) < 4  # a round mark, no empty oval


def test_what_pays_without_a_file_are_the_pages_own_prompts(page):
    open_view(page, "pays")
    page.locator("[data-lab-pays] [data-systems]").select_option("lookup")
    page.click("#lab-go")
    expect(page.locator("[data-lab-pays] [data-about-file]")).to_contain_text("prompts of this page")
    expect(page.locator("[data-lab-pays]")).to_have_attribute("data-run", re.compile("asked|running"))
    page.click("#lab-halt")
