"""Does it pay and what if, in a real Chromium on the embedded models: from a file to a verdict, and sliders."""

import json
from itertools import product

import pytest
from playwright.sync_api import Page, expect

from engine.page.screens.pays import SpeedupModelInputs, predict_speedup, solve_acceptance_for_tau
from engine.record.costs import Costs
from helpers.page import PATIENCE, at_rest, feed, open_view, press, refused
from helpers.screens import judged

HOSTILE = "Story: <img src=x onerror=window.__hostile=1> <b>x</b> ${1+1}{{x}}"
PROMPTS = ["Story: Once upon a time, there was a little fox who", HOSTILE, "Story: Tom had a red ball", "x " * 5000]
VIEW = "[data-lab-pays]"
FITS = "[document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollHeight <= innerHeight]"


def choose_file(page: Page, prompts: list[str]) -> None:
    content = "\n".join(json.dumps({"prompt": prompt}) for prompt in prompts).encode()
    page.set_input_files(f"{VIEW} [data-file]", {"name": "mine.jsonl", "mimeType": "text/plain", "buffer": content})


def show(page: Page, part: str) -> None:
    page.locator(f"[name=pays-part][value={part}]").check(force=True)


@pytest.fixture(scope="module")
def messages() -> list[dict]:
    """Of a run on a tiny pair, with costs that were measured."""
    return judged()


@pytest.fixture
def told(page, messages) -> Page:
    """The page after such a run."""
    open_view(page, "pays")
    feed(page, "pays", messages)
    page.wait_for_selector(f"{VIEW}.told[data-run=done]")
    return page


def test_a_file_becomes_a_verdict_with_its_systems_its_time_and_its_prompts(page):
    open_view(page, "pays")
    choose_file(page, PROMPTS)
    expect(page.locator(f"{VIEW} [data-doing]")).to_have_text("Press Start: 4 prompts to race")
    page.select_option(f"{VIEW} [data-systems]", "tree")
    page.fill(f"{VIEW} [data-tokens]", "16")
    page.click("#lab-go")
    page.wait_for_selector(f"{VIEW}.told[data-run=done]", timeout=PATIENCE)
    report = page.evaluate("TreeRace.pays.report")
    expect(page.locator(f"{VIEW} [data-answer]")).to_have_text(
        {"yes": "yes", "no": "no", "only": "only for some"}[report["answer"]]
    )
    expect(page.locator(f"{VIEW} [data-judged]")).to_have_text(report["verdict"].split(":", 1)[1].strip())
    expect(page.locator(f"{VIEW} [data-beside]")).to_contain_text("3 prompts are few")
    [row] = page.locator(f"{VIEW} [data-system-rows] tr").all()
    low, high = report["systems"][0]["interval"]
    cells = row.locator("td").all_text_contents()
    assert cells[0].startswith("draft tree") and cells[2] == f"{low:.2f}–{high:.2f}" and cells[-1] == "✓ identical"
    for chart in ("time", "accepted"):
        expect(page.locator(f"{VIEW} [data-{chart}-canvas] .bars path")).not_to_have_count(0)
    assert page.evaluate(FITS) == [True, True]

    show(page, "prompts")
    rows = page.locator(f"{VIEW} [data-prompt-rows] tr")
    expect(rows).to_have_count(4)
    assert HOSTILE in page.locator(f"{VIEW} [data-prompt-rows] .prompt").all_text_contents()
    expect(rows.last).to_contain_text("tokens long")
    speeds = [float(each.rstrip("×")) for each in page.locator(f"{VIEW} [data-prompt-rows] .speed").all_text_contents()]
    assert speeds == sorted(speeds, reverse=True) and len(speeds) == 3
    assert page.evaluate("window.__hostile") is None and page.locator(f"{VIEW} .prompt *").count() == 0

    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.looks
def test_the_what_if_begins_at_the_measured_point_and_answers_at_once(told):
    show(told, "what-if")
    report = told.evaluate("TreeRace.pays.report")
    shown = told.locator(f"{VIEW} [data-what-speed]")
    expect(shown).to_have_text(f"{report['point']['expected']:.2f}×")
    expect(told.locator(f"{VIEW} [data-what-measured]")).to_contain_text(f"{report['point']['speedup']:.2f}× with it")
    for name, value in (("acceptance", "0.9"), ("depth", "4"), ("width", "1.5"), ("draft", "0.1"), ("batch", "2")):
        told.locator(f"{VIEW} [data-what={name}]").fill(value)
    costs = report["costs"] | {"verify_ms": {int(rows): ms for rows, ms in report["costs"]["verify_ms"].items()}}
    expect(shown).to_have_text(f"{predict_speedup(Costs(**costs), SpeedupModelInputs(0.9, 4, 1.5, 0.1, 2)):.2f}×")
    expect(told.locator(f"{VIEW} [data-what-words]")).to_contain_text("4.10 tokens a round")
    told.locator(f"{VIEW} [data-what=batch]").fill("32")
    expect(shown).to_have_text("–")
    expect(told.locator(f"{VIEW} [data-what-words]")).to_contain_text("beyond what was measured, which ends at 64.")
    told.click(f"{VIEW} [data-what-back]")
    expect(shown).to_have_text(f"{report['point']['expected']:.2f}×")
    expect(told.locator(f"{VIEW} [data-what-canvas] .points path")).to_have_count(2)
    assert told.evaluate(FITS) == [True, True]


