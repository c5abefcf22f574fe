"""The panel's view of costs and the system that is sized by them, in a real Chromium; most races here are made up."""

import pytest
from playwright.sync_api import Page, expect

from engine.drafters import DRAFTERS
from engine.record.costs import Costs
from engine.systems import SYSTEMS
from helpers.page import RESULT, at_rest, choose, play, race, shown_step
from helpers.traces import DRAFTED, make_step, one_node

CHAIN = make_step(parents=[-1, 0, 1, 2, 3, 4], path=[1], burst=[11, 99])
WORDS = "[data-cost-words]"
CHART_FITS = """() => {
    const [chart, panel] = ["[data-cost]", "[data-panel]"].map(each => document.querySelector(each).getBoundingClientRect());
    return chart.height > 80 && chart.bottom <= panel.bottom + 1;
}"""
DRAWN_ANEW = """() => {
  const chart = document.querySelector('[data-cost]');
  return chart.layout.width === chart.clientWidth && chart.layout.height === chart.clientHeight;
}"""


def open_costs(page: Page) -> None:
    """By keyboard alone."""
    page.get_by_role("radio", name="Attention mask").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="Cost")).to_be_checked()
    page.wait_for_selector("[data-cost] .scatterlayer .trace")


def play_three_steps(page: Page) -> None:
    """Bursts of three, of two and, without a draft, of one."""
    play(page, [(0, one_node(burst=[99], end="length")), *((1, each) for each in three_steps())], **RESULT)


def three_steps() -> list:
    return [make_step(), CHAIN, one_node(burst=[99], end="length")]


def drawn(page: Page) -> list[dict]:
    return page.evaluate("document.querySelector('[data-cost]').data.map(({ x, y }) => ({ x: [...x], y: [...y] }))")


def test_the_script_that_draws_plots_is_run_when_one_is_to_be_drawn(page):
    """It takes the browser most of a second, in which no race could move."""
    play_three_steps(page)
    at_rest(page)
    assert page.evaluate("!window.Plotly && document.querySelector('link#plotly').rel === 'prefetch'")
    open_costs(page)
    assert page.evaluate("Boolean(window.Plotly) && !document.querySelector('link#plotly')")


@pytest.mark.looks
def test_the_chart_has_both_curves_the_steps_so_far_and_the_chosen_point(page):
    play_three_steps(page)
    open_costs(page)
    page.evaluate("TreeRace.view.go(1)")
    losing, curve, won, chosen = drawn(page)
    assert curve["x"] == losing["x"] == list(range(1, 65))
    assert curve["y"] == pytest.approx([DRAFTED.break_even_tau(nodes, 0) for nodes in curve["x"]])
    assert losing["y"] == pytest.approx([DRAFTED.break_even_tau(nodes, 5) for nodes in losing["x"]])
    assert (won["x"], won["y"]) == ([6, 6], [3, 2])
    assert chosen["x"] == [6, 6] and chosen["y"] == pytest.approx([DRAFTED.break_even_tau(6, 5), 2.5])
    expect(page.locator("[data-cost] .annotation").last).to_have_text("2.5 at 6 nodes")
    page.locator("[data-cost] .scatterlayer .trace").last.locator(".point").last.hover(force=True)
    expect(page.locator("[data-cost] .hovertext")).to_contain_text("costs 4.66 ms, took 5.00 ms")


@pytest.mark.looks
def test_the_sentence_follows_the_shown_step(page):
    play_three_steps(page)
    open_costs(page)
    nothing = "No draft: a one-node tree is the baseline itself"
    page.evaluate("TreeRace.view.go(2)")
    expect(page.locator(WORDS)).to_have_text(f"{nothing}; 2.00 tokens a pass so far (tau).")
    page.evaluate("TreeRace.view.go(0)")
    first = "This step: 6 nodes in 2 levels cost 1.73 tokens’ time; 3.00 tokens a pass so far (tau), so it pays 1.7×."
    expect(page.locator(WORDS)).to_have_text(first)
    expect(page.locator("[data-cost]")).to_have_accessible_name(f"Cost and gain of step 1: {first}")
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    expect(page.locator(WORDS)).to_contain_text("6 nodes in 5 levels cost 2.33 tokens’ time")
    page.get_by_role("radio", name="left").check(force=True)
    expect(page.locator(WORDS)).to_have_text(f"{nothing}; 1.00 tokens a pass so far (tau).")


@pytest.mark.looks
def test_a_round_that_does_not_pay_is_called_so(page):
    steps = [(0, one_node(burst=[99], end="length")), (1, make_step(path=[], burst=[99], end="length"))]
    play(page, steps, **RESULT)
    open_costs(page)
    expect(page.locator(WORDS)).to_contain_text("1.00 tokens a pass so far (tau), so it loses: 0.6×.")


