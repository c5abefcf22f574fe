"""The lab's sweep in a real Chromium: what it asks for, draws, says, saves, and how a cell becomes a race; most sweeps are made up."""

import csv
import io
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from engine.measure.curves.sweep import SweepPlan
from helpers.page import at_rest, feed, press, refused
from helpers.screens import SPEEDS, TEXT, swept

WORDS = "[data-lab-words]"


@pytest.fixture(scope="module")
def messages() -> list[dict]:
    return swept()


def open_lab(page: Page) -> None:
    page.get_by_role("button", name="Lab", exact=True).click()
    expect(page.locator("[data-lab-sweep]")).to_be_visible()


def wait_for_plots(page: Page) -> None:
    """Each of the five has two layers. The first of them brings Plotly's script."""
    page.wait_for_function("document.querySelectorAll('[data-lab-sweep] .main-svg').length >= 10")


def canvas(chart: str) -> str:
    return f"[data-chart={chart}] [data-canvas]"


def set_grid(page: Page, depth: str, width: str, tokens: int = 8) -> None:
    page.fill("[data-lab-sweep] [data-depth]", depth)
    page.fill("[data-lab-sweep] [data-width]", width)
    page.fill("[data-lab-sweep] [data-tokens]", str(tokens))


def test_a_sweep_is_measured_and_its_best_cell_raced(page):
    open_lab(page)
    set_grid(page, "1, 2", "1, 2", tokens=12)
    page.click("#lab-go")
    expect(page.locator("[data-lab-sweep]")).to_have_attribute("data-run", "done")
    page.wait_for_function("TreeRace.sweep.measured?.cells.length === 4")
    expect(page.locator(WORDS)).to_contain_text(" tokens a pass, ")
    expect(page.locator(f"{canvas('speedup')} .textpoint")).to_have_count(4)
    expect(page.locator("[data-lab-sweep] [data-progress]")).to_have_attribute("aria-valuenow", "4")
    x, y = page.evaluate("(({ x, y }) => [x, y])(TreeRace.sweep.measured.summary.best[0])")
    page.get_by_role("button", name=f"Race depth {x}, width {y}").click()
    expect(page.locator("#screen")).to_have_attribute("data-screen", "race")
    for label, value in (("Depth", x), ("Width", y), ("Nodes", 16)):
        number = page.get_by_label(f"number input for {label}" if label != "Nodes" else label, exact=True).first
        expect(number).to_have_value(str(value))
    expect(page.locator("#systems input").nth(1)).to_have_value("draft tree")


@pytest.mark.looks
def test_heatmaps_grow_and_outline_the_best_cell(page, messages):
    open_lab(page)
    first = next(index for index, each in enumerate(messages) if "cell" in each)
    feed(page, "sweep", messages[: first + 1])
    expect(page.locator(f"{canvas('tau')} .textpoint")).to_have_count(1)
    expect(page.locator(WORDS)).to_contain_text("Cell 2 of 4, ")
    expect(page.locator(WORDS)).to_contain_text("Plain decoding is faster. Nearest: depth 1 and width 1")
    feed(page, "sweep", messages[first + 1 :])
    expect(page.locator(f"{canvas('speedup')} .textpoint")).to_have_text(["0.80×", "1.20×", "1.00×", "2.50×"])
    expect(page.locator(WORDS)).to_have_text(messages[-1]["summary"]["sentence"])
    drawn = "document.querySelector('[data-chart=speedup] [data-canvas]')"
    z, shapes = page.evaluate(f"[{drawn}.data[1].z, {drawn}.layout.shapes]")
    assert z[1][0] == pytest.approx(0.5) and z[0][0] < 0.5 < z[0][1] < z[1][1] == pytest.approx(1)
    assert len(shapes) == 1 and 0.5 < shapes[0]["x0"] < 0.6 and 1.4 < shapes[0]["y1"] < 1.5


