"""Saving and opening races in a real Chromium: what is taken away plays elsewhere, and what is opened is what was saved."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from engine.record.race_file import Record
from engine.systems import SYSTEMS
from helpers.page import ENDLESS, HOSTILE, IMAGE, choose, dial, menu, play, race, start_race, texts, until, whole
from helpers.traces import made_race, make_step, one_node


def figures(page: Page) -> list[str]:
    parts = ("[data-bursts]", "[data-count]", "[data-clock]", "[data-words]", "[data-sentence]", "[data-prompt]")
    return [text for part in parts for text in page.locator(f"[data-race] {part}").all_text_contents()]


def saved(page: Page, folder: Path, act) -> Path:
    with page.expect_download() as download:
        act()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def opened(page: Page, path: Path) -> None:
    page.locator("[data-take] [type=file]").set_input_files(path)


# ---- taking a race away


def test_a_chats_reply_begins_below_the_prompt_and_its_file_says_so(page, tmp_path):
    for chat, shown in ((False, "Once"), (True, "Once\n\n")):
        record = made_race()
        for lane in record.lanes:
            lane.trace.chat = chat
        file = tmp_path / "race.json"
        file.write_text(record.to_json(), "utf-8")
        opened(page, file)
        page.wait_for_function("shown => document.querySelector('[data-prompt]').textContent === shown", arg=shown)
        menu(page)
        again = saved(page, tmp_path, lambda: page.get_by_role("button", name="JSON").click())
        assert [lane.trace.chat for lane in Record.from_json(again.read_text("utf-8")).lanes] == [chat, chat]


def test_a_race_is_taken_away_and_comes_back(page, server, tmp_path):
    dial(page, "number input for Temperature", 0.6)
    choose(page, 1, "bigram tree")
    race(page)
    page.locator("h1").click()
    page.keyboard.press("Home")
    whole(page)
    shown = figures(page)
    menu(page)
    file = saved(page, tmp_path, lambda: page.get_by_role("button", name="JSON").click())
    replay = saved(page, tmp_path, lambda: page.get_by_role("button", name="HTML").click())
    assert file.name.startswith("treerace-nanogpt-tree-story-") and replay.name.endswith(".html")
    record = Record.from_json(file.read_text("utf-8"))
    assert [lane.trace.text for lane in record.lanes] == texts(page)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record.recorded) and record.result()["finished"]

    asked, complaints = [], []
    disk = page.context.browser.new_context(viewport={"width": 1280, "height": 720}, offline=True)
    disk.route("http*://**", lambda route: route.abort())
    tab = disk.new_page()
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(replay.as_uri())
    until(tab, "TreeRace.view.slowStart.isTelling")
    tab.keyboard.press("Escape")
    until(tab, "TreeRace.view.playing && TreeRace.view.time > 0")
    expect(tab.locator("[data-recorded]")).to_contain_text("recorded on ")
    tab.keyboard.press("End")
    tab.keyboard.press("Home")
    tab.locator("[data-scrub]").fill("1")
    tab.wait_for_selector("[data-tree] g.node")
    tab.wait_for_selector("[data-mask] .row")
    whole(tab)
    assert figures(tab) == shown
    tab.keyboard.press("d")
    assert tab.evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert tab.locator("#prompt, #dials, [type=file]").count() == 0
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == [] and complaints == []
    disk.close()

    page.reload()
    expect(page.locator("[data-lanes] [data-lane]")).to_have_count(2)
    opened(page, file)
    expect(page.locator("[data-recorded]")).to_contain_text("recorded on ")
    whole(page)
    assert figures(page) == shown


@pytest.mark.looks
def test_tree_and_mask_are_saved_as_pictures(page, tmp_path):
    play(page, [(0, one_node(burst=[99], end="length")), (1, make_step(end="length"))])
    page.get_by_role("radio", name="Cost").check(force=True)  # the mask need not be on the page
    for name, size in (("Draft tree", (1000, 620)), ("Attention mask", (760, 620))):
        menu(page)
        svg = saved(page, tmp_path, lambda name=name: page.get_by_role("button", name=f"{name} as SVG").click())
        text = svg.read_text("utf-8")
        assert text.startswith("<svg") and f'width="{size[0]}"' in text and "little" in text
        assert re.search(r'<svg[^>]*><rect[^>]*height="100%"[^>]*fill="(white|#fff|#ffffff)"', text)
        png = saved(page, tmp_path, lambda name=name: page.get_by_role("button", name=f"{name} as PNG").click())
        head = png.read_bytes()[:24]
        assert head[1:4] == b"PNG" and int.from_bytes(head[16:20], "big") == 2 * size[0]
        page.keyboard.press("Escape")
    expect(page.locator(".offstage")).to_have_count(0)


# Stops the race that has begun; gives what the menu said of it before. Clicks from here could come when it is over.
STOPPED = """() => {
  if (TreeRace.view.race.state !== 'running' || !(TreeRace.view.time > 0)) return null;
  TreeRace.take.refresh();
  const said = document.querySelector('[data-shown]').textContent;
  document.querySelector('#race-halt').click();
  return said;
}"""


def test_a_stopped_race_is_saved_as_far_as_it_came(page, tmp_path):
    """The recorded race with which the page begins can be saved; one that runs cannot, until it was stopped."""
    menu(page)
    expect(page.locator("[data-shown]")).to_contain_text(f"{SYSTEMS['vanilla'].title} and ")
    expect(page.get_by_role("button", name="JSON")).to_be_enabled()
    page.keyboard.press("Escape")
    start_race(page, ENDLESS, tokens=900)
    assert "when it has ended" in page.wait_for_function(STOPPED).json_value()
    menu(page)
    expect(page.locator("[data-shown]")).to_contain_text("as far as it came")
    record = Record.from_json(
        saved(page, tmp_path, lambda: page.get_by_role("button", name="JSON").click()).read_text("utf-8")
    )
    assert not record.result()["finished"] and record.result()["identical"] is True
    opened(page, next(tmp_path.glob("*.json")))
    expect(page.locator("[data-recorded]")).to_contain_text("recorded on ")
    whole(page)
    expect(page.locator("[data-verdict]")).to_contain_text("stopped; identical so far")


def test_texts_of_a_file_are_never_markup(page, tmp_path):
    record = made_race()
    for lane in record.lanes:
        lane.trace.prompt, lane.title, lane.idea = f"Story {IMAGE}", f"{IMAGE}{HOSTILE[0]}", IMAGE
        lane.trace.hardware = IMAGE
        for step in lane.trace.steps:
            step.texts[:] = [IMAGE] * len(step.texts)
            step.pieces[:] = HOSTILE[: len(step.pieces)]
    file = tmp_path / "race.json"
    file.write_text(record.to_json(), "utf-8")
    opened(page, file)
    expect(page.locator("[data-recorded]")).to_contain_text(f"recorded on {IMAGE}")
    whole(page)
    assert IMAGE in page.locator("[data-prompt]").first.text_content()
    replay = saved(page, tmp_path, lambda: (menu(page), page.get_by_role("button", name="HTML").click()))
    tab = page.context.browser.new_page()
    tab.goto(replay.as_uri())
    tab.wait_for_function("TreeRace.view.run")
    tab.evaluate("TreeRace.view.skip()")
    assert IMAGE in tab.locator("[data-prompt]").first.text_content()
    for each in (page, tab):
        assert each.evaluate("window.__hostile") is None
        assert each.locator("[data-race] img, [data-race] b b").count() == 0
    tab.close()


# ---- opening files


@pytest.mark.looks
def test_a_bad_file_is_a_sentence_and_the_race_stays(page, tmp_path):
    play(page, [(0, one_node(burst=[99], end="length")), (1, make_step(end="length"))])
    before = figures(page)
    for name, text, words in (
        ("torn.json", made_race().to_json()[:-20], "This race file cannot be read. The file is no JSON"),
        ("picture.json", json.dumps({"<img src=x onerror=window.__hostile=1>": 1}), "unknown '<img src=x"),
    ):
        (tmp_path / name).write_text(text, "utf-8")
        opened(page, tmp_path / name)
        expect(page.locator("[data-notice]")).to_contain_text(words)
    assert figures(page) == before and page.evaluate("window.__hostile") is None
    page.locator("[data-notice] button").click()
    expect(page.locator("[data-notice]")).to_be_hidden()


@pytest.mark.looks
def test_a_file_is_dropped_on_the_page(page):
    page.evaluate(
        """text => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([text], 'race.json', { type: 'application/json' }));
          for (const kind of ['dragover', 'drop'])
            document.querySelector('.lanes').dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        made_race().to_json(),
    )
    expect(page.locator("[data-recorded]")).to_have_text("a pair, recorded on a machine, 31 Jan 2026")
    whole(page)
    assert texts(page) == [" a little fox a little fox"] * 2
    assert not page.evaluate("document.querySelector('#screen').hasAttribute('data-drop')")
