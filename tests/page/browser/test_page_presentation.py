"""Presentation mode: the race alone and larger."""

from playwright.sync_api import expect

from helpers.page import play_two_lanes, shown_step


def test_the_presentation_shows_the_race_alone_and_larger(page):
    for room in ((1280, 720), (1920, 1080)):
        is_alone_and_larger(page, *room)


def is_alone_and_larger(page, width: int, height: int) -> None:
    page.set_viewport_size({"width": width, "height": height})
    play_two_lanes(page)
    size = "parseFloat(getComputedStyle(document.querySelector('.right .text')).fontSize)"
    label = "parseFloat(document.querySelector('[data-tree] .label').getAttribute('font-size'))"
    before = page.evaluate(f"[{size}, {label}]")
    hidden = ["#entry", "#dials", "#systems", "[data-screens]", "[data-gallery]", "[data-theme]", "[data-help]"]
    for selector in hidden:
        expect(page.locator(selector).first).to_be_attached()
    page.keyboard.press("f")
    for selector in hidden:
        expect(page.locator(selector).first).to_be_hidden()
    expect(page.locator(".lane-name")).to_have_text(["Vanilla", "Tree"])
    page.wait_for_function(f"{label} > {before[1]}")
    assert page.evaluate(size) > 1.2 * before[0]
    for part in (
        ".lane-name >> nth=0",
        ".lanes",
        "[data-verdict]",
        "[data-tree]",
        "[data-mask]",
        ".scrub",
        "[data-sentence]",
    ):
        box = page.locator(part).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width, part
        assert box["y"] >= 0 and box["y"] + box["height"] <= height and box["height"] > 15, part
    cut = "[...document.querySelectorAll('.lane-head, .strip, .plot figcaption')].filter((at) => at.scrollWidth > at.clientWidth)"
    assert page.evaluate(f"{cut}.length") == 0
    page.keyboard.press("Escape")
    expect(page.locator("[data-stage]")).to_have_count(0)
    expect(page.locator("#dials")).to_be_visible()
    page.wait_for_function("document.fullscreenElement === null")


def test_the_presentation_has_a_button_and_does_without_full_screen(page):
    play_two_lanes(page)
    page.evaluate("() => { document.documentElement.requestFullscreen = () => Promise.reject(new TypeError('no')); }")
    button = page.get_by_role("button", name="Presentation mode")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#dials")).to_be_hidden()
    page.keyboard.press("?")
    page.keyboard.press("Escape")
    expect(page.locator("[data-stage]")).to_have_count(1)
    page.keyboard.press("Home")
    assert shown_step(page) == 0
    page.keyboard.press("f")
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#dials")).to_be_visible()
