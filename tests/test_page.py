"""The page in a real Chromium and its API, on the embedded models: one server, a fresh tab for each test."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from gradio_client import Client
from playwright.sync_api import Page, expect, sync_playwright
from test_views import FakeRace, make_step, one_node

from engine.views import wire

ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
FLAGS += ["--disable-component-update", "--disable-sync"]
PROMPT = "Story: Once upon a time, there was a little fox who"
PATIENCE = 120_000  # milliseconds; a busy machine is slow, a broken page waits for ever
IMAGE = "<img src=x onerror=window.__hostile=1>"
HOSTILE = [" <b>x</b>", IMAGE, "<a href='javascript:1'>y</a>", "&amp;", "${1+1}{{x}}"]
expect.set_options(timeout=60_000)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "app.py", "--port", str(port)], cwd=ROOT)
    url = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(600):
            assert process.poll() is None, "app.py ended before it served"
            try:
                urllib.request.urlopen(url, timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(server, browser) -> Iterator[Page]:
    """The page at 1280x720, at full speed. Afterwards: nothing in the console, and no request to anywhere else."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    complaints, requests = [], []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(server)
    expect(opened.locator("[data-lane]")).to_have_count(2)
    expect(opened.locator("#prompt textarea")).to_be_visible()
    opened.select_option("[data-rate]", "1")
    yield opened
    context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith((server, "data:", "blob:"))] == []


def dial(page: Page, label: str, value: float) -> None:
    box = page.get_by_label(label, exact=True).first
    box.fill(str(value))
    box.press("Tab")


def start_race(page: Page, prompt: str = PROMPT, tokens: int = 32) -> None:
    page.fill("#prompt textarea", prompt)
    dial(page, "New tokens", tokens)
    page.click("#go")


def finish(page: Page) -> None:
    page.wait_for_selector("[data-race][data-state=done]", timeout=PATIENCE)


def race(page: Page, prompt: str = PROMPT, tokens: int = 32) -> None:
    start_race(page, prompt, tokens)
    finish(page)


def texts(page: Page) -> list[str]:
    return page.locator("[data-bursts]").all_text_contents()


def shown_step(page: Page) -> int:
    return page.evaluate("TreeRace.view.step")


@needs_chromium
def test_a_race_ends_with_two_equal_texts(page):
    race(page)
    expect(page.locator("[data-verdict]")).to_contain_text("identical: 32 of 32 tokens")
    left, right = texts(page)
    assert left == right and len(left) > 30
    expect(page.locator("[data-count]")).to_have_text(["32 of 32 tokens"] * 2)
    assert page.locator("[data-lane] [data-clock]").all_text_contents() == [
        f"{seconds:.3f} s" for seconds in page.evaluate("TreeRace.view.lanes.map(lane => lane.lastTime)")
    ]


@needs_chromium
def test_sampled_lanes_write_the_same_too(page):
    dial(page, "number input for Temperature", 0.8)
    race(page)
    expect(page.locator("[data-verdict]")).to_contain_text("identical: ")
    left, right = texts(page)
    assert left == right


@needs_chromium
def test_the_tree_and_the_mask_of_the_step_are_drawn(page):
    page.locator("#systems input").nth(1).click()
    page.get_by_role("option", name="bigram tree").click()
    race(page)
    page.evaluate("TreeRace.view.go(0)")  # the last step may have no room left for guesses
    drawn = page.evaluate(
        """() => {
          const step = TreeRace.view.steps[TreeRace.view.step];
          const [tree, mask] = ['tree', 'mask'].map((name) => document.querySelector(`[data-${name}]`));
          const count = (plot, marks) => plot.querySelectorAll(marks).length;
          return {
            nodes: step.parents.length, bonus: step.bonus ? 1 : 0,
            points: count(tree, '.points path'), labels: count(tree, '.textpoint'),
            rows: mask.data[0].z.length, columns: mask.data[0].z[0].length,
            heat: count(mask, '.hm image'), ticks: count(mask, '.ytick text'),
          };
        }"""
    )
    assert drawn["nodes"] > 1 and drawn["points"] == drawn["nodes"] + drawn["bonus"] and drawn["labels"] > 0
    assert (drawn["rows"], drawn["columns"]) == (drawn["nodes"], drawn["nodes"] + 1)
    assert drawn["heat"] == 1 and drawn["ticks"] == drawn["nodes"]


