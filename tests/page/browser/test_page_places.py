"""What stands where, in a real Chromium: on a phone, on a stage and under the keys, and what a screen begins with."""

import pytest
from playwright.sync_api import expect

from helpers.page import dial, idle, open_view, play_two_lanes, race, whole

PHONE = {"width": 390, "height": 844}
INSIDE = """selector => [...document.querySelectorAll(selector)].map((at) => {
  const [own, ...parts] = [at, ...at.children].map((each) => each.getBoundingClientRect());
  const holds = ({ left, right, top, bottom }) =>
    left >= own.left - 1 && right <= own.right + 1 && top >= own.top - 1 && bottom <= own.bottom + 1;
  return parts.every(holds) && at.scrollWidth <= at.clientWidth + 1;
})"""


def test_on_a_phone_both_lanes_stand_in_the_first_screen_with_three_lines_each(browser, server):
    context = browser.new_context(viewport=PHONE)
    tab = context.new_page()
    tab.goto(server)
    tab.wait_for_function("window.TreeRace?.view?.result")
    whole(tab)
    for side in ("left", "right"):
        box = tab.locator(f".lane.{side}").bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= PHONE["height"], side
        line = tab.evaluate(f"parseFloat(getComputedStyle(document.querySelector('.lane.{side} .text')).lineHeight)")
        assert tab.locator(f".lane.{side} .text").bounding_box()["height"] >= 3 * line - 1
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(tab.locator(".plot .legend .accepted")).to_be_visible()
    tab.click("button[data-learn]")
    again = tab.locator("[data-walk-race]")
    expect(again).to_be_visible()
    before = tab.evaluate("TreeRace.view.run")
    tab.wait_for_function("!TreeRace.controls.busy")
    again.click()
    tab.wait_for_function("run => TreeRace.view.run !== run && TreeRace.view.recorded === null", arg=before)
    context.close()


@pytest.mark.looks
def test_tab_goes_over_both_menus_of_systems_and_leaves_no_list_open(page):
    page.focus("#race-halt")
    for side in ("left", "right"):
        page.keyboard.press("Tab")
        expect(page.get_by_label(f"System of the {side} lane")).to_be_focused()
        expect(page.locator("#systems [role=listbox]")).to_have_count(1)
    page.keyboard.press("Tab")
    expect(page.locator("#systems [role=listbox]")).to_have_count(0)
    expect(page.locator(".lane.left [data-badge]")).to_be_focused()


@pytest.mark.looks
def test_a_badge_holds_its_words_and_its_mark_whatever_is_chosen_next(page):
    play_two_lanes(page)
    page.evaluate("TreeRace.controls.change(() => ({ right: 'chain', left: 'medusa-typical' }))")
    expect(page.locator(".lane.right [data-badge] span")).to_have_text("same distribution")
    assert page.evaluate(INSIDE, ".badge") == [True, True]
    for room in ((1280, 720), (1920, 1080)):
        page.set_viewport_size({"width": room[0], "height": room[1]})
        badge, speed = (page.locator(f".lane.right {part}").bounding_box() for part in ("[data-badge]", "[data-speed]"))
        assert badge["x"] + badge["width"] <= speed["x"] + 1


def test_a_stage_has_three_dials_with_buttons_and_keys(page):
    play_two_lanes(page)
    expect(page.locator("[data-stage-dials]")).to_be_hidden()
    dial(page, "Nodes", 8)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("f")
    shown = page.locator(".stage-dial b")
    expect(shown.nth(0)).to_have_text("8")
    assert page.evaluate("parseFloat(getComputedStyle(document.querySelector('.stage-dial b')).fontSize)") >= 20
    page.keyboard.press("i")
    expect(shown.nth(0)).to_have_text("12")
    page.get_by_role("button", name="More: Temperature").click()
    expect(shown.nth(2)).to_have_text("0.2")
    depth = int(shown.nth(1).text_content())
    page.keyboard.press("j")
    expect(shown.nth(1)).to_have_text(str(depth - 1))
    page.keyboard.press("Escape")
    expect(page.locator("#dials").get_by_label("Nodes")).to_have_value("12")
    expect(page.get_by_label("number input for Temperature", exact=True)).to_have_value("0.2")
    expect(page.get_by_label("number input for Depth", exact=True)).to_have_value(str(depth - 1))


def test_lab_and_grand_prix_begin_with_a_recorded_example(page):
    page.get_by_role("button", name="Lab", exact=True).click()
    expect(page.locator("[data-lab-words]")).to_contain_text("An example, 67M embedded pair, recorded on 2 CPU cores")
    assert page.evaluate("TreeRace.sweep.measured.raced.length") > 20
    open_view(page, "pays")
    expect(page.locator("[data-lab-pays] [data-answer]")).not_to_be_empty()
    page.get_by_role("button", name="Grand prix").click()
    expect(page.locator("[data-prix-words]")).to_contain_text("An example, 67M embedded pair, recorded on 2 CPU cores")
    expect(page.locator("[data-prix-table] tbody tr")).not_to_have_count(0)


def test_both_questions_about_own_prompts_share_one_tab_and_one_file(page):
    page.get_by_role("button", name="Lab", exact=True).click()
    page.get_by_text("Your prompts", exact=True).click()
    expect(page.locator("[data-lab-pays]")).to_be_visible()
    page.locator("[data-lab-pays] [data-gallery]").click()
    page.get_by_text("prompt by prompt", exact=True).click()
    expect(page.locator("[data-lab-prompts] [data-about-file]")).to_contain_text("of this page")
    expect(page.locator("[data-lab-prompts] [data-rows] tr")).not_to_have_count(0)
    assert "lab=prompts" in page.url


@pytest.mark.looks
@pytest.mark.parametrize("address", ["screen=prix", "screen=lab&lab=prompts", "learn=9"])
def test_an_address_leads_to_its_screen(page, server, address):
    tab = idle(page, f"{server}?{address}")
    part = {"screen=prix": "[data-prix]", "learn=9": "[data-curve].curve"}.get(address, "[data-lab-prompts]")
    expect(tab.locator(part)).to_be_visible()
    tab.close()


@pytest.mark.looks
def test_the_form_of_the_last_race_stands_in_the_address(page):
    race(page, "Story: A kite & a hat", 12)
    assert page.evaluate("new URLSearchParams(location.search).get('prompt')") == "Story: A kite & a hat"
    assert page.evaluate("new URLSearchParams(location.search).get('tokens')") == "12"
