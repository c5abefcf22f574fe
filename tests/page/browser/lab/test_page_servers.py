"""A table of running servers, opened beside the page's own verdict in a real Chromium: its rows, and that it is never markup."""

import json

from playwright.sync_api import Page, expect

from helpers.page import IMAGE, PATIENCE, open_view
from helpers.remote.rows import served_point, served_row

VIEW = "[data-lab-pays]"
ROWS = f"{VIEW} .served-rows tbody"
FITS = "[document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollHeight <= innerHeight]"
CROWD = {
    "batch": 16,
    "speedup": 0.8,
    "interval": [0.7, 0.9],
    "answer": "no",
    "tau": None,
    "acceptance": None,
    "texts": 48,
    "waves": 3,
}
TABLE = [
    served_row(points=[served_point(), served_point(**CROWD, gaining=0, identical=40)]),
    served_row(machine=IMAGE, engine="", version="<b>7</b>", model="${1+1}{{x}}", flags={IMAGE: IMAGE}),
]


def give(page: Page, *lines: object) -> None:
    content = "\n".join(map(json.dumps, lines)).encode()
    page.set_input_files(f"{VIEW} [data-file]", {"name": "table.jsonl", "mimeType": "text/plain", "buffer": content})


def cells(page: Page, group: int, line: int) -> list[str]:
    return page.locator(ROWS).nth(group).locator("tr").nth(line).locator("td").all_text_contents()


def test_a_table_of_servers_opens_before_any_race_and_is_never_markup(page):
    open_view(page, "pays")
    give(page, *TABLE)
    expect(page.locator("[data-lab-words]")).to_have_text(
        "2 rows of table.jsonl, measured elsewhere by `pays --server`."
    )
    assert cells(page, 0, 0)[2:] == ["1", "50.0", "100.0", "2.00×", "1.80–2.20", "yes", "3.25", "75 %", "12 of 12"]
    assert cells(page, 0, 1) == ["16", "50.0", "100.0", "0.80×", "0.70–0.90", "no", "–", "–", "40 of 48"]
    who = page.locator(ROWS).first.locator(".who")
    assert who.locator("b").all_text_contents() == ["M2", "llama-server b9001-abc model.gguf"]
    expect(who.last).to_contain_text("total_slots 4, speculative true")
    expect(page.locator(ROWS).first.locator(".said")).to_contain_text("only at 1 stream: elsewhere")
    expect(page.locator(ROWS).first.locator(".said")).to_contain_text("3 waves are few")
    assert page.locator(f"{ROWS} .who b").nth(2).text_content() == IMAGE
    assert page.locator(f"{ROWS} :is(img, script)").count() == 0 and page.evaluate("window.__hostile") is None
    expect(page.locator(f"{VIEW} [data-drop]")).to_be_hidden()
    for part in ("prompts", "what-if"):  # there is no report yet
        expect(page.locator(f"[name=pays-part][value={part}]")).to_be_hidden()
    assert page.evaluate(FITS) == [True, True]
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_pages_own_verdict_stands_above_the_servers(page):
    open_view(page, "pays")
    give(page, *["Story: Once upon a time", "Story: Tom had a red ball", "Story: The cat sat"])
    expect(page.locator(f"{VIEW} [data-doing]")).to_have_text("Press Start: 3 prompts to race")
    page.select_option(f"{VIEW} [data-systems]", "tree")
    page.fill(f"{VIEW} [data-tokens]", "16")
    page.click("#lab-go")
    page.wait_for_selector(f"{VIEW}.told[data-run=done]", timeout=PATIENCE)
    give(page, *TABLE)
    expect(page.locator(ROWS)).to_have_count(3)
    report = page.evaluate("TreeRace.pays.report")
    own, [best] = cells(page, 0, 0), report["systems"]
    low, high = best["interval"]
    assert own[0] == report["machine"] and own[1].startswith("This page: draft tree")
    assert own[2:4] == ["1", f"{report['plain']['tokens_per_s']:.1f}"]
    assert own[5:8] == [
        f"{best['speedup']:.2f}×",
        f"{low:.2f}–{high:.2f}",
        {"only": "only some"}.get(report["answer"], report["answer"]),
    ]
    assert own[8:] == [f"{best['tau']:.2f}", "–", "3 of 3"]
    expect(page.locator(ROWS).first.locator(".said")).to_have_text(report["verdict"])
    page.locator("[name=pays-part][value=verdict]").check(force=True)
    expect(page.locator(f"{VIEW} [data-answer]")).to_be_visible()
    expect(page.locator(f"{VIEW} .served-rows")).to_be_hidden()
    give(page, "Story: Once", "Story: Two", "Story: Three")  # other prompts: the verdict is no longer about them
    expect(page.locator(f"{VIEW} [data-doing]")).to_have_text("Press Start: 3 prompts to race")
    page.locator("[name=pays-part][value=servers]").check(force=True)
    expect(page.locator(ROWS)).to_have_count(2)


def test_a_wrong_table_is_a_sentence_and_what_was_there_stays(page):
    open_view(page, "pays")
    give(page, TABLE[0])
    expect(page.locator(ROWS)).to_have_count(1)
    for line, words in (
        (served_row(points=[served_point(answer="no")]), "points[0].answer must be yes"),
        (served_row(machine=7), "machine must be a text, got 7."),
    ):
        give(page, line)
        expect(page.locator("[data-lab-words]")).to_contain_text(words)
        expect(page.locator("[data-lab-words]")).to_contain_text("Line 1 of table.jsonl")
        expect(page.locator(ROWS)).to_have_count(1)