@needs_chromium
def test_keys_move_over_the_steps(page):
    race(page)
    last = shown_step(page)
    page.locator("h1").click()
    assert page.evaluate("TreeRace.view.steps.length") == last + 1
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
    page.keyboard.press("Space")
    page.wait_for_function("TreeRace.view.playing")
    page.wait_for_function("!TreeRace.view.playing")
    page.locator(".right .burst").nth(1).click()
    assert shown_step(page) == 1
    page.locator("[data-scrub]").fill("3")
    assert shown_step(page) == 3


@needs_chromium
def test_stop_stops_and_the_next_race_runs(page):
    page.select_option("[data-rate]", "20")
    start_race(page, tokens=900)
    page.wait_for_function("TreeRace.view.time > 0")
    page.click("#halt")
    expect(page.locator("[data-verdict]")).to_contain_text("Stopped")
    before = page.evaluate("TreeRace.view.time")
    page.wait_for_timeout(300)
    assert page.evaluate("TreeRace.view.time") == before
    page.select_option("[data-rate]", "1")
    race(page)
    expect(page.locator("[data-verdict]")).to_contain_text("identical: 32 of 32 tokens")


@needs_chromium
@pytest.mark.parametrize(
    ("prompt", "label", "value", "words"),
    [
        ("  ", "Seed", 0, "prompt is empty"),
        ("x" * 100_000, "Seed", 0, "characters"),
        (PROMPT, "Nodes", 9999, "Nodes must be between"),
        (PROMPT, "New tokens", 0, "must be between"),
    ],
)
def test_bad_input_gets_a_sentence_and_keeps_the_prompt(page, prompt, label, value, words):
    page.evaluate("text => TreeRace.fill('#prompt textarea', text)", prompt)
    dial(page, label, value)
    page.click("#go")
    expect(page.get_by_test_id("toast-body")).to_contain_text(words)
    expect(page.locator("[data-verdict]")).to_have_text("Nothing was raced.")
    assert page.input_value("#prompt textarea") == prompt


@needs_chromium
def test_a_prompt_is_never_markup(page):
    race(page, "Story: " + IMAGE + HOSTILE[0])
    assert IMAGE in page.locator("[data-prompt]").first.text_content()
    assert page.evaluate("window.__hostile") is None
    assert page.locator("[data-race] img, [data-race] b b").count() == 0


@needs_chromium
def test_tokens_are_never_markup(page):
    """The models hardly ever write tags, so the events of a made-up race go to the page in their place."""
    texts_of_nodes = [" was", *HOSTILE]
    step = make_step(texts=texts_of_nodes, pieces=HOSTILE[:3], bonus_text=IMAGE, end="length")
    made_up = FakeRace([(0, one_node(burst=[99], pieces=[IMAGE], bonus_text=IMAGE, end="length")), (1, step)])
    for event in wire.events(made_up):
        page.evaluate("event => dispatchEvent(new CustomEvent('treerace', { detail: JSON.parse(event) }))", event)
    page.wait_for_selector("[data-tree] .textpoint")
    assert texts(page)[1] == "".join(HOSTILE[:3])
    labels = page.locator("[data-tree] .textpoint").all_text_contents()
    for label, text in zip(labels, [*texts_of_nodes, IMAGE], strict=True):  # long labels are cut
        start = label.removeprefix("·").removesuffix("…")
        assert len(start) > 2 and text.strip().startswith(start)
    assert IMAGE in page.locator("[data-sentence]").text_content()
    page.hover("[data-tree] .points path >> nth=2", force=True)
    expect(page.locator("[data-tree] .hovertext")).to_contain_text(IMAGE)
    assert page.evaluate("window.__hostile") is None
    assert page.locator("[data-race] img, [data-race] svg a").count() == 0


@needs_chromium
def test_dark_mode_is_a_button(page):
    background = "getComputedStyle(document.querySelector('.lane')).backgroundColor"
    before = page.evaluate(background)
    page.click("[data-theme]")
    assert page.evaluate("document.body.classList.contains('dark')")
    assert page.evaluate(background) != before
    race(page)


