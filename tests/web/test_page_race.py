"""The page in a real Chromium, on the embedded models: one server, a fresh tab for each test."""

import json
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from engine.measure.node_order import ORDERS, mask_blocks
from engine.systems import SYSTEMS
from helpers.page import (
    HOSTILE,
    IMAGE,
    PROMPT,
    RESULT,
    choose,
    dial,
    finish,
    pace,
    play,
    race,
    shown_step,
    start_race,
    texts,
)
from helpers.paths import ROOT
from helpers.traces import make_step, one_node


def test_a_race_ends_with_two_equal_texts(page):
    race(page)
    expect(page.locator("[data-verdict]")).to_contain_text("identical: 32 of 32 tokens")
    left, right = texts(page)
    assert left == right and len(left) > 30
    expect(page.locator("[data-count]")).to_have_text(["32 of 32 tokens"] * 2)
    assert page.locator("[data-lane] [data-clock]").all_text_contents() == [
        f"{seconds:.3f} s" for seconds in page.evaluate("TreeRace.view.lanes.map(lane => lane.lastTime)")
    ]


def test_sampled_lanes_write_the_same_too(page):
    dial(page, "number input for Temperature", 0.8)
    race(page)
    expect(page.locator("[data-verdict]")).to_contain_text("identical: ")
    left, right = texts(page)
    assert left == right


def test_the_tree_and_the_mask_of_the_step_are_drawn(page):
    choose(page, 1, "bigram tree")
    race(page)
    page.evaluate("TreeRace.view.go(0)")  # the last step may have no room left for guesses
    drawn = page.evaluate(
        """() => {
          const step = TreeRace.view.steps[TreeRace.view.step];
          const [tree, mask] = ['tree', 'mask'].map((name) => document.querySelector(`[data-${name}]`));
          const count = (plot, marks) => plot.querySelectorAll(marks).length;
          return {
            nodes: step.parents.length, bonus: Number(step.has_bonus),
            points: count(tree, '.points path'), labels: count(tree, '.textpoint'),
            rows: mask.data[0].z.length, columns: mask.data[0].z[0].length,
            heat: count(mask, '.hm image'), ticks: count(mask, '.ytick text'),
          };
        }"""
    )
    assert drawn["nodes"] > 1 and drawn["points"] == drawn["nodes"] + drawn["bonus"] and drawn["labels"] > 0
    assert (drawn["rows"], drawn["columns"]) == (drawn["nodes"], drawn["nodes"] + 1)
    assert drawn["heat"] == 1 and drawn["ticks"] == drawn["nodes"]


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


def test_stop_stops_and_the_next_race_runs(page):
    pace(page, "0.1×")
    start_race(page, tokens=900)
    page.wait_for_function("TreeRace.view.time > 0")
    page.click("#race-halt")
    expect(page.locator("[data-verdict]")).to_contain_text("Stopped")
    before = page.evaluate("TreeRace.view.time")
    page.wait_for_timeout(300)
    assert page.evaluate("TreeRace.view.time") == before
    pace(page, "1×")
    race(page)
    expect(page.locator("[data-verdict]")).to_contain_text("identical: 32 of 32 tokens")


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
    page.click("#race-go")
    expect(page.get_by_test_id("toast-body")).to_contain_text(words)
    expect(page.locator("[data-verdict]")).to_have_text("Nothing was raced.")
    assert page.input_value("#prompt textarea") == prompt


def test_a_prompt_is_never_markup(page):
    race(page, "Story: " + IMAGE + HOSTILE[0])
    assert IMAGE in page.locator("[data-prompt]").first.text_content()
    assert page.evaluate("window.__hostile") is None
    assert page.locator("[data-race] img, [data-race] b b").count() == 0


def test_tokens_are_never_markup(page):
    """The models hardly ever write tags, so the events of a made-up race go to the page in their place."""
    texts_of_nodes = [" was", *HOSTILE]
    step = make_step(texts=texts_of_nodes, pieces=HOSTILE[:3], bonus_text=IMAGE, end="length")
    play(page, [(0, one_node(burst=[99], pieces=[IMAGE], bonus_text=IMAGE, end="length")), (1, step)], **RESULT)
    assert texts(page)[1] == "".join(HOSTILE[:3])
    labels = page.locator("[data-tree] .textpoint").all_text_contents()
    for label, text in zip(labels, [*texts_of_nodes, IMAGE], strict=True):  # long labels are cut
        start = label.removeprefix("·").removesuffix("…")
        assert len(start) > 2 and text.strip().startswith(start)
    assert IMAGE in page.locator("[data-sentence]").text_content()
    page.hover("[data-tree] .points path >> nth=2", force=True)
    expect(page.locator("[data-tree] .hovertext")).to_contain_text(IMAGE)
    page.get_by_text("Drafter’s view").click()
    page.wait_for_selector("[data-guess] .ytick text")
    page.hover("[data-guess] .scatterlayer .point >> nth=1", force=True)
    expect(page.locator("[data-guess] .hovertext")).to_be_visible()
    assert page.evaluate("window.__hostile") is None
    assert page.locator("[data-race] img, [data-race] svg a").count() == 0


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
    expect(page.locator("[data-lane]")).to_have_count(2)
    assert page.evaluate("document.body.classList.contains('dark')") != was
    expect(page.locator("[data-theme]")).to_have_attribute("aria-pressed", str(not was).lower())