@pytest.mark.looks
def test_an_acceptance_length_of_a_paper_gives_the_speedup_that_it_would_have_here(told):
    show(told, "what-if")
    report = told.evaluate("TreeRace.pays.report")
    costs = Costs(
        **report["costs"] | {"verify_ms": {int(rows): ms for rows, ms in report["costs"]["verify_ms"].items()}}
    )
    shown, said = (told.locator(f"{VIEW} [data-what-{name}]") for name in ("speed", "words"))
    values = {"width": 1, "draft": 0.1, "depth": 4, "tokens": 3}
    for name, value in values.items():
        told.locator(f"{VIEW} [data-what={name}]").fill(str(value))
    expect(said).to_contain_text("3.00 tokens a round")
    expect(shown).to_have_text(
        f"{predict_speedup(costs, SpeedupModelInputs(solve_acceptance_for_tau(3, 4), 4, 1, 0.1)):.2f}×"
    )
    told.locator(f"{VIEW} [data-what=depth]").fill("6")  # the length stays, and the acceptance follows
    expect(told.locator(f"{VIEW} [data-value=acceptance]")).to_have_text(f"{solve_acceptance_for_tau(3, 6):.2f}")
    expect(shown).to_have_text(
        f"{predict_speedup(costs, SpeedupModelInputs(solve_acceptance_for_tau(3, 6), 6, 1, 0.1)):.2f}×"
    )
    told.locator(f"{VIEW} [data-what=depth]").fill("1.5")
    expect(said).to_contain_text("2.50 tokens a round")
    expect(said).to_contain_text("3.00 need a depth of 2.0 or more.")
    told.locator(f"{VIEW} [data-what=acceptance]").fill("0.5")  # now this one stays
    told.locator(f"{VIEW} [data-what=depth]").fill("3")
    expect(told.locator(f"{VIEW} [data-value=tokens]")).to_have_text("1.88")
    told.click(f"{VIEW} [data-what-back]")
    expect(shown).to_have_text(f"{report['point']['expected']:.2f}×")


@pytest.mark.looks
def test_the_pages_formula_is_pythons(page):
    costs = Costs({1: 1.7, 2: 1.9, 4: 2.3, 7: 3.1, 16: 4.4, 64: 19.0}, first_ms=0.4, level_ms=0.2)
    grid = product((0.0, 0.35, 0.8, 1.0), (0, 0.5, 3, 12), (1, 1.6, 5), (0.0, 0.13, 0.9), (1, 3, 32))
    points = [SpeedupModelInputs(*each) for each in grid]
    found = page.evaluate(
        """([costs, points]) => {
          const measured = new TreeRace.roundCosts.Costs(costs);
          return points.map((point) => TreeRace.whatIfFormula.speedup(measured, point));
        }""",
        [costs.to_dict() | {"verify_ms": {str(rows): ms for rows, ms in costs.verify_ms.items()}}, [vars(each) for each in points]],
    )  # fmt: skip
    expected = [predict_speedup(costs, point) for point in points]
    assert [each is None for each in found] == [each is None for each in expected] and None in expected
    assert [each for each in found if each is not None] == pytest.approx(
        [each for each in expected if each is not None]
    )
    lengths = list(product((1, 1.7, 3, 9), (0, 0.5, 3, 12)))
    sought = page.evaluate(
        "all => all.map(([tokens, depth]) => TreeRace.whatIfFormula.acceptanceOf(tokens, depth))", lengths
    )
    assert sought == pytest.approx([solve_acceptance_for_tau(*each) for each in lengths], abs=1e-12)


def test_stop_ends_it_without_a_verdict(page):
    open_view(page, "pays")
    page.click(f"{VIEW} [data-gallery]")
    page.click("#lab-go")
    press(page, "#lab-halt", when="TreeRace.pays.run.state === 'running'")
    expect(page.locator("[data-lab-words]")).to_have_text("Stopped, so there is no verdict.")
    words = page.locator(f"{VIEW} [data-doing]")
    expect(words).to_have_text("Press Start to begin anew")
    at_rest(page)
    expect(words).to_have_text("Press Start to begin anew")
    assert page.evaluate("TreeRace.pays.report") is None


def test_a_recorded_example_comes_over_no_choice_of_the_visitor(page):
    open_view(page, "pays")
    page.click(f"{VIEW} [data-gallery]")
    ask = "TreeRace.recordedRace.showExample(TreeRace.pays.run, TreeRace.lab.server.load_recorded_run, 'pays')"
    assert page.evaluate(ask) is None and page.evaluate("TreeRace.pays.report") is None
    expect(page.locator(f"{VIEW} [data-doing]")).to_contain_text("prompts to race")


def test_too_much_gets_a_sentence(page):
    open_view(page, "pays")
    for prompts, tokens, words in (
        (PROMPTS[:2], "64", "needs 3 to 20 prompts here, got 2"),
        (["x"] * 21, "64", "needs 3 to 20 prompts here, got 21"),
        (PROMPTS[:3], "101", "at most 72 new tokens a prompt here, got 101"),
        (PROMPTS, "many", "Max new tokens must be a number"),
    ):
        choose_file(page, prompts)
        expect(page.locator(f"{VIEW} [data-about-file]")).to_contain_text(f"{len(prompts)} prompts of mine.jsonl")
        page.fill(f"{VIEW} [data-tokens]", tokens)
        page.click("#lab-go")
        refused(page, words)
        expect(page.locator("[data-lab-words]")).to_have_text("Ended early, so there is no verdict.")


def test_without_a_file_the_pages_own_prompts_are_raced(page):
    open_view(page, "pays")
    page.click("#lab-go")
    expect(page.locator(f"{VIEW} [data-about-file]")).to_contain_text("of this page")
    page.click("#lab-halt")
    expect(page.locator("[data-lab-words]")).to_have_text("Stopped, so there is no verdict.")
