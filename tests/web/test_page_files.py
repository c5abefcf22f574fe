"""Recorded races, saving and opening in a real Chromium: what is taken away plays elsewhere, and what is opened is what was saved."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from engine.measure import record_races
from engine.record.race_file import Record
from helpers.page import HOSTILE, IMAGE, PATIENCE, choose, dial, play, race, texts
from helpers.traces import made_race, make_step, one_node

FIRST = Record.from_json(next(iter(sorted(record_races.RACES.glob("*.json")))).read_text("utf-8"))
SAVE = "Save or open a race"


def whole(page: Page) -> None:
    """Shows the race to its end without waiting for it."""
    page.evaluate("TreeRace.view.skip()")


def figures(page: Page) -> list[str]:
    parts = ("[data-bursts]", "[data-count]", "[data-clock]", "[data-words]", "[data-sentence]", "[data-prompt]")
    return [text for part in parts for text in page.locator(f"[data-race] {part}").all_text_contents()]


def menu(page: Page) -> None:
    page.get_by_role("button", name=SAVE).click()


def saved(page: Page, folder: Path, act) -> Path:
    with page.expect_download() as download:
        act()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def opened(page: Page, path: Path) -> None:
    page.locator("[data-take] [type=file]").set_input_files(path)


def idle(page: Page, server: str, **context) -> Page:
    """Another tab of the same browser."""
    tab = page.context.browser.new_context(viewport={"width": 1280, "height": 720}, **context).new_page()
    tab.set_default_timeout(PATIENCE)
    tab.goto(server)
    return tab


# ---- the race that plays when the page opens


def test_the_page_opens_with_a_recorded_race_that_a_race_replaces(page, server):
    tab = idle(page, server)
    label = tab.locator("[data-recorded]")
    expect(label).to_contain_text(f"recorded on {FIRST.lanes[0].trace.hardware}, ")
    expect(label).to_contain_text(FIRST.recorded[:4])
    tab.wait_for_function("TreeRace.view.playing && TreeRace.view.time > 0")
    assert tab.evaluate("TreeRace.view.systems.map(({ name }) => name)") == ["vanilla", "tree"]
    assert tab.locator(".lane.next").count() == 0
    whole(tab)
    assert texts(tab) == [lane.trace.text for lane in FIRST.lanes]
    expect(tab.locator("[data-verdict]")).to_contain_text("identical: ")
    race(tab, tokens=24)
    tab.wait_for_function("TreeRace.view.lanes[0].tokens === 24")
    expect(label).to_have_text("")
    tab.context.close()


def test_without_motion_the_recorded_race_is_over_at_once(page, server):
    tab = idle(page, server, reduced_motion="reduce")
    expect(tab.locator("[data-verdict]")).to_contain_text("identical: ")
    assert tab.evaluate("!TreeRace.view.playing && TreeRace.view.atEnd")
    tab.context.close()


def test_the_menu_offers_every_recorded_race_and_sets_the_form(page):
    button = page.get_by_role("button", name="recorded", exact=True)
    for at, (_, _, settings) in enumerate(record_races.RECORDED.values()):
        button.click()
        choices = page.locator(".prompts:visible .prompt")
        assert choices.count() == len(record_races.RECORDED)
        choices.nth(at).click()
        page.wait_for_function("name => TreeRace.view.systems[1]?.name === name", arg=settings["systems"][1])
        wanted = page.evaluate("TreeRace.view.systems[1].trace.prompt")
        page.wait_for_function("text => document.querySelector('#prompt textarea').value === text", arg=wanted)
        heat = page.get_by_label("number input for Temperature", exact=True)
        expect(heat).to_have_value(str(settings.get("temperature", 0)))
        expect(page.locator(".lane.next")).to_have_count(0)


# ---- taking a race away


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
    tab.wait_for_function("TreeRace.view.playing && TreeRace.view.time > 0")
    expect(tab.locator("[data-recorded]")).to_contain_text("recorded on ")
    tab.keyboard.press("End")
    tab.keyboard.press("Home")
    tab.locator("[data-scrub]").fill("1")
    tab.wait_for_selector("[data-tree] .points path")
    tab.wait_for_selector("[data-mask] .hm image")
    whole(tab)
    assert figures(tab) == shown
    tab.keyboard.press("d")
    assert tab.evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert tab.locator("#prompt, #dials, [type=file]").count() == 0
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == [] and complaints == []
    disk.close()

    page.reload()
    expect(page.locator("[data-lane]")).to_have_count(2)
    opened(page, file)
    expect(page.locator("[data-recorded]")).to_contain_text("recorded on ")
    whole(page)
    assert figures(page) == shown


def test_tree_and_mask_are_saved_as_pictures(page, tmp_path):
    play(page, [(0, one_node(burst=[99], end="length")), (1, make_step(end="length"))])
    page.get_by_role("radio", name="Cost").check(force=True)  # the mask need not be on the page
    for name, size in (("Draft tree", (1000, 620)), ("Attention mask", (760, 620))):
        menu(page)
        svg = saved(page, tmp_path, lambda name=name: page.get_by_role("button", name=f"{name} as SVG").click())
        text = svg.read_text("utf-8")
        assert text.startswith("<svg") and f'width="{size[0]}"' in text and "little" in text
        assert re.search(r'class="bg"|<rect[^>]*fill: rgb\(255, 255, 255\)', text)
        png = saved(page, tmp_path, lambda name=name: page.get_by_role("button", name=f"{name} as PNG").click())
        head = png.read_bytes()[:24]
        assert head[1:4] == b"PNG" and int.from_bytes(head[16:20], "big") == 2 * size[0]
        page.keyboard.press("Escape")
    assert page.locator(".offstage").count() == 0


def test_a_stopped_race_is_saved_as_far_as_it_came(page, tmp_path):
    menu(page)
    expect(page.locator("[data-shown]")).to_have_text("No race is shown yet.")
    expect(page.get_by_role("button", name="JSON")).to_be_disabled()
    page.keyboard.press("Escape")
    dial(page, "New tokens", 900)
    page.click("#race-go")
    page.wait_for_function("TreeRace.view.time > 0")
    menu(page)
    expect(page.locator("[data-shown]")).to_contain_text("when it has ended")
    page.click("#race-halt")
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
    expect(page.locator("[data-recorded]")).to_have_text("recorded on a machine, 31 Jan 2026")
    whole(page)
    assert texts(page) == [" a little fox a little fox"] * 2
    assert not page.evaluate("document.querySelector('#screen').hasAttribute('data-drop')")


# ---- links


def test_a_link_restores_everything(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    choose(page, 0, "prompt lookup")
    dial(page, "number input for Depth", 2)
    dial(page, "number input for Temperature", 0.4)
    dial(page, "Seed", 12345)
    race(page, "Story: a & b <i> #1 100%")
    menu(page)
    page.get_by_role("button", name="Copy link").click()
    link = page.get_by_label("Link to a race").input_value()
    assert page.evaluate("navigator.clipboard.readText()") == link
    before = page.evaluate("TreeRace.view.systems.map(({ trace }) => ({ ...trace, hardware: '' }))")
    page.goto(link)
    expect(page.get_by_label("Seed", exact=True)).to_have_value("12345")
    expect(page.locator("#prompt textarea")).to_have_value("Story: a & b <i> #1 100%")
    assert page.evaluate("TreeRace.view.run") is None  # a link plays no recorded race
    page.click("#race-go")
    page.wait_for_selector("[data-race][data-state=done]")
    assert page.evaluate("TreeRace.view.systems.map(({ trace }) => ({ ...trace, hardware: '' }))") == before


def test_a_link_to_a_mix_keeps_its_shape(page, server):
    page.goto(f"{server}?right=bigram/kary/token_match&depth=2&width=3&nodes=9&tokens=16")
    expect(page.locator(".right [data-badge]")).to_have_text("same tokens")
    expect(page.locator(".right [data-its-name]")).to_have_text("bigram/kary/token_match")
    expect(page.locator(".right [data-card]")).to_be_hidden()
    expect(page.get_by_label("number input for Depth", exact=True)).to_have_value("2")
    page.click("#race-go")
    page.wait_for_function("TreeRace.view.result")
    assert page.evaluate("TreeRace.view.systems[1].name") == "bigram/kary/token_match"
    trace = page.evaluate("TreeRace.view.systems[1].trace")
    assert (trace["depth"], trace["width"], trace["nodes"]) == (2, 3, 9)


@pytest.mark.parametrize("wrong", ["nodes=9999", "right=<img src=x onerror=window.__hostile=1>"])
def test_a_wrong_link_is_a_sentence_and_leaves_the_rest(page, server, wrong):
    page.goto(f"{server}?{wrong}&seed=77")
    expect(page.locator("[data-notice]")).to_contain_text("Nodes must be" if "nodes" in wrong else "Unknown system")
    expect(page.get_by_label("Seed", exact=True)).to_have_value("77")
    expect(page.locator("#dials").get_by_label("Nodes", exact=True)).to_have_value("8")
    assert page.evaluate("window.__hostile") is None