def test_the_gallery_fills_the_prompt(page):
    prompts = json.loads((ROOT / "assets" / "prompts.json").read_text("utf-8"))
    for domain, choices in prompts.items():
        page.get_by_role("button", name=domain, exact=True).click()
        page.locator(".prompt:visible").nth(1).click()
        assert page.input_value("#prompt textarea") == choices[1]["prompt"]


def test_a_system_brings_its_own_tree_shape(page):
    choose(page, 1, "prompt lookup")
    expect(page.locator(".right [data-badge]")).to_have_text("same tokens")
    page.wait_for_function("document.querySelector('.right [data-text]').dataset.idea.includes('earlier in the text')")
    expect(page.get_by_label("number input for Width", exact=True)).to_have_value("2")


# ---- systems, their cards, a mix of one's own


def test_the_menus_offer_every_system_and_mark_the_lossy_ones(page):
    page.locator("#systems input").nth(0).click()
    labels = page.locator("#systems [role=option]").evaluate_all("options => options.map(each => each.ariaLabel)")
    assert len(labels) == len(SYSTEMS) + 1 and "mix your own" in labels[-1]
    for system in SYSTEMS.values():
        [label] = [each for each in labels if each.removesuffix(" · lossy") == system.title]
        assert ("lossy" in label) == (system.guarantee == "lossy")


def test_a_card_opens_and_closes_by_keyboard(page):
    badge, card = page.locator(".right [data-badge]"), page.locator(".right [data-card]")
    tree = SYSTEMS["tree"]
    expect(badge).to_have_accessible_name(f"same tokens: about {tree.title}")
    expect(card).to_be_hidden()
    badge.focus()
    page.keyboard.press("Enter")
    expect(card).to_be_visible()
    expect(badge).to_have_attribute("aria-expanded", "true")
    for words in (tree.title, tree.idea, tree.source, tree.cost, "best first", "token match", "The same tokens"):
        expect(card).to_contain_text(words)
    box = card.bounding_box()
    assert box["x"] + box["width"] <= 1280 and box["y"] + box["height"] <= 720
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    expect(badge).to_be_focused()
    page.keyboard.press("Space")
    page.locator("h1").click()
    expect(card).to_be_hidden()


def test_a_mix_is_raced_and_an_unsound_one_is_refused_with_the_reason(page):
    choose(page, 1, "mix your own")
    drafter, policy, rule = (
        page.get_by_label(f"Your mix: {part}").last for part in ("drafter", "tree policy", "acceptance rule")
    )
    promise, badge = page.locator(".right [data-promise]"), page.locator(".right [data-badge]")
    expect(drafter).to_be_focused()
    drafter.select_option("bigram")
    policy.select_option("kary")
    rule.select_option("speculative")
    expect(promise).to_contain_text("kary with speculative would bias the output")
    expect(badge).to_have_text("not possible")
    page.click("#race-go")
    expect(page.get_by_test_id("toast-body")).to_contain_text("would bias the output")
    expect(page.locator("[data-verdict]")).to_have_text("Nothing was raced.")
    badge.click()
    rule.select_option("token_match")
    expect(badge).to_have_text("same tokens")
    expect(page.locator(".right [data-its-name]")).to_have_text("bigram/kary/token_match")
    expect(page.get_by_label("number input for Depth", exact=True)).to_have_value("3")
    race(page)
    expect(page.locator("[data-verdict]")).to_contain_text("identical: 32 of 32 tokens")
    assert page.evaluate("TreeRace.view.systems.map(system => system.name)") == ["vanilla", "bigram/kary/token_match"]


def test_what_was_raced_and_what_comes_next_are_told_apart(page):
    play(page, [(0, one_node(burst=[99], end="length")), (1, make_step(end="length"))], **RESULT)
    lane = page.locator(".lane.right")
    assert "next" not in lane.get_attribute("class")
    choose(page, 1, "draft chain")
    expect(lane).to_have_class("lane right done next")
    choose(page, 1, "draft tree")
    expect(lane).to_have_class("lane right done")


