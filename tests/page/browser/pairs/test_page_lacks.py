"""A pair that lacks most parts, on the page: menus, field, Lab and Learn offer what it has and say what each other system needs."""

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from engine.page.screens.cards import map_unraceable_systems_and_parts
from engine.record.calibration import Calibration
from engine.systems import SYSTEMS
from helpers.page import choose, idle, open_view
from helpers.pairs import tiny_pair

BARE = """lacks => {
  const { pairs } = TreeRace;
  pairs.hear({ ...pairs.own, lacks });
  pairs.hear = () => {}; // the server, whose pair has all parts, goes on telling of it
}"""


@pytest.fixture(scope="module")
def lacking() -> dict:
    return map_unraceable_systems_and_parts(
        replace(tiny_pair(), draft=None, bigram=None, learned={}, calibration=Calibration())
    )


@pytest.fixture
def bare(page, lacking):
    """The page, whose pair has a target alone. It was opened with the draft tree in the right lane."""
    page.evaluate(BARE, lacking)
    expect(page.locator("#systems input").nth(1)).to_have_value(SYSTEMS["auto"].title)
    return page


def test_the_lane_that_cannot_race_takes_another_system_and_the_page_says_why(bare):
    said = "“draft tree” needs a draft model, so “draft tree, sizes itself” takes its place."
    expect(bare.locator("[data-notice]")).to_contain_text(said)
    expect(bare.get_by_label("number input for Depth", exact=True)).to_have_value(str(SYSTEMS["auto"].depth))
    expect(bare.locator(".right [data-badge]")).to_have_text("same tokens")


def test_what_cannot_race_says_what_it_needs_and_cannot_be_chosen(bare, lacking):
    menu, options = bare.locator("#systems input").nth(1), bare.locator("#systems [role=option]")
    menu.click()
    told = options.evaluate_all(
        "all => all.map(each => [each.ariaLabel, each.ariaDisabled === 'true' ? getComputedStyle(each, '::after').content : ''])"
    )
    titles = {label.removesuffix(" · lossy"): words for label, words in told}
    for name, system in SYSTEMS.items():
        needs = lacking["systems"].get(name, {}).get("needs")
        assert titles[system.title] == (f'"needs {needs}"' if needs else ""), name
    box = bare.locator("#systems .options").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 1280
    bare.get_by_role("option", name="EAGLE tree", exact=True).click(force=True)
    expect(menu).to_have_value("draft tree, sizes itself")
    menu.fill("")
    menu.press_sequentially("EAGLE tree")
    expect(options).to_have_count(1)
    expect(options).to_have_attribute("aria-disabled", "true")
    menu.press("Enter")
    menu.press("Escape")
    bare.locator("#prompt textarea").click()
    expect(menu).to_have_value("draft tree, sizes itself")
    choose(bare, 1, "prompt lookup")


def test_a_card_says_what_its_system_needs_in_place_of_a_promise(bare, lacking):
    bare.evaluate("TreeRace.view.lanes[1].card.show(TreeRace.view.about.systems.eagle)")
    expect(bare.locator(".right [data-badge]")).to_have_text("not here")
    bare.locator(".right [data-badge]").click()
    promise = bare.locator(".right [data-promise]")
    expect(promise).to_have_text(lacking["systems"]["eagle"]["refusal"])
    bare.evaluate("lacks => { TreeRace.pairs.own.lacks = lacks; TreeRace.pairs.show(); }", lacking | {"systems": {}})
    expect(promise).to_contain_text("The same tokens")


def test_a_mix_cannot_take_what_the_pair_lacks(bare):
    choose(bare, 1, "mix your own")
    drafter, policy = (bare.get_by_label(f"Your mix: {part}").last for part in ("drafter", "tree policy"))
    assert drafter.locator("option[value=eagle]").inner_text() == "eagle · needs a trained EAGLE drafter"
    assert drafter.evaluate("menu => [...menu.options].filter(each => !each.disabled).map(each => each.value)") == [
        "none", "lookup", "suffix", "recycling", "lookahead", "forced", "best",
    ]  # fmt: skip
    assert policy.locator("option[value=sparse]").evaluate("each => each.disabled")