@pytest.mark.looks
def test_charts_state_their_findings(page, messages):
    open_lab(page)
    feed(page, "sweep", messages)
    summary = messages[-1]["summary"]
    name = f"Measured speed over plain decoding by depth and width: 0.80× to 2.50×. {summary['sentence']}"
    assert name in page.locator(canvas("speedup")).get_attribute("aria-label")
    assert (
        page.locator(canvas("cost"))
        .get_attribute("aria-label")
        .endswith("2 of 4 cells were faster than plain decoding.")
    )
    expect(page.locator(canvas("rank"))).to_have_attribute(
        "aria-label", "Reached guesses that were accepted, by rank among siblings: rank 1 100 %, rank 2 0 %."
    )
    wait_for_plots(page)
    shares = page.evaluate("document.querySelector('[data-chart=rank] [data-canvas]').layout.xaxis.title.text")
    assert shares.endswith("of the guesses that were reached there")  # or they would seem to sum to more than all
    bars = page.evaluate(
        "document.querySelector('[data-chart=depth] [data-canvas]').data.map(({ x, y }) => [[...x], [...y]])"
    )
    rows = summary["by_depth"]
    assert bars[0] == [
        [row["depth"] for row in rows],
        pytest.approx([row["accepted"] / row["reached"] for row in rows]),
    ]
    assert bars[1][1] == pytest.approx([row["accepted"] / row["levels"] for row in rows])
    curve = page.evaluate("document.querySelector('[data-chart=cost] [data-canvas]').data[1].y.length")
    assert curve == 64


@pytest.mark.looks
def test_a_click_on_a_cell_goes_to_its_race_and_keys_do_the_same(page, messages):
    open_lab(page)
    feed(page, "sweep", messages)
    plot = page.locator(f"{canvas('speedup')} .nsewdrag")
    box = plot.bounding_box()
    plot.click(position={"x": box["width"] * 0.75, "y": box["height"] * 0.75})  # depth 3, width 1
    expect(page.locator("#screen")).to_have_attribute("data-screen", "race")
    expect(page.get_by_label("number input for Depth")).to_have_value("3")
    expect(page.get_by_label("number input for Width")).to_have_value("1")
    expect(page.locator("#prompt textarea")).to_have_value(TEXT)
    open_lab(page)
    page.locator(canvas("speedup")).focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[data-race-this]")).to_have_text("Race depth 1, width 2 ›")
    page.keyboard.press("ArrowLeft")  # at the edge
    page.keyboard.press("Enter")
    expect(page.get_by_label("number input for Depth")).to_have_value("1")
    expect(page.get_by_label("number input for Width")).to_have_value("2")


def test_a_grid_that_makes_no_sense_gets_a_sentence(page):
    open_lab(page)
    for depth, words in (("0", "Depth must be between 1 and 12"), ("2, oak", "got 'oak'"), ("2 2", "twice")):
        set_grid(page, depth, "1")
        page.click("#lab-go")
        refused(page, words)
        expect(page.locator(WORDS)).to_have_text("Nothing was measured.")
        assert page.input_value("[data-lab-sweep] [data-depth]") == depth


def test_stop_keeps_what_was_measured_and_the_next_sweep_runs(page):
    open_lab(page)
    set_grid(page, "1 2 3 4 5 6 7 8", "1 2 3 4", tokens=200)
    page.click("#lab-go")
    press(page, "#lab-halt", when="TreeRace.sweep.measured?.total === 32 && TreeRace.sweep.measured.cells.length")
    expect(page.locator(WORDS)).to_contain_text("of 32 cells. ")
    expect(page.locator(WORDS)).to_contain_text("Stopped after ")
    kept = page.evaluate("TreeRace.sweep.measured.cells.length")
    assert 0 < kept < 32
    at_rest(page)
    assert page.evaluate("TreeRace.sweep.measured.cells.length") == kept
    expect(page.locator(f"{canvas('tau')} .textpoint")).to_have_count(kept)
    set_grid(page, "1", "1")
    page.click("#lab-go")
    page.wait_for_function("TreeRace.sweep.measured.total === 1 && TreeRace.sweep.run.state === 'done'")


@pytest.mark.looks
def test_every_chart_can_be_saved(page, messages, tmp_path):
    open_lab(page)
    feed(page, "sweep", messages)
    wait_for_plots(page)

    def save(chart: str, what: str) -> Path:
        page.locator(f"[data-chart={chart}] [data-open]").click()
        with page.expect_download() as download:
            page.locator(f"[data-chart={chart}]").get_by_role("button", name=what).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    svg = save("speedup", "SVG")
    assert svg.name == "treerace-speedup.svg" and "2.50×" in svg.read_text("utf-8")
    assert save("rank", "PNG").read_bytes().startswith(b"\x89PNG")
    for chart in ("speedup", "tau", "cost", "depth", "rank"):
        rows = list(csv.reader(io.StringIO(save(chart, "CSV").read_bytes().decode("utf-8"))))
        assert len(rows) > 2 and len({len(row) for row in rows}) == 1
    cells = list(csv.DictReader(io.StringIO((tmp_path / "treerace-tau.csv").read_text("utf-8"))))
    assert [(cell["depth"], cell["width"], cell["system"]) for cell in cells] == [
        (str(x), str(y), "tree") for x, y in SPEEDS
    ]
    assert [float(cell["speedup"]) for cell in cells] == list(SPEEDS.values())


