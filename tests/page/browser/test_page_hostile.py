"""Text that a model or a visitor could write to be run: the page, its charts, its files and its messages show it literally."""

import csv
import json

from playwright.sync_api import Page, expect

from helpers.page import IMAGE, menu, whole
from helpers.traces import made_race

TEXTS = [
    IMAGE,
    "${window.__hostile=1}",
    "{{7*7}}",
    "`${window.__hostile=1}`",
    "</script><script>window.__hostile=1</script>",
    "<svg onload=window.__hostile=1>",
    "<a href='javascript:window.__hostile=1'>x</a>",
    "%{customdata}<br>&lt;b&gt;",
]
ALL = "".join(TEXTS)


def hostile_race():
    record = made_race()
    for lane in record.lanes:
        lane.trace.prompt = lane.trace.hardware = lane.title = lane.idea = lane.trace.system = lane.trace.pair = ALL
        for at, step in enumerate(lane.trace.steps):
            step.texts[:] = [TEXTS[(at + node) % len(TEXTS)] for node in range(len(step.texts))]
            step.pieces[:] = [TEXTS[(at + piece) % len(TEXTS)] for piece in range(len(step.pieces))]
            object.__setattr__(step, "bonus_text", ALL)
    return record


def nothing_ran(page: Page) -> None:
    assert page.evaluate("window.__hostile") is None
    assert (
        page.locator(
            "#race img, #race [onload], #race [onerror], #race a[href^=javascript], [data-race] script"
        ).count()
        == 0
    )


def test_hostile_text_is_shown_literally_everywhere(page, tmp_path):
    record = hostile_race()
    file = tmp_path / "race.json"
    file.write_text(record.to_json(), "utf-8")
    page.locator("[data-take] [type=file]").set_input_files(file)
    expect(page.locator("[data-recorded]")).to_contain_text(ALL)
    whole(page)
    written = record.lanes[0].trace.text
    assert page.locator("[data-bursts]").all_text_contents() == [written, record.lanes[1].trace.text]
    for part in ("recorded", "prompt"):
        assert ALL in page.locator(f"[data-race] [data-{part}]").first.text_content()
    page.evaluate("TreeRace.view.show?.(0)")
    labels = page.locator("[data-tree] svg text").all_text_contents()
    assert any("<svg onload" in each or "<img src" in each or "{{7*7}}" in each for each in labels), labels
    for node in page.locator("[data-tree] g.node").all()[:6]:
        node.hover(force=True)
    page.locator("[data-mask]").hover(force=True)
    nothing_ran(page)

    for name, kind in (("Draft tree as SVG", "svg"), ("HTML", "html")):
        menu(page)
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        saved = tmp_path / f"saved.{kind}"
        download.value.save_as(saved)
        page.keyboard.press("Escape")
        tab = page.context.browser.new_page()
        tab.goto(saved.as_uri())
        if kind == "html":
            tab.wait_for_function("TreeRace.view.run")
            tab.evaluate("TreeRace.view.skip()")
            assert tab.locator("[data-bursts]").all_text_contents()[0] == written
        assert (
            tab.evaluate("window.__hostile") is None
            and tab.locator("img, script:has-text('window.__hostile=1<')").count() == 0
        )
        tab.close()
    nothing_ran(page)


def test_a_refusal_that_quotes_a_visitor_is_text(page, server):
    page.goto(f"{server}?right={IMAGE}&prompt=%20&depth={IMAGE}")
    expect(page.locator("[data-notice]")).to_contain_text("<img src=x")
    page.fill("#prompt textarea", f"{IMAGE} Story")
    page.route("**/queue/join*", forged)
    page.click("#race-go")
    toast = page.get_by_test_id("toast-body")
    expect(toast).to_contain_text("<img src=x")
    assert toast.locator("img, script").count() == 0
    nothing_ran(page)


def forged(route) -> None:
    """Sends the name of no system in place of the opening page's own, which the answer quotes."""
    body = route.request.post_data_json
    asked = [json.loads(each) if isinstance(each, str) and each.startswith("{") else each for each in body["data"]]
    [request] = [each for each in asked if isinstance(each, dict)]
    request["systems"] = [f"model/{IMAGE}/token_match" if each == "tree" else each for each in request["systems"]]
    body["data"] = [json.dumps(each) if each is request else each for each in asked]
    route.continue_(post_data=json.dumps(body))


def test_no_cell_of_a_table_begins_a_formula(page):
    rows = [["=1+1", "@x", "-2", -2, f"{ALL}"]]
    text = page.evaluate("rows => TreeRace.downloads.asCsv(rows)", rows)
    [cells] = csv.reader(text.splitlines())
    assert cells[:4] == ["'=1+1", "'@x", "'-2", "-2"] and cells[4] == ALL