def test_presets_of_the_grand_prix_take_what_the_pair_has_and_say_what_they_leave_out(bare, lacking):
    bare.evaluate("TreeRace.screens.showScreen('prix')")
    field = "TreeRace.prix.field.names"
    assert bare.evaluate(field) == ["vanilla", "auto", "lookup", "recycling"]
    words = bare.locator("[data-prix-words]")
    left_out = "Left out, for this model lacks what they need: draft chain, draft tree, EAGLE tree, parallel tree, naive p/q tree"
    expect(words).to_contain_text(left_out)
    presets = bare.locator("[data-prix-presets] label:visible")
    assert presets.all_inner_texts() == ["the story", "one of every kind"]  # the others would be the first one again
    presets.nth(1).click()
    assert bare.evaluate(field) == ["vanilla", "recycling", "suffix", "auto"]
    expect(words).to_contain_text("DFlash tree")
    bare.locator("[data-prix-open]").click()
    for name in SYSTEMS:
        box = bare.locator(f"[data-prix-entries] input[value='{name}']")
        assert box.is_disabled() == (name in lacking["systems"] or name == "vanilla"), name
    panel = bare.locator("[data-prix-panel]")
    expect(panel).to_contain_text("needs a trained EAGLE drafter")
    assert panel.evaluate(
        "each => each.scrollWidth <= each.clientWidth && each.getBoundingClientRect().bottom <= innerHeight"
    )
    bare.evaluate("lacks => { TreeRace.pairs.own.lacks = lacks; TreeRace.pairs.show(); }", lacking | {"systems": {}})
    assert bare.evaluate(field)[:4] == ["vanilla", "chain", "tree", "eagle"]
    expect(words).not_to_contain_text("Left out")


def test_the_labs_menus_offer_what_the_pair_has(bare, lacking):
    open_view(bare, "sweep")
    menu = bare.locator("[data-lab-sweep] [data-system]")
    expect(menu).to_have_value("lookup")
    assert menu.locator("option[value=tree]").evaluate("each => each.disabled")
    expect(bare.locator("[data-lab-words]")).to_contain_text("needs a draft model, so “prompt lookup” takes its place.")
    open_view(bare, "prompts")
    expect(bare.locator("[data-lab-prompts] [data-system]")).to_have_value("auto")
    open_view(bare, "pays")
    pays = bare.locator("[data-lab-pays] [data-systems]")
    assert pays.locator("option[value=eagle]").inner_text() == "EAGLE tree · needs a trained EAGLE drafter"
    bare.evaluate("lacks => { TreeRace.pairs.own.lacks = lacks; TreeRace.pairs.show(); }", lacking | {"systems": {}})
    expect(menu).to_have_value("tree")
    assert pays.locator("option[value=eagle]").inner_text() == "EAGLE tree"


def test_learn_shows_a_tree_that_the_pair_has_and_breaks_that_one(bare):
    bare.evaluate("TreeRace.walk.open(4)")
    walk = bare.get_by_role("complementary", name="Guided walk")
    expect(walk).to_contain_text("“draft tree” needs a draft model, so “token recycling” takes its place.")
    expect(bare.locator("#systems input").nth(1)).to_have_value("token recycling")
    bare.evaluate("TreeRace.view.race.press = () => {}")  # a race with it is the server's matter
    walk.get_by_role("switch").first.click()
    bare.wait_for_function("TreeRace.walk.breaks.name === 'recycling!mask'")
    expect(bare.locator(".left [data-its-name]")).to_have_text("recycling")
    expect(bare.locator(".right [data-its-name]")).to_have_text("recycling!mask")


def test_a_recorded_race_names_its_model(page, server):
    tab = idle(page, server)
    expect(tab.locator("[data-recorded]")).to_contain_text("67M embedded pair, recorded on ")
    tab.close()
