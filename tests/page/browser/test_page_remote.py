"""A lane that another server wrote, on the page: its text, what is said of it, and that there is no tree to look into."""

import json

import pytest
from playwright.sync_api import Page, expect

from engine.page.views import wire
from helpers.page import HOSTILE, finish, menu
from helpers.traces import remote_race


def show(page: Page, record) -> None:
    page.evaluate("event => TreeRace.view.race.show(event)", json.loads(wire.serialise_whole_race_as_event(record)))
    finish(page)


@pytest.mark.looks
def test_a_remote_lane_shows_its_text_its_name_and_no_tau(page):
    show(page, remote_race())
    expect(page.locator("[data-verdict]")).to_contain_text("the same text: compared by text, not by tokens")
    assert page.locator("[data-tau]").all_text_contents() == ["1.00", "–"]
    expect(page.locator(".lane.right [data-bursts]")).to_have_text(" a little fox a little fox")
    assert page.locator(".lane-name").nth(1).text_content() == "remote: a server"
    page.locator(".lane.right .burst").first.click()
    expect(page.locator("#race [data-sentence]")).to_have_text("The server sent “a little fox” after 10 ms.")
    assert page.evaluate("document.querySelector('[data-race]').classList.contains('blank')")
    page.locator(".lane.left .burst").first.click()
    assert not page.evaluate("document.querySelector('[data-race]').classList.contains('blank')")


@pytest.mark.looks
def test_what_a_server_says_is_text_and_its_failure_stands_in_its_lane(page):
    text = "".join(HOSTILE)
    show(page, remote_race(text, "failed", note=text))
    assert page.locator(".lane.right [data-bursts]").text_content() == text * 2
    expect(page.locator(".lane.right .note")).to_have_text(text)
    expect(page.locator("[data-verdict]")).to_contain_text("the other server failed")
    assert page.evaluate("window.__hostile") is None and page.locator("#race img").count() == 0


def test_a_picture_of_a_tree_that_is_not_there_is_refused(page):
    show(page, remote_race())
    menu(page)
    page.locator("[data-picture=tree]").first.click()
    expect(page.locator("[data-notice]")).to_contain_text("Another server wrote this lane")