@pytest.mark.looks
def test_the_pages_costs_are_the_engines(page):
    sizes = [(nodes, levels) for nodes in (1, 2, 3, 8, 9, 33, 64) for levels in (0, 1, 4)]
    for costs in (DRAFTED, Costs({1: 2.0}, 0.1, 0.2), Costs({2: 3.0, 8: 2.5, 32: 9.0}, 1.0, 0.0)):
        verify_ms = {str(n): ms for n, ms in costs.verify_ms.items()}
        drawn = page.evaluate(
            """({ costs, sizes }) => {
              const measured = new TreeRace.roundCosts.Costs(costs);
              return sizes.map(([nodes, levels]) => measured.breakEven(nodes, levels));
            }""",
            {"costs": {**costs.to_dict(), "verify_ms": verify_ms}, "sizes": sizes},
        )
        assert drawn == pytest.approx([costs.break_even_tau(nodes, levels) for nodes, levels in sizes])


@pytest.mark.looks
def test_the_default_is_at_hand_and_the_dials_of_auto_are_limits(page):
    tree, auto = SYSTEMS["tree"], SYSTEMS["auto"]
    page.locator("#systems input").nth(1).click()
    assert page.locator("#systems [role=option]").first.get_attribute("aria-label") == tree.title
    page.keyboard.press("Escape")
    mark = "getComputedStyle(document.querySelector('#dials .shape [data-testid=block-info]'), '::after').content"
    limits = page.locator(".right [data-card] dd.limits")
    page.locator(".right [data-badge]").click()
    expect(page.locator(".right [data-card]")).to_contain_text(tree.idea)
    expect(limits).to_be_hidden()
    assert "≤" not in page.evaluate(mark)
    choose(page, 1, auto.title)
    page.locator(".right [data-badge]").click()
    expect(page.locator(".right [data-card]")).to_contain_text(auto.idea)
    expect(limits).to_contain_text("upper limits")
    assert "≤" in page.evaluate(mark)


@pytest.mark.looks
def test_a_race_of_auto_shows_what_it_chose(page):
    choose(page, 1, SYSTEMS["auto"].title)
    race(page)
    open_costs(page)
    page.evaluate("TreeRace.view.go(2)")
    assert shown_step(page) == 2
    *_, chosen = drawn(page)
    step, totals = page.evaluate("[TreeRace.view.steps[2], TreeRace.view.lanes[1].totals]")
    assert chosen["x"] == [len(step["parents"])] * 2
    assert chosen["y"][1] == pytest.approx(totals[3] / 3)
    expect(page.locator(WORDS)).to_contain_text(f"{totals[3] / 3:.2f} tokens a pass so far")
    for width, height in ((1280, 720), (1920, 1080), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(DRAWN_ANEW)
        page.wait_for_function(CHART_FITS)  # both boxes at one moment, when the panel has its new height
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.looks
def test_the_card_of_auto_says_which_drafter_it_chose_and_why(page):
    """Only of the race that is shown: the card of another system says nothing of it."""
    choice = page.locator(".right [data-its-choice]")
    choose(page, 1, SYSTEMS["auto"].title)
    race(page)
    promised = page.evaluate("TreeRace.view.systems[1].costs.promised")
    best = max(promised, key=promised.get)
    page.locator(".right [data-badge]").click()
    expect(choice).to_contain_text(f"on this machine: {DRAFTERS[best].title} {promised[best]:.1f}x")
    assert len(promised) > 1 and all(DRAFTERS[each].title in choice.inner_text() for each in promised)
    choose(page, 1, SYSTEMS["tree"].title)
    page.locator(".right [data-badge]").click()
    expect(page.locator(".right [data-card]")).to_contain_text(SYSTEMS["tree"].idea)
    expect(choice).to_be_hidden()


def test_the_card_says_what_a_tree_costs_a_target_with_states(page):
    """No embedded target keeps any, so the server's answer is made up here. The card has the row only where there is an answer."""
    states = page.locator(".right [data-its-states]")
    page.locator(".right [data-badge]").click()
    expect(page.locator(".right [data-its-source]")).not_to_be_empty()
    expect(states).to_be_hidden()
    page.evaluate("""async () => {
      const { card } = TreeRace.view.lanes[1];
      card.look = async () => ({ states: "24 nodes, measured here: <b>7.0 MB</b>" });
      await card.ask();
    }""")
    expect(states).to_have_text("24 nodes, measured here: <b>7.0 MB</b>")
    expect(page.locator(".right [data-states-name]")).to_be_visible()


def test_an_old_answer_takes_nothing_back_from_a_newer_one(page):
    """Asked twice about the same system, the server may answer the first question last."""
    states = page.locator(".right [data-its-states]")
    page.evaluate("""async () => {
      const { card } = TreeRace.view.lanes[1];
      let late;
      card.look = () => new Promise((answer) => { late = answer; });
      const first = card.ask();
      card.look = async () => ({ states: "the newer answer" });
      await card.ask();
      late({ states: "the older answer" });
      await first;
    }""")
    assert states.text_content() == "the newer answer"