@pytest.mark.looks
def test_rows_with_commas_quotes_and_lines_survive_csv(page):
    rows = [["a", 'say "hi"', "one, two"], ["line\nbreak", None, 0.5], ["", "é", " x"]]
    text = page.evaluate("rows => TreeRace.downloads.asCsv(rows)", rows)
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["" if v is None else str(v) for v in row] for row in rows
    ]


@pytest.mark.looks
def test_the_lab_fits_the_window_in_both_themes(page, messages):
    open_lab(page)
    feed(page, "sweep", messages)
    wait_for_plots(page)
    for room in ((1280, 720), (1920, 1080), (390, 844)):
        fits(page, *room)


DRAWN_ANEW = """() => [...document.querySelectorAll('[data-lab-sweep] [data-canvas]')].every(
  ({ layout, clientWidth, clientHeight }) => layout.width === clientWidth && layout.height === clientHeight)"""


def fits(page: Page, width: int, height: int) -> None:
    page.set_viewport_size({"width": width, "height": height})
    for _ in range(2):
        page.locator("[data-theme]").click()
        page.wait_for_function(DRAWN_ANEW)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if width > 900:
            assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        boxes = [page.locator(canvas(name)).bounding_box() for name in ("speedup", "tau", "cost", "depth", "rank")]
        assert all(box["height"] > 100 and box["width"] > 200 for box in boxes)
        for grid in ("nodes × temperature", "depth × width"):
            page.get_by_role("radio", name=grid).check(force=True)
            within = "form => [form, ...form.querySelectorAll('label')].every((each) => each.scrollWidth <= each.clientWidth + 1)"
            assert page.locator("[data-lab-sweep] .sweep-form").evaluate(within)
        ink = page.evaluate("getComputedStyle(document.querySelector('.lab')).color")
        drawn = page.locator(f"{canvas('depth')} .scatterlayer .js-line").evaluate(
            "line => getComputedStyle(line).stroke"
        )
        assert drawn == ink


def test_the_second_grid_asks_for_nodes_and_temperatures(page):
    open_lab(page)
    expect(page.locator("#dials .heat")).to_be_visible()
    page.get_by_role("radio", name="nodes × temperature").check(force=True)
    expect(page.locator("#dials .heat")).to_be_hidden()
    order = page.evaluate("TreeRace.sweep.order({ prompt: 'a prompt', temperature: 0.3, seed: 7 })")
    assert order == {
        "prompts": ["a prompt"],
        "system": "tree",
        "grid": "budget",
        "depth": [6],
        "width": [4],
        "nodes": [2, 4, 8, 12, 16, 24],
        "temperature": [0, 0.4, 0.8, 1.2],
        "max_new_tokens": 48,
        "seed": 7,
    }
    assert SweepPlan(**order).cell_settings[-1] == {"depth": 6, "width": 4, "nodes": 24, "temperature": 1.2}
    page.get_by_role("radio", name="depth × width").check(force=True)
    order = page.evaluate("TreeRace.sweep.order({ prompt: 'a prompt', temperature: 0.3, seed: 7 })")
    assert len(SweepPlan(**order).cell_settings) == 24 and order["temperature"] == [0.3]


@pytest.mark.looks
def test_a_sentence_from_the_server_is_never_markup(page, messages):
    hostile = "<img src=x onerror=window.__hostile=1>"
    start, *_, end = messages
    refused = {"x": 1, "y": 1, "refused": hostile}
    changed = {
        **end,
        "seq": start["seq"] + 1,
        "cells": [refused, *end["cells"][1:]],
        "summary": {**end["summary"], "sentence": hostile},
    }
    open_lab(page)
    feed(page, "sweep", [start, changed])
    expect(page.locator(WORDS)).to_have_text(hostile)
    plot = page.locator(f"{canvas('speedup')} .nsewdrag")
    box = plot.bounding_box()
    plot.hover(position={"x": box["width"] * 0.25, "y": box["height"] * 0.75})
    assert page.evaluate("window.__hostile") is None
    assert page.locator("[data-lab] img").count() == 0
