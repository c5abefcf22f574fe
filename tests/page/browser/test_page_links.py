"""Links to a race, in a real Chromium."""

import pytest
from playwright.sync_api import expect

from engine.page.screens.answers import OPENING_SHAPE
from helpers.page import choose, dial, finish, menu, race


def test_a_link_restores_everything(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    choose(page, 0, "prompt lookup")
    dial(page, "number input for Depth", 2)
    dial(page, "number input for Temperature", 0.4)
    dial(page, "Seed", 12345)
    race(page, "Story: a & b <i> #1 100%")
    menu(page)
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    link = page.get_by_label("Link to a race").input_value()
    assert page.evaluate("navigator.clipboard.readText()") == link
    before = page.evaluate("TreeRace.view.systems.map(({ trace }) => ({ ...trace, hardware: '' }))")
    page.goto(link)
    expect(page.get_by_label("Seed", exact=True)).to_have_value("12345")
    expect(page.locator("#prompt textarea")).to_have_value("Story: a & b <i> #1 100%")
    page.wait_for_function(
        "TreeRace.view.recorded === null && TreeRace.view.result"
    )  # it names a step, so it races by itself
    finish(page)
    assert page.evaluate("TreeRace.view.systems.map(({ trace }) => ({ ...trace, hardware: '' }))") == before


def test_a_link_comes_back_to_its_step_and_its_form_outlives_back_and_forward(page, server):
    race(page, "Story: One day a fox", 24)
    page.evaluate("TreeRace.view.go(2)")
    page.wait_for_url("**step=3**")
    text = page.evaluate("TreeRace.view.steps[2].texts")
    link = page.url
    page.goto(f"{server}readiness")  # somewhere else
    page.goto(link)
    page.wait_for_function("TreeRace.view?.result && TreeRace.view.recorded === null && !TreeRace.view.playing")
    page.evaluate("TreeRace.view.skip()")
    page.wait_for_function("TreeRace.view.step === 2")
    assert page.evaluate("TreeRace.view.steps[2].texts") == text
    page.goto(f"{server}readiness")  # somewhere else
    page.go_back()
    expect(page.locator("#prompt textarea")).to_have_value("Story: One day a fox")
    page.wait_for_function("TreeRace.view?.systems[0]?.trace.prompt === 'Story: One day a fox'")


def test_a_link_without_a_step_begins_with_a_recorded_example(page, server):
    page.goto(f"{server}?right=lookup&tokens=12&seed=5")
    page.wait_for_function("TreeRace.view?.recorded")
    expect(page.get_by_label("Seed", exact=True)).to_have_value("5")


def test_a_link_to_a_mix_keeps_its_shape(page, server):
    page.goto(f"{server}?right=bigram/kary/token_match&depth=2&width=3&nodes=9&tokens=16")
    expect(page.locator(".right [data-badge]")).to_have_text("same tokens")
    expect(page.locator(".right [data-its-name]")).to_have_text("bigram/kary/token_match")
    expect(page.locator(".right [data-card]")).to_be_hidden()
    expect(page.get_by_label("number input for Depth", exact=True)).to_have_value("2")
    page.click("#race-go")
    page.wait_for_function("TreeRace.view.recorded === null && TreeRace.view.result")
    assert page.evaluate("TreeRace.view.systems[1].name") == "bigram/kary/token_match"
    trace = page.evaluate("TreeRace.view.systems[1].trace")
    assert (trace["depth"], trace["width"], trace["nodes"]) == (2, 3, 9)


@pytest.mark.parametrize("wrong", ["nodes=9999", "right=<img src=x onerror=window.__hostile=1>"])
def test_a_wrong_link_is_a_sentence_and_leaves_the_rest(page, server, wrong):
    page.goto(f"{server}?{wrong}&seed=77")
    expect(page.locator("[data-notice]")).to_contain_text("Nodes must be" if "nodes" in wrong else "Unknown system")
    expect(page.get_by_label("Seed", exact=True)).to_have_value("77")
    expect(page.locator("#dials").get_by_label("Nodes", exact=True)).to_have_value(str(OPENING_SHAPE["nodes"]))
    assert page.evaluate("window.__hostile") is None
