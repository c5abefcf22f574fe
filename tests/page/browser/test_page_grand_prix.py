"""The grand prix in a real Chromium: real races on the embedded models, and made-up ones for what they hardly ever do."""

import csv
import io
import json
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from engine.page.screens.cards import FIELDS
from engine.page.views import wire
from engine.record.race_file import LaneRecord, Record
from engine.record.trace import Trace
from engine.systems import SYSTEMS
from helpers.page import ENDLESS, PATIENCE, PROMPT, at_rest
from helpers.traces import PLAIN, make_step, one_node

IMAGE = "<img src=x onerror=window.__hostile=1>"
STEPS = 4
# what each made-up lane takes for a step of three tokens, in seconds
PACES = {"vanilla": 0.008, "tree": 0.004, "chain": 0.005, "naive": 0.002, "medusa": 0.006}


def open_prix(page: Page) -> None:
    """On a new page the screen begins with a recorded example, which is shown to its end before anything is raced."""
    page.get_by_role("button", name="Grand prix").click()
    expect(page.locator("[data-prix]")).to_be_visible()
    page.wait_for_function("TreeRace.prix.run.id")
    finish(page)


def start(page: Page, tokens: int, prompt: str = PROMPT) -> None:
    page.fill("#prompt textarea", prompt)
    box = page.locator("#dials").get_by_label("New tokens", exact=True)
    box.fill(str(tokens))
    box.press("Tab")
    before = page.evaluate("TreeRace.prix.run.id")
    page.click("#prix-go")
    page.wait_for_function("before => TreeRace.prix.run.id !== before", arg=before)


def finish(page: Page) -> None:
    page.wait_for_function("TreeRace.prix.run.state === 'done'", timeout=PATIENCE)
    page.wait_for_selector("[data-prix][data-state=done]", timeout=PATIENCE)
    page.wait_for_function("!TreeRace.prix.end?.again")  # it may run again, unseen


def lane(name: str, seconds: float, title: str = "") -> LaneRecord:
    system, trace = SYSTEMS[name], Trace(name, "a pair", "a machine", "fp32", "Once", [1, 2], 0.8, 3, 4, 4, 8, 40)
    node = one_node if name == "vanilla" else make_step
    for index in range(STEPS):
        step = node(index=index, burst=[11, 14, 99], end="length" if index == STEPS - 1 else "")
        prefill = {"prefill": 0.001} if index == 0 else {}
        trace.steps.append(replace(step, seconds={"draft": seconds / 4, "verify": 3 * seconds / 4} | prefill))
    return LaneRecord(title or system.title, system.idea, system.guarantee, PLAIN, trace)


def play(page: Page, lanes: list[LaneRecord], **changes: list) -> None:
    """A made-up grand prix, played to its end; `changes` are new figures by lane."""
    event = json.loads(wire.serialise_whole_race_as_event(Record(lanes, "")))
    for name, values in changes.items():
        for figures, value in zip(event["lanes"], values, strict=True):
            figures[name] = value
    page.evaluate("event => TreeRace.prix.run.show(event)", event)
    finish(page)


def made_up() -> list[LaneRecord]:
    return [lane(name, seconds) for name, seconds in PACES.items()]


def table(page: Page) -> list[list[str]]:
    return page.evaluate(
        "[...document.querySelectorAll('[data-prix-table] tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )


@pytest.mark.looks
def test_one_press_races_the_whole_field(page):
    open_prix(page)
    start(page, tokens=24)
    finish(page)
    titles = page.locator(".runner [data-of=name]").all_text_contents()
    assert titles == [SYSTEMS[name].title for name in next(iter(FIELDS.values()))]
    head, *rows = table(page)
    assert head[:4] == ["place", "system", "ratio", "tokens a pass"] and sorted(row[1] for row in rows) == sorted(
        titles
    )
    ratios = [float(row[2].removesuffix("×")) for row in rows]
    assert ratios == sorted(ratios, reverse=True)
    plain = next(row for row in rows if row[1] == titles[0])
    assert plain[2:7] == ["1.00×", "1.00", "0", "24", "0"] and {row[-1] for row in rows} == {"identical"}  # T = 0
    places = {row[1]: row[0] for row in rows}
    assert page.locator("[data-prix-tracks] .place").all_text_contents() == [places[title] for title in titles]
    clocks = page.locator("[data-prix-tracks] [data-of=clock]").all_text_contents()
    assert all(clock.startswith("⚑ ") for clock in clocks)
    expect(page.locator("[data-prix-words]")).to_contain_text("All wrote the same text.")
    expect(page.locator("[data-prix-caption]")).to_contain_text("temperature 0, seed 0, up to 24 new tokens")
    expect(page.locator("[data-prix-split] .bars .point")).to_have_count(len(titles) * 4)


@pytest.mark.looks
def test_the_table_is_sorted_and_says_what_became_of_every_text(page):
    open_prix(page)
    play(page, made_up(), identical=[True, True, "law", "lossy", False])
    rows = table(page)[1:]
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row[1] for row in rows] == [SYSTEMS[name].title for name in ("naive", "tree", "chain", "medusa", "vanilla")]
    assert [row[-1] for row in rows] == ["lossy", "identical", "same distribution", "DIFFERENT", "identical"]
    assert rows[1][2:7] == ["1.94×", "3.00", "0", "4", "8"]  # (0.032 + 0.001) / (0.016 + 0.001)
    expect(page.locator("[data-prix-words]")).to_have_text(
        f"{SYSTEMS['naive'].title} is first with 3.7×, but lossy. 1 of 4 wrote the same text."
    )
    assert page.locator("[data-prix-tracks] small").all_text_contents() == ["", "", "", "lossy", ""]
    for row in rows:
        assert sum(int(cell.removesuffix(" %")) for cell in row[7:11]) == pytest.approx(100, abs=2)


