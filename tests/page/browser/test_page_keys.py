"""Keys: each screen has its own, controls keep the ones they use, and a list shows them all."""

import pytest
from playwright.sync_api import expect

from helpers.page import pace, play_two_lanes, shown_step, state


@pytest.mark.looks
def test_the_race_has_its_keys_on_its_own_screen_only(page):
    play_two_lanes(page)
    page.keyboard.press("Home")
    for screen in ("prix", "lab"):
        page.evaluate("name => TreeRace.screens.showScreen(name)", screen)
        for key in ("ArrowRight", "End", "Space", "4"):
            page.keyboard.press(key)
        assert shown_step(page) == 0 and not state(page)["playing"]
        assert page.evaluate("TreeRace.view.speeds.rate") == 1
        dark = page.evaluate("document.body.classList.contains('dark')")
        page.keyboard.press("d")
        assert page.evaluate("document.body.classList.contains('dark')") != dark
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        page.keyboard.press("Escape")
    page.evaluate("TreeRace.screens.showScreen('race')")
    page.keyboard.press("ArrowRight")
    assert shown_step(page) == 1


@pytest.mark.looks
def test_controls_keep_the_keys_that_they_use(page):
    play_two_lanes(page)
    page.keyboard.press("Home")
    dark = page.evaluate("document.body.classList.contains('dark')")
    page.fill("#prompt textarea", "")
    page.locator("#prompt textarea").press_sequentially("fd? 4")
    assert page.input_value("#prompt textarea") == "fd? 4"
    assert page.evaluate("document.body.classList.contains('dark')") == dark
    expect(page.locator("[data-stage]")).to_have_count(0)
    page.get_by_role("radio", name="2×", exact=True).focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="real time", exact=True)).to_be_checked()
    page.locator(".right [data-badge]").focus()
    page.keyboard.press("Space")
    expect(page.locator(".right [data-card]")).to_be_visible()
    page.keyboard.press("Escape")
    assert shown_step(page) == 0 and not state(page)["playing"]


@pytest.mark.looks
def test_after_a_click_on_a_speed_the_keys_are_the_races(page):
    play_two_lanes(page)
    page.keyboard.press("Home")
    page.locator("#race").get_by_text("1×", exact=True).click()
    page.keyboard.press("ArrowRight")
    assert shown_step(page) == 1
    expect(page.get_by_role("radio", name="1×", exact=True)).to_be_checked()
    pace(page, "½×")
    page.locator("#race [data-next]").click()
    page.keyboard.press("Space")
    page.wait_for_function("TreeRace.view.playing")


@pytest.mark.looks
def test_the_list_of_keys_opens_and_closes(page):
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    listed = dialog.locator("kbd").all_text_contents()
    assert {"Space", "←", "→", "Home", "End", "1", "2", "3", "4", "?", "F", "D"} <= set(listed)
    page.keyboard.press("f")
    expect(page.locator("[data-stage]")).to_have_count(0)
    page.keyboard.press("?")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="What am I looking at?").click()
    page.get_by_role("button", name="the keys").click()
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