@needs_chromium
def test_the_gallery_fills_the_prompt(page):
    prompts = json.loads((ROOT / "assets" / "prompts.json").read_text("utf-8"))
    for domain, choices in prompts.items():
        page.get_by_role("button", name=domain, exact=True).click()
        page.locator(".prompt:visible").nth(1).click()
        assert page.input_value("#prompt textarea") == choices[1]["prompt"]


@needs_chromium
def test_a_system_brings_its_own_tree_shape(page):
    page.locator("#systems input").nth(1).click()
    page.get_by_role("option", name="prompt lookup").click()
    expect(page.locator(".right [data-badge]")).to_have_text("same tokens")
    page.wait_for_function("document.querySelector('.right [data-text]').dataset.idea.includes('earlier in the text')")
    expect(page.get_by_label("number input for Width", exact=True)).to_have_value("2")


@needs_chromium
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080)])
def test_the_whole_race_fits_one_screen(page, width, height):
    page.set_viewport_size({"width": width, "height": height})
    start_race(page)
    fits = "document.documentElement.scrollHeight <= innerHeight && document.documentElement.scrollWidth <= innerWidth"
    page.wait_for_function("TreeRace.view.time > 0")
    assert page.evaluate(fits)
    finish(page)
    assert page.evaluate(fits)
    for part in ("#prompt", ".lanes", "[data-verdict]", "[data-tree]", "[data-mask]", ".scrub", "#dials"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= height and box["height"] > 20, part


# ---- the API


@pytest.fixture(scope="module")
def client(server) -> Client:
    return Client(server, verbose=False)


def test_the_api_streams_the_race(client):
    strings = list(client.submit(PROMPT, "tree", 4, 4, 0.0, 24, 0, api_name="/race"))
    events = [json.loads(each) for each in strings]
    assert all(isinstance(each, str) for each in strings) and len(events) >= 2
    assert events[0]["start"] and [event["seq"] for event in events] == list(range(1, len(events) + 1))
    last = events[-1]
    assert last["end"] is True and last["identical"] is True
    assert [lane["name"] for lane in last["lanes"]] == ["vanilla", "tree"]
    assert all(lane.keys() >= {"name", "text", "tokens", "seconds", "forwards", "tau"} for lane in last["lanes"])
    written = ["", ""]
    for lane, step in (each for event in events for each in event.get("steps", [])):
        written[lane] += "".join(step["pieces"])
    assert written == [lane["text"] for lane in last["lanes"]]


def test_the_api_answers_a_plain_call_with_the_last_string(client):
    last = json.loads(client.predict(PROMPT, "lookup", 3, 2, 0.7, 12, 5, api_name="/race"))
    assert last["end"] is True and last["lanes"][1]["name"] == "lookup" and last["lanes"][1]["tokens"] <= 12


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": None}, "prompt is empty"),
        ({"prompt": "x" * 100_000}, "100,000 characters"),
        ({"system": "warp"}, "Unknown system 'warp'"),
        ({"system": ["tree"]}, "Unknown system"),
        ({"depth": 0}, "Depth must be"),
        ({"depth": 999}, "Depth must be"),
        ({"width": 2.5}, "whole number"),
        ({"temperature": -1}, "Temperature must be"),
        ({"temperature": "NaN"}, "Temperature must be"),
        ({"temperature": None}, "Temperature must be"),
        ({"max_new_tokens": 10**9}, "tokens must be"),
        ({"seed": "x"}, "Seed must be"),
    ],
)
def test_the_api_refuses_with_a_sentence(client, changes, words):
    good = {
        "prompt": PROMPT,
        "system": "tree",
        "depth": 4,
        "width": 4,
        "temperature": 0.0,
        "max_new_tokens": 24,
        "seed": 0,
    }
    with pytest.raises(Exception, match=words) as refusal:
        client.predict(**{**good, **changes}, api_name="/race")
    assert "Traceback" not in str(refusal.value)


def test_the_api_refuses_a_bare_nan(server):
    """Python's client refuses to send NaN; other clients do send it."""
    body = json.dumps({"data": [PROMPT, "tree", 4, 4, float("nan"), 24, 0]}).encode()
    call = urllib.request.Request(f"{server}gradio_api/call/race", body, {"Content-Type": "application/json"})
    event = json.load(urllib.request.urlopen(call, timeout=60))["event_id"]
    answer = urllib.request.urlopen(f"{server}gradio_api/call/race/{event}", timeout=60).read().decode()
    assert "Temperature must be a number" in answer
