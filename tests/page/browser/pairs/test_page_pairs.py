"""The choice between the embedded pairs, in a real Chromium on the default page: every visitor's own, on all screens and in links."""

import json
from collections.abc import Iterator

import pytest
from gradio_client import Client
from playwright.sync_api import BrowserContext, Page, expect

from engine.models.pairs import EMBEDDED, PAIRS
from engine.page.screens.answers import CHAT_PROMPTS, PROMPTS
from helpers.commands import starting_app
from helpers.page import NO_STORY, PATIENCE, PROMPT, REAL_TIME, race

TITLES = {name: PAIRS[name].title for name in EMBEDDED}
GROWTH = 11  # the page of Learn on both models, counted from 0
REQUEST = CHAT_PROMPTS["chat"][0]["prompt"]
RACED = "TreeRace.view.systems.map(({ trace }) => trace.pair)"


@pytest.fixture(scope="module")
def default_server():
    """The page of the default pair, as soon as it is live: its races make ready what they lack, and run once."""
    with starting_app(bare=True) as address:
        yield address("live")


@pytest.fixture(scope="module")
def context(browser) -> Iterator[BrowserContext]:
    """What has been loaded once is there for every visitor."""
    with browser.new_context(viewport={"width": 1280, "height": 720}) as context:
        context.set_default_timeout(PATIENCE)
        context.add_init_script(NO_STORY + REAL_TIME)
        yield context


@pytest.fixture
def visit(context, default_server):
    """Opens the page for another visitor, in a session of his own."""

    def visit() -> Page:
        page = context.new_page()
        page.goto(f"{default_server}?seed=0")
        page.wait_for_function("window.TreeRace?.view && TreeRace.walk")
        return page

    yield visit
    for page in context.pages:
        page.close()


@pytest.fixture
def visitor(visit):
    return visit()


def size(page: Page, name: str):
    return page.get_by_role("radiogroup", name="Parameters of the model").get_by_role("radio", name=name, exact=True)


def test_each_visitor_races_on_the_pair_of_his_own_choice(visit):
    visitor, other = visit(), visit()
    expect(size(visitor, "67M")).to_be_checked()
    before = visitor.locator("[data-pair]").text_content()
    size(visitor, "67M").focus()
    visitor.keyboard.press("ArrowLeft")
    expect(size(visitor, "11M")).to_be_checked()
    expect(visitor.locator("[data-pair]")).not_to_have_text(before)
    for page, title in ((visitor, TITLES["small"]), (other, TITLES["embedded"]), (visitor, TITLES["small"])):
        race(page, tokens=12)
        assert page.evaluate(RACED) == [title] * 2
    expect(size(other, "67M")).to_be_checked()
    expect(visitor.locator("[data-recorded]")).to_have_text("11M model")
    visitor.evaluate("TreeRace.take.refresh()")
    link = visitor.locator("[data-link]").input_value()
    assert "pair=small" in link
    other.goto(f"{link}&go=1")
    other.wait_for_selector("[data-race][data-state=done]")
    assert other.evaluate(RACED) == [TITLES["small"]] * 2
    expect(size(other, "11M")).to_be_checked()


def test_an_open_card_and_the_dials_follow_the_switch(visitor):
    """The server's figures are made up here: on each pair another shape is the best."""
    best, words = {"embedded": "4x4x8", "small": "2x3x4"}, visitor.locator(".right [data-shape-words]")
    shapes = {
        name: {shape: {"tau": 9 if shape == best[name] else 1, "cost": 1} for shape in best.values()} for name in best
    }
    visitor.evaluate(
        """shapes => { for (const { card } of TreeRace.view.lanes)
             card.look = async (_, pair) => ({ costs: { shapes: shapes[pair] } }); }""",
        shapes,
    )
    visitor.locator(".right [data-badge]").click()
    expect(words).to_contain_text("Races in 4 x 4 x 8")
    with visitor.expect_request(lambda asked: '"small"' in (asked.post_data or "")):
        visitor.keyboard.press("m")
    expect(words).to_contain_text("Races in 2 x 3 x 4")
    visitor.keyboard.press("m")
    expect(words).to_contain_text("Races in 4 x 4 x 8")