def test_the_verdict_is_honest(page):
    steps = [(0, one_node(burst=[99], end="length")), (1, make_step(end="length"))]
    differ = {**RESULT, "divergence": {"index": 1, "left": " a", "right": " b"}}
    for result, outcome, words in [
        ({**RESULT, "speedup": 1.04}, "level", "identical: 3 of 3"),
        ({**RESULT, "speedup": 0.96}, "level", "identical: 3 of 3"),
        ({**RESULT, "speedup": 0.5}, "2.0× slower", "identical: 3 of 3"),
        ({**differ, "identical": "law"}, "2.0× faster", "same distribution"),
        ({**differ, "identical": "lossy"}, "2.0× faster", "lossy: other text from token 2 on: “a” or “b”"),
        ({**differ, "identical": False}, "2.0× faster", "not identical from token 2 on"),
    ]:
        play(page, steps, **result)
        expect(page.locator("#race [data-words]")).to_contain_text(words)
        expect(page.locator("[data-outcome]")).to_have_text(outcome)


# ---- the step from other sides


def test_either_lane_shows_its_trees(page):
    play(page, [(0, make_step(end="length")), (1, one_node(burst=[99], end="length"))], **RESULT)
    points = page.locator("[data-tree] .points path")
    assert page.evaluate("TreeRace.view.focus") == 0
    expect(points).to_have_count(7)
    page.get_by_role("radio", name="right").check(force=True)
    expect(points).to_have_count(2)
    page.get_by_role("radio", name="right").focus()
    page.keyboard.press("ArrowLeft")
    expect(points).to_have_count(7)
    page.locator(".lane.right .burst").click()
    expect(points).to_have_count(2)


def test_the_drafters_view_has_a_bar_and_a_mark_for_every_guess(page):
    play(page, [(0, one_node(burst=[99], end="length")), (1, make_step(end="length"))], **RESULT)
    mask = page.get_by_role("radio", name="Attention mask")
    mask.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-guess-words]")).to_have_text("The drafter gave “big” 40 %, the target 10 %.")
    expect(page.locator("[data-guess] .scatterlayer .point")).to_have_count(5)
    expect(page.locator("[data-guess] .bars .point")).to_have_count(5)
    bars, marks = page.evaluate("document.querySelector('[data-guess]').data.map(({ x }) => x)")
    best_first = [1, 2, 4, 3, 5]
    assert bars == [make_step().q[node] for node in best_first]
    assert marks == [make_step().p[node] for node in best_first]
    expect(page.locator("[data-mask]")).to_be_hidden()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[data-mask] .hm image")).to_be_visible()


TREES = [
    [-1],
    [-1, 0, 1, 2, 3],
    [-1, 0, 0, 1, 1, 2],
    [-1, 0, 1, 0, 2, 3, 0, 5, 5, 1],
    [-1, *((i * 7919) % (i + 1) // 2 for i in range(30))],
    [-1, *(i // 2 for i in range(63))],
]


def test_the_pages_orders_are_the_engines(page):
    sent = {"trees": TREES, "blocks": [2, 4, 8]}
    for parents, drawn in zip(
        TREES,
        page.evaluate(
            """({ trees, blocks }) => trees.map((parents) => Object.entries(TreeRace.ORDERS).map(([name, order]) => {
              const nodes = order(parents);
              return [name, nodes, blocks.map((block) => TreeRace.maskBlocks(parents, nodes, block).length)];
            }))""",
            sent,
        ),
        strict=True,
    ):
        assert [name for name, _, _ in drawn] == list(ORDERS)
        for name, nodes, counts in drawn:
            assert nodes == ORDERS[name](SimpleNamespace(parents=parents))
            moved = [-1, *(nodes.index(parents[node]) for node in nodes[1:])]
            assert counts == [mask_blocks(moved, block) for block in sent["blocks"]]


def test_a_node_order_moves_the_mask_and_counts_its_blocks(page):
    wide = make_step(parents=[-1, 0, 0, 1, 2, 3], path=[], burst=[99], end="length")
    play(page, [(0, one_node(burst=[99], end="length")), (1, wide)], **RESULT)
    rows = "document.querySelector('[data-mask]').layout?.yaxis.ticktext.length"
    z = "document.querySelector('[data-mask]').data[0].z"
    page.wait_for_function(f"{rows} === 6")
    assert page.locator("[data-orders] b").all_text_contents() == ["6", "5", "5"]
    before = page.evaluate(z)
    page.get_by_role("radio", name="insertion").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="DFS")).to_be_checked()
    assert page.evaluate(z) != before and page.evaluate(rows) == 6
    assert shown_step(page) == 0
    assert page.evaluate("document.querySelector('[data-mask]').layout.shapes.length") == 5


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