@pytest.mark.looks
def test_places_are_those_of_the_moment(page):
    open_prix(page)
    play(page, made_up())
    at = "seconds => { TreeRace.prix.player.time = seconds; TreeRace.prix.draw(0); }"
    places = page.locator("[data-prix-tracks] .place")
    for seconds, expected in [(0.0, ["–"] * 5), (0.0035, ["–", "–", "–", "1", "–"]), (1.0, ["5", "2", "3", "1", "4"])]:
        page.evaluate(at, seconds)
        assert places.all_text_contents() == expected
    page.evaluate(at, 0.0056)
    assert places.all_text_contents() == ["–", "2", "–", "1", "–"]
    clocks = page.locator("[data-prix-tracks] [data-of=clock]").all_text_contents()
    assert clocks == ["–", "0.006 s", "–", "0.006 s", "–"]
    page.emulate_media(reduced_motion="reduce")
    page.get_by_role("button", name="Play again").click()
    finish(page)
    assert places.all_text_contents() == ["5", "2", "3", "1", "4"]


@pytest.mark.looks
def test_the_table_is_copied_and_saved(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_prix(page)
    play(page, made_up())
    page.get_by_role("button", name="Copy table").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = [line.split("\t") for line in page.evaluate("navigator.clipboard.readText()").splitlines()]
    assert copied[:-1] == table(page) and "a pair, a machine, fp32; temperature 0.8, seed 3" in copied[-1][0]
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    head, *rows = csv.reader(io.StringIO(download.value.path().read_text("utf-8")))
    assert [row[head.index("name")] for row in rows] == ["naive", "tree", "chain", "medusa", "vanilla"]
    assert float(rows[1][head.index("ratio")]) == pytest.approx(0.033 / 0.017, rel=1e-4)


@pytest.mark.looks
def test_titles_are_never_markup(page):
    open_prix(page)
    play(page, [lane("vanilla", 0.01), lane("tree", 0.005, IMAGE)])
    assert table(page)[1][1] == IMAGE
    assert page.locator("[data-prix-tracks] [data-of=name]").last.text_content() == IMAGE
    expect(page.locator("[data-prix-split] .ytick").first).to_contain_text("<img src=x")
    page.hover("[data-prix-split] .bars .point path >> nth=2", force=True)
    expect(page.locator("[data-prix-split] .hovertext")).to_contain_text("<img src=x")
    assert page.evaluate("window.__hostile") is None and page.locator("[data-prix] img").count() == 0


def test_a_field_is_chosen_by_preset_or_one_by_one(page):
    open_prix(page)
    names = "TreeRace.prix.field.names"
    assert page.evaluate(names) == list(next(iter(FIELDS.values())))
    page.locator("[name=prix-field]").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    chosen = page.evaluate(names)
    assert chosen[0] == "vanilla" and "lookup" in chosen
    page.locator("[data-prix-open]").press("Enter")
    box = page.get_by_role("checkbox", name=SYSTEMS["vanilla"].title)
    expect(box).to_be_checked()
    expect(box).to_be_disabled()
    expect(page.get_by_role("checkbox", name=SYSTEMS["eagle"].title)).to_be_disabled()
    expect(page.locator("[data-prix-room]")).to_contain_text("8 are the most")
    page.get_by_role("checkbox", name=SYSTEMS["lookup"].title).press("Space")
    page.get_by_role("checkbox", name=SYSTEMS["eagle"].title).press("Space")
    assert page.evaluate(names) == [*(name for name in chosen if name != "lookup"), "eagle"]
    assert page.locator("[name=prix-field]:checked").count() == 0
    assert page.locator("[data-prix-tracks] [data-of=name]").last.text_content() == SYSTEMS["eagle"].title
    page.keyboard.press("Escape")
    expect(page.locator("[data-prix-panel]")).to_be_hidden()
    expect(page.locator("[data-prix-open]")).to_be_focused()


def test_stop_stops_and_the_next_grand_prix_runs(page):
    open_prix(page)
    start(page, tokens=900, prompt=ENDLESS)
    page.locator("[name=prix-rate][value='½×']").check(force=True)
    page.wait_for_function("TreeRace.prix.player.time > 0", timeout=PATIENCE)
    expect(page.locator("[data-prix-choose]")).to_have_attribute("disabled", "")
    page.click("#prix-halt")
    expect(page.locator("[data-prix-words]")).to_contain_text("Stopped")
    before = page.evaluate("TreeRace.prix.player.time")
    at_rest(page)
    assert page.evaluate("TreeRace.prix.player.time") == before and page.locator("[data-prix-table] td").count() == 0
    page.locator("[name=prix-rate][value='real time']").check(force=True)
    page.evaluate("TreeRace.prix.field.own(['vanilla', 'lookup', 'tree'])")
    start(page, tokens=16)
    expect(page.locator("[data-prix-table] tbody tr")).to_have_count(3)
    expect(page.locator("[data-prix-words]")).to_contain_text("All wrote the same text.")


def test_the_prompts_own_key_starts_the_screen_that_is_shown(page):
    open_prix(page)
    page.evaluate("TreeRace.prix.field.own(['vanilla', 'lookup'])")
    before = page.evaluate("TreeRace.view.run")
    page.locator("#dials").get_by_label("New tokens", exact=True).fill("8")
    page.locator("#prompt textarea").press("Shift+Enter")
    expect(page.locator("[data-prix-table] tbody tr")).to_have_count(2)
    assert page.evaluate("TreeRace.view.run") == before


def test_bad_input_gets_a_sentence(page):
    open_prix(page)
    start(page, tokens=24, prompt="  ")
    expect(page.get_by_test_id("toast-body")).to_contain_text("prompt is empty")
    expect(page.locator("[data-prix-words]")).to_have_text("Nothing was raced.")


def test_a_row_opens_as_a_race_of_two_with_every_step(page):
    open_prix(page)
    play(page, made_up())
    page.get_by_role("button", name=SYSTEMS["tree"].title, exact=True).click()
    page.wait_for_function("TreeRace.screens.shownScreen() === 'race' && TreeRace.view.systems[1]?.name === 'tree'")
    assert page.evaluate("TreeRace.view.lanes.map((lane) => lane.steps.length)") == [STEPS, STEPS]
    page.go_back()
    expect(page.locator("[data-prix-table] tbody tr")).to_have_count(len(PACES))
    page.get_by_role("button", name=SYSTEMS["chain"].title, exact=True).click()
    page.wait_for_function("TreeRace.view.systems[1]?.name === 'chain'")


def test_a_link_races_the_same_field_by_itself(page, server):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_prix(page)
    play(page, [lane("vanilla", 0.008), lane("lookup", 0.004)])
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    page.goto(page.evaluate("navigator.clipboard.readText()"))
    expect(page.locator("[data-prix-table] tbody tr")).to_have_count(2)
    trace = page.evaluate("TreeRace.prix.systems[1].trace")
    assert (trace["system"], trace["prompt"], trace["temperature"], trace["seed"]) == ("lookup", "Once", 0.8, 3)


@pytest.mark.looks
def test_eight_rows_stay_in_sight_under_a_long_caption(page):
    """A hot race's caption names medians and a disturbance beside the machine."""
    open_prix(page)
    lanes = [lane(name, 0.002 + 0.001 * index) for index, name in enumerate(FIELDS[list(FIELDS)[-1]][:8])]
    play(page, lanes, identical=[True] + ["law"] * (len(lanes) - 1))
    page.evaluate(
        "words => { const at = document.querySelector('[data-prix-caption]'); at.textContent = words; }",
        "A long word. " * 60,
    )
    sheet = page.locator(".sheet").bounding_box()
    for row in page.locator("[data-prix-table] tbody tr").all():
        box = row.bounding_box()
        assert box["y"] + box["height"] <= sheet["y"] + sheet["height"] + 1
    assert page.evaluate("(s => s.scrollHeight <= s.clientHeight)(document.querySelector('.sheet'))")


@pytest.mark.looks
def test_the_grand_prix_fits_its_screen(page):
    open_prix(page)
    for room in ((1280, 720), (1920, 1080), (390, 844)):
        fits(page, *room)


def fits(page: Page, width: int, height: int) -> None:
    page.set_viewport_size({"width": width, "height": height})
    names = ("vanilla", "tree", "chain", "naive", "medusa", "medusa-typical", "specblock-adapt", "dyspec-threshold")
    play(page, [lane(name, 0.002 + 0.001 * index) for index, name in enumerate(names)])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tracks, last, sheet = (page.locator(part).bounding_box() for part in (".tracks", ".runner >> nth=8", ".sheet"))
    assert last["y"] + last["height"] <= tracks["y"] + tracks["height"] <= sheet["y"] and sheet["height"] > 150
    if width > 900:
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        room = page.evaluate(
            "(s => [s.scrollHeight, s.clientHeight, s.scrollWidth, s.clientWidth])(document.querySelector('.sheet'))"
        )
        assert room[0] <= room[1] and room[2] <= room[3], room
        for part in (".tracks", "[data-prix-table]", "[data-prix-caption]", "[data-prix-split]", "#dials"):
            box = page.locator(part).bounding_box()
            assert box["y"] >= 0 and box["y"] + box["height"] <= height and box["height"] > 20, part
