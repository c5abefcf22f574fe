"""Recorded races on the page: one plays when it opens, the menu offers them all."""

import re

import pytest
from playwright.sync_api import expect

from engine.lab import record_races
from engine.record.race_file import Record
from helpers.page import idle, pace, race, texts, whole

FIRST = Record.from_json(next(iter(sorted(record_races.RACES.glob("*.json")))).read_text("utf-8"))


@pytest.mark.looks
def test_the_page_opens_with_a_recorded_race_that_a_race_replaces(page, server):
    tab = idle(page, server)
    label = tab.locator("[data-recorded]")
    expect(label).to_contain_text(f"recorded on {FIRST.lanes[0].trace.hardware}, ")
    expect(label).to_contain_text(FIRST.recorded[:4])
    tab.wait_for_function("TreeRace.view.playing && TreeRace.view.time > 0")
    assert tab.evaluate("TreeRace.view.systems.map(({ name }) => name)") == ["vanilla", "tree"]
    expect(tab.locator(".lane.next")).to_have_count(0)
    whole(tab)
    assert texts(tab) == [FIRST.lanes[lane].trace.text for lane in (0, -1)]
    expect(tab.locator("[data-third-name]")).to_have_text(FIRST.lanes[1].title)  # the chain with as many guesses
    expect(tab.locator("[data-third-count]")).to_have_text(re.compile("^(\\d+) of \\1 tokens$"))
    expect(tab.locator("[data-verdict]")).to_contain_text("identical: ")
    pace(tab, "real time")
    race(tab, tokens=24)
    tab.wait_for_function("TreeRace.view.lanes[0].tokens === 24")
    expect(label).to_have_text("")
    tab.close()


@pytest.mark.looks
def test_without_motion_the_recorded_race_is_over_at_once(page, server):
    tab = idle(page, server, motion="reduce")
    expect(tab.locator("[data-verdict]")).to_contain_text("identical: ")
    assert tab.evaluate("!TreeRace.view.playing && TreeRace.view.atEnd")
    tab.close()


def test_the_menu_offers_every_recorded_race_and_sets_the_form(page):
    button = page.get_by_role("button", name="recorded", exact=True)
    for at, (_, _, system, settings) in enumerate(record_races.RECORDED.values()):
        button.click()
        choices = page.locator(".prompts:visible .prompt")
        expect(choices).to_have_count(len(record_races.RECORDED))
        choices.nth(at).click()
        page.wait_for_function("name => TreeRace.view.systems[1]?.name === name", arg=system)
        wanted = page.evaluate("TreeRace.view.systems[1].trace.prompt")
        page.wait_for_function("text => document.querySelector('#prompt textarea').value === text", arg=wanted)
        heat = page.get_by_label("number input for Temperature", exact=True)
        expect(heat).to_have_value(str(settings.get("temperature", 0)))
        expect(page.locator(".lane.next")).to_have_count(0)
