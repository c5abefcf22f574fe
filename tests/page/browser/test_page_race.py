"""The race on the page, in a real Chromium on the embedded models."""

import json

import pytest
from playwright.sync_api import expect

from helpers.page import (
    HOSTILE,
    IMAGE,
    PROMPT,
    RESULT,
    at_rest,
    dial,
    finish,
    pace,
    play,
    race,
    refused,
    shown_step,
    start_race,
    texts,
)
from helpers.paths import ROOT
from helpers.traces import make_step, one_node


@pytest.mark.looks
def test_a_race_ends_with_two_equal_texts(page):
    race(page)
    expect(page.locator("[data-verdict]")).to_contain_text("identical: 32 of 32 tokens")
    left, right = texts(page)
    assert left == right and len(left) > 30
    expect(page.locator("[data-count]")).to_have_text(["32 of 32 tokens"] * 2)
    assert page.locator("[data-lane] [data-clock]").all_text_contents() == [
        f"{seconds:.3f} s" for seconds in page.evaluate("TreeRace.view.lanes.map(lane => lane.lastTime)")
    ]


@pytest.mark.looks
def test_sampled_lanes_write_the_same_too(page):
    dial(page, "number input for Temperature", 0.8)
    race(page)
    expect(page.locator("[data-verdict]")).to_contain_text("identical: ")
    left, right = texts(page)
    assert left == right