def test_every_screen_follows_the_choice_and_the_stage_shows_it(visitor):
    visitor.keyboard.press("f")
    expect(size(visitor, "67M")).to_be_attached()
    expect(visitor.locator("[data-sizes]")).to_be_visible()
    visitor.keyboard.press("m")
    expect(size(visitor, "11M")).to_be_checked()
    visitor.keyboard.press("Escape")
    visitor.evaluate("TreeRace.screens.showScreen('prix')")
    visitor.fill("#prompt textarea", PROMPT)
    visitor.locator("#dials").get_by_label("New tokens", exact=True).fill("8")
    visitor.click("#prix-go")
    visitor.wait_for_function("TreeRace.prix.systems[0]?.trace.max_new_tokens === 8")  # no recorded one's
    assert {*visitor.evaluate("TreeRace.prix.systems.map(({ trace }) => trace.pair)")} == {TITLES["small"]}
    visitor.click("#prix-halt")


def test_the_walk_shows_how_both_models_grow_and_sees_the_switch(visitor):
    visitor.evaluate(f"TreeRace.walk.open({GROWTH})")
    walk = visitor.get_by_role("complementary", name="Guided walk")
    expect(walk.get_by_role("heading")).to_have_text("Large models gain the most")
    race(visitor, tokens=12)
    expect(walk.locator("[data-done]")).to_be_empty()
    size(visitor, "11M").check(force=True)
    race(visitor, tokens=12)
    expect(walk.locator("[data-done]")).to_have_text("done ✓")
    expect(walk.locator(".walk-bar.tau")).to_have_count(2)
    expect(walk.locator(".growth .name")).to_have_text(["11M", "67M"])


def test_the_choice_and_its_page_of_the_walk_have_no_violation(visitor, axe):
    visitor.evaluate(f"TreeRace.walk.open({GROWTH})")
    expect(visitor.locator(".growth .name").first).to_be_visible()
    # The recorded race is over: letters that have just come are still faint
    visitor.wait_for_function("TreeRace.view.run && (TreeRace.view.skip(), true)")
    visitor.evaluate(axe)
    found = "violations.map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html)])"
    assert visitor.evaluate(f"async () => (await axe.run(document)).{found}") == []


def test_calls_of_the_api_choose_a_pair_too(default_server):
    client = Client(default_server, verbose=False)
    for name, title in TITLES.items():
        events = [
            json.loads(each) for each in client.submit(PROMPT, "tree", max_new_tokens=8, pair=name, api_name="/race")
        ]
        assert {system["trace"]["pair"] for event in events for system in event.get("systems", [])} == {title}
    with pytest.raises(Exception, match=r"There is no pair 'gpt-9' here\. Available: embedded, small"):
        client.predict(PROMPT, "tree", pair="gpt-9", api_name="/race")


def test_a_chat_model_gets_requests_to_try_and_says_its_memory(visitor):
    """The pair is made up here: the page hears of one more, as it does when a published one has been loaded."""
    visitor.evaluate(
        """() => { const { pairs } = TreeRace;
             pairs.hear({...pairs.own, pairs: [...pairs.offered, {...pairs.offered[0],
             name: "smollm2", size: "SmolLM2 135M", title: "SmolLM2 135M Instruct", chat: true, own: false, memory: "0.5 GB"}]});
             pairs.hear = () => {}; // the server, which does not know it, goes on telling of its own
           }"""
    )
    chips = {name: visitor.get_by_role("button", name=name, exact=True) for name in ("chat", "stories")}
    prompt, story = visitor.locator("#prompt textarea"), PROMPTS["stories"][0]["prompt"]
    expect(chips["stories"]).to_be_visible()
    expect(chips["chat"]).to_be_hidden()
    expect(prompt).to_have_value(story)
    size(visitor, "SmolLM2 135M").check(force=True)
    expect(chips["chat"]).to_be_visible()
    expect(chips["stories"]).to_be_hidden()
    expect(prompt).to_have_value(REQUEST)
    visitor.click("[data-learn]")  # where the walk begins with what this pair answers
    expect(prompt).to_have_value(REQUEST)
    visitor.keyboard.press("Escape")
    ordered = visitor.evaluate("(TreeRace.sweep.at('prompts').value = 'each', TreeRace.sweep.order({}))")
    assert ordered["prompts"] == [each["prompt"] for each in CHAT_PROMPTS["chat"]]
    size(visitor, "67M").check(force=True)
    expect(prompt).to_have_value(story)
    prompt.fill("My own words")
    size(visitor, "SmolLM2 135M").check(force=True)
    expect(prompt).to_have_value("My own words")
    expect(visitor.get_by_title("Race on the SmolLM2 135M Instruct, 0.5 GB of memory")).to_be_visible()
    chips["chat"].click()
    visitor.get_by_role("button", name="Three reasons").click()
    expect(prompt).to_have_value(REQUEST)
