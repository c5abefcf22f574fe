"""Systems on the page: menus, cards, a mix of one's own, and what is raced next."""

import pytest
from playwright.sync_api import expect

from engine.systems import SYSTEMS
from helpers.page import (
    RESULT,
    choose,
    dial,
    play,
    race,
)
from helpers.traces import make_step, one_node


@pytest.mark.looks
def test_a_system_brings_its_own_tree_shape(page):
    choose(page, 1, "prompt lookup")
    expect(page.locator(".right [data-badge]")).to_have_text("same tokens")
    expect(page.locator(".right [data-its-idea]")).to_contain_text("earlier in the text")
    expect(page.get_by_label("number input for Width", exact=True)).to_have_value("2")


@pytest.mark.looks
def test_the_menus_offer_every_system_and_mark_the_lossy_ones(page):
    page.locator("#systems input").nth(0).click()
    options = page.locator("#systems [role=option]")
    expect(options).to_have_count(len(SYSTEMS) + 1)
    labels = options.evaluate_all("options => options.map(each => each.ariaLabel)")
    assert "mix your own" in labels[-1]
    for system in SYSTEMS.values():
        [label] = [each for each in labels if each.removesuffix(" · lossy") == system.title]
        assert ("lossy" in label) == (system.guarantee == "lossy")


@pytest.mark.looks
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


def test_a_card_says_its_shape_and_one_click_takes_the_papers_own(page):
    """Figures as the server sends them of a system whose shapes were counted; those of the tests' server race in their papers'."""
    badge, words = page.locator(".right [data-badge]"), page.locator(".right [data-shape-words]")
    dial(page, "number input for Depth", 2)
    expect(words).to_be_hidden()
    shapes = {"4x4x8": {"tau": 2.1, "cost": 2.4}, "2x3x4": {"tau": 1.9, "cost": 2.0}}
    page.evaluate("shapes => { TreeRace.view.lanes[1].card.look = async () => ({ costs: { shapes } }); }", shapes)
    badge.click()
    expect(words).to_have_text(
        "Races in 2 x 3 x 4, the best of 2 on this machine; the paper’s own: 4 x 4 x 8. "
        "At its best shape a round costs 2.00 plain rounds and yields 1.90 tokens, so plain decoding is faster."
    )
    page.get_by_role("button", name="Take 4 x 4 x 8").click()
    expect(page.get_by_label("number input for Depth", exact=True)).to_have_value("4")
    expect(page.locator(".right [data-card]")).to_be_hidden()


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


@pytest.mark.looks
def test_what_was_raced_and_what_comes_next_are_told_apart(page):
    play(page, [(0, one_node(burst=[99], end="length")), (1, make_step(end="length"))], **RESULT)
    lane = page.locator(".lane.right")
    assert "next" not in lane.get_attribute("class")
    choose(page, 1, "draft chain")
    expect(lane).to_have_class("lane right done next")
    choose(page, 1, "draft tree")
    expect(lane).to_have_class("lane right done")