@pytest.mark.looks
def test_keys_move_over_the_steps(page):
    race(page)
    last = page.evaluate("TreeRace.view.steps.length") - 1
    page.locator("h1").click()
    page.keyboard.press("Home")
    assert shown_step(page) == 0
    sentence = page.locator("[data-sentence]").text_content()
    whole = texts(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert shown_step(page) == 2
    assert page.locator("[data-sentence]").text_content() != sentence
    assert len(texts(page)[1]) > len(whole[1])
    expect(page.locator("[data-step]")).to_have_text(f"step 3 of {last + 1}")
    page.keyboard.press("ArrowLeft")
    assert shown_step(page) == 1
    page.keyboard.press("End")
    assert shown_step(page) == last
    pace(page, "½×")  # in real time it could be over before anybody has seen it play
    page.keyboard.press("Space")
    page.wait_for_function("TreeRace.view.playing")
    pace(page, "real time")
    page.wait_for_function("!TreeRace.view.playing")
    page.locator(".right .burst").nth(1).click()
    assert shown_step(page) == 1
    page.locator("[data-scrub]").fill("3")
    assert shown_step(page) == 3


def test_stop_stops_and_the_next_race_runs(page):
    pace(page, "½×")
    start_race(page, tokens=900)
    page.wait_for_function("TreeRace.view.recorded === null && TreeRace.view.time > 0")
    page.click("#race-halt")
    expect(page.locator("[data-verdict]")).to_contain_text("Stopped")
    before = page.evaluate("TreeRace.view.time")
    at_rest(page)
    assert page.evaluate("TreeRace.view.time") == before
    pace(page, "real time")
    race(page)
    expect(page.locator("[data-verdict]")).to_contain_text("identical: 32 of 32 tokens")


IS_FREE = """each => {
  const { left, top, width, height } = each.getBoundingClientRect();
  return each.contains(document.elementFromPoint(left + width / 2, top + height / 2));
}"""


@pytest.mark.looks
def test_bad_input_gets_a_sentence_and_keeps_the_prompt(page):
    for prompt, label, value, words in (
        ("  ", "Seed", 0, "prompt is empty"),
        ("x" * 100_000, "Seed", 0, "characters"),
        (PROMPT, "Nodes", 9999, "Nodes must be between"),
        (PROMPT, "New tokens", 0, "must be between"),
    ):
        right = page.locator("#dials").get_by_label(label, exact=True).first.input_value()
        page.evaluate("text => TreeRace.form.fill('#prompt textarea', text)", prompt)
        dial(page, label, value)
        page.click("#race-go")
        expect(page.get_by_test_id("toast-body")).to_be_visible()
        expect(page.locator("[data-verdict]")).to_have_text("Nothing was raced.")
        for button in ("#race-go", "#race-halt"):
            assert page.locator(button).evaluate(IS_FREE), f"something lies over {button}"
        assert page.input_value("#prompt textarea") == prompt
        refused(page, words)
        dial(page, label, right)


@pytest.mark.looks
def test_a_prompt_is_never_markup(page):
    race(page, "Story: " + IMAGE + HOSTILE[0])
    assert IMAGE in page.locator("[data-prompt]").first.text_content()
    assert page.evaluate("window.__hostile") is None
    assert page.locator("[data-race] img, [data-race] b b").count() == 0


@pytest.mark.looks
def test_tokens_are_never_markup(page):
    """The models hardly ever write tags, so the events of a made-up race go to the page in their place."""
    texts_of_nodes = [" was", *HOSTILE]
    step = make_step(texts=texts_of_nodes, pieces=HOSTILE[:3], bonus_text=IMAGE, end="length")
    play(page, [(0, one_node(burst=[99], pieces=[IMAGE], bonus_text=IMAGE, end="length")), (1, step)], **RESULT)
    assert texts(page)[1] == "".join(HOSTILE[:3])
    labels = page.locator("[data-tree] .label").all_text_contents()
    for label, text in zip(labels, [*texts_of_nodes, IMAGE], strict=True):  # long labels are cut
        start = label.removeprefix("·").removesuffix("…")
        assert len(start) > 2 and text.strip().startswith(start)
    assert IMAGE in page.locator("[data-sentence]").text_content()
    page.hover("[data-tree] g.node >> nth=2", force=True)
    expect(page.locator("[data-race] > .tip")).to_contain_text(IMAGE)
    page.get_by_text("Drafter’s view").click()
    page.wait_for_selector("[data-guess] .ytick text")
    page.hover("[data-guess] .scatterlayer .point >> nth=1", force=True)
    expect(page.locator("[data-guess] .hovertext")).to_be_visible()
    assert page.evaluate("window.__hostile") is None
    assert page.locator("[data-race] img, [data-race] svg a").count() == 0


@pytest.mark.looks
def test_dark_mode_is_a_button(page):
    background = "getComputedStyle(document.querySelector('.lane')).backgroundColor"
    before = page.evaluate(background)
    page.click("[data-theme]")
    assert page.evaluate("document.body.classList.contains('dark')")
    assert page.evaluate(background) != before
    race(page)


def test_dark_mode_is_remembered(page):
    was = page.evaluate("document.body.classList.contains('dark')")
    page.click("[data-theme]")
    page.reload()
    expect(page.locator("[data-lanes] [data-lane]")).to_have_count(2)
    page.wait_for_function("was => document.body.classList.contains('dark') !== was", arg=was)
    expect(page.locator("[data-theme]")).to_have_attribute("aria-pressed", str(not was).lower())


def test_the_gallery_fills_the_prompt(page):
    prompts = json.loads((ROOT / "assets" / "prompts.json").read_text("utf-8"))
    for domain, choices in prompts.items():
        page.get_by_role("button", name=domain, exact=True).click()
        page.locator(".prompt:visible").nth(1).click()
        expect(page.locator("#prompt textarea")).to_have_value(choices[1]["prompt"])


@pytest.mark.looks
def test_the_verdict_is_honest(page):
    steps = [(0, one_node(burst=[99], end="length")), (1, make_step(end="length"))]
    told = {**RESULT, "lanes": [{"tokens": 30}] * 2}
    differ = {**told, "divergence": {"index": 1, "left": " a", "right": " b"}}
    for result, outcome, words in [
        ({**told, "speedup": 1.04}, "level", "identical: 30 of 30"),
        ({**told, "speedup": 0.96}, "level", "identical: 30 of 30"),
        ({**told, "speedup": 0.5}, "2.0× slower", "identical: 30 of 30"),
        (RESULT, "", "identical: 3 of 3 tokens; too short a text to say how fast"),
        ({**differ, "identical": "law"}, "2.0× faster", "same distribution"),
        ({**differ, "identical": "lossy"}, "2.0× faster", "lossy: other text from token 2 on: “a” or “b”"),
        ({**differ, "identical": False}, "2.0× faster", "not identical from token 2 on"),
    ]:
        play(page, steps, **result)
        expect(page.locator("#race [data-words]")).to_contain_text(words)
        expect(page.locator("[data-outcome]")).to_have_text(outcome)


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080)])
def test_the_whole_race_fits_one_screen(page, width, height):
    page.set_viewport_size({"width": width, "height": height})
    start_race(page)
    fits = "document.documentElement.scrollHeight <= innerHeight && document.documentElement.scrollWidth <= innerWidth"
    page.wait_for_function("TreeRace.view.recorded === null && TreeRace.view.time > 0")
    assert page.evaluate(fits)
    finish(page)
    assert page.evaluate(fits)
    for part in ("#prompt", ".lanes", "[data-verdict]", "[data-tree]", "[data-mask]", ".scrub", "#dials"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= height and box["height"] > 20, part
