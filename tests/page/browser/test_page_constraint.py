"""A constraint on the page, in a real Chromium: the field, its race, its link, and wrong or hostile words in it."""

import json

import pytest
from playwright.sync_api import expect

from helpers.page import IMAGE, PATIENCE, choose, dial, finish, menu, open_view, race

MOODS = (
    'json:{"type": "object", "properties": {"mood": {"enum": ["happy", "sad"]}}, '
    '"required": ["mood"], "additionalProperties": false}'
)
GRAMMAR = 'lark:start: "((" word "))"\nword: "yes" | "no"\n'


def field(page):
    return page.locator("#dials").get_by_label("Constraint", exact=True)


def test_a_constraint_binds_both_lanes_and_goes_with_the_link(page):
    choose(page, 1, "forced tokens")
    dial(page, "Constraint", MOODS)
    race(page)
    written = page.evaluate(
        "TreeRace.view.systems.map((_, at) => TreeRace.view.lanes[at].steps.flatMap((s) => s.pieces).join(''))"
    )
    assert len(written) == 2 and written[0] == written[1]
    assert json.loads(written[0])["mood"] in ("happy", "sad")
    menu(page)
    page.get_by_role("button", name="Copy link").click()
    page.goto(page.get_by_label("Link to a race").input_value())
    expect(field(page)).to_have_value(MOODS)
    page.click("#race-go")
    finish(page)
    assert page.evaluate("TreeRace.view.systems[1].trace.constraint") == MOODS


@pytest.mark.looks
def test_a_grammar_keeps_its_lines_in_a_field_that_is_one_line_high(page):
    """An input would join them, and a grammar's rules end with their lines."""
    before = field(page).bounding_box()
    dial(page, "Constraint", GRAMMAR)
    expect(field(page)).to_have_value(GRAMMAR)
    assert field(page).bounding_box() == before
    race(page)
    written = page.evaluate("TreeRace.view.lanes.map((lane) => lane.steps.flatMap((step) => step.pieces).join(''))")
    assert written[0] == written[1] and written[0] in ("((yes))", "((no))")
    assert page.evaluate("TreeRace.view.systems[1].trace.constraint") == GRAMMAR


def test_a_wrong_constraint_is_a_sentence_and_its_words_are_no_markup(page):
    for wrong, words in ((IMAGE, "begins with json:"), (f"regex:({IMAGE}", "cannot be compiled")):
        dial(page, "Constraint", wrong)
        page.click("#race-go")
        expect(page.locator("[data-notice], .toast-body").filter(has_text=words).first).to_be_visible()
    assert page.evaluate("window.__hostile") is None


@pytest.mark.looks
def test_the_field_is_there_where_it_binds_a_race_and_fits_its_row(page):
    expect(field(page)).to_be_visible()
    boxes = page.locator("#dials .block").evaluate_all(
        "all => all.map((each) => each.getBoundingClientRect().toJSON())"
    )
    assert max(box["right"] for box in boxes) <= page.evaluate("innerWidth")
    assert max(box["top"] for box in boxes) - min(box["top"] for box in boxes) < 12
    for view in ("sweep", "prompts"):
        open_view(page, view)
        expect(field(page)).to_be_hidden()
    open_view(page, "pays")
    expect(field(page)).to_be_visible()


HINT_ENDS = """field => {
  const { font, paddingLeft, paddingRight } = getComputedStyle(field);
  const room = field.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  return [TreeRace.numbers.textWidth(field.placeholder, font), room];
}"""


@pytest.mark.looks
def test_the_empty_field_says_whole_what_it_takes(page):
    for width, height in ((1280, 720), (1920, 1080), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        hint, room = field(page).evaluate(HINT_ENDS)
        assert 60 < hint <= room


def test_whether_guessing_pays_is_told_under_a_constraint(page):
    dial(page, "Constraint", MOODS)
    open_view(page, "pays")
    file = {"name": "mine.txt", "mimeType": "text/plain", "buffer": b"Story: Once\n\nStory: Tom\n\nStory: Lily"}
    page.set_input_files("[data-lab-pays] [data-file]", file)
    expect(page.locator("[data-lab-pays] [data-doing]")).to_have_text("Press Start: 3 prompts to race")
    page.select_option("[data-lab-pays] [data-systems]", "forced")
    page.fill("[data-lab-pays] [data-tokens]", "16")
    page.click("#lab-go")
    page.wait_for_selector("[data-lab-pays].told[data-run=done]", timeout=PATIENCE)
    assert page.evaluate("TreeRace.pays.report.constraint") == MOODS
    assert page.evaluate("TreeRace.pays.report.systems[0].tau") > 1
    expect(page.locator("[data-lab-pays] [data-beside]")).to_contain_text("writes without the constraint")
