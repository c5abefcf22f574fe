"""The lab's view of a visitor's own prompts, in a real Chromium on the embedded models."""

import csv
import io
import json

from playwright.sync_api import Page, expect

from helpers.page import PATIENCE, at_rest, open_view, press

HOSTILE = "Story: <img src=x onerror=window.__hostile=1> <b>x</b> ${1+1}{{x}}"
PROMPTS = ["Story: Once upon a time, there was a little fox who", HOSTILE, "x " * 5000]
FILE = "\n".join(json.dumps({"prompt": prompt}) for prompt in PROMPTS)


def choose_file(page: Page, name: str, content: str | bytes) -> None:
    content = content if isinstance(content, bytes) else content.encode()
    page.set_input_files("[data-lab-prompts] [data-file]", {"name": name, "mimeType": "text/plain", "buffer": content})


def write_tokens(page: Page, tokens: int) -> None:
    page.locator("#dials .length input").fill(str(tokens))
    page.locator("#dials .length input").press("Tab")


def test_every_prompt_of_a_file_is_raced_and_the_table_can_be_taken_along(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_view(page, "prompts")
    choose_file(page, "mine.jsonl", FILE)
    expect(page.locator("[data-lab-prompts] [data-about-file]")).to_have_text("3 prompts of mine.jsonl")
    expect(page.locator("[data-lab-prompts] [data-copy]")).to_be_disabled()
    write_tokens(page, 24)
    page.click("#lab-go")
    page.wait_for_selector("[data-lab-prompts][data-run=done]", timeout=PATIENCE)
    rows = page.locator("[data-lab-prompts] [data-rows] tr")
    for row in (rows.nth(0), rows.nth(1)):
        expect(row.locator("td").nth(4)).to_have_text("24")
        expect(row.locator("td").nth(2)).to_contain_text("×")
        expect(row.locator("td").last).to_have_text("✓ identical")
    expect(rows.nth(1).locator(".prompt")).to_have_text(HOSTILE)
    assert page.evaluate("window.__hostile") is None and page.locator("[data-lab-prompts] td *").count() == 0
    expect(rows.nth(2)).to_contain_text("tokens long; the model's context window holds")
    expect(page.locator("[data-lab-prompts] [data-total]")).to_contain_text("All 2 prompts together, 1 refused")
    expect(page.locator("[data-lab-prompts] [data-total]")).to_contain_text("✓ 2 of 2")
    expect(page.locator("[data-lab-words]")).to_contain_text("plain decoding over 2 prompts")

    with page.expect_download() as download:
        page.click("[data-lab-prompts] [data-csv]")
    head, *lines = csv.reader(io.StringIO(download.value.path().read_text("utf-8")))
    assert head[:4] == ["index", "prompt", "tokens", "speedup"] and [line[0] for line in lines] == ["1", "2", "3"]
    assert lines[1][1] == HOSTILE and lines[0][2] == "24" and "tokens long" in lines[2][head.index("refused")]
    page.click("[data-lab-prompts] [data-copy]")
    expect(page.locator("[data-lab-prompts] [data-copy]")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert len(copied) == 4 and {line.count("\t") for line in copied} == {len(head) - 1}


def test_stop_keeps_the_rows_and_the_next_run_starts_anew(page):
    open_view(page, "prompts")
    page.click("[data-lab-prompts] [data-gallery]")
    rows = page.locator("[data-lab-prompts] [data-rows] tr")
    expect(rows).to_have_count(18)
    write_tokens(page, 24)
    page.click("#lab-go")
    press(page, "#lab-halt", when="TreeRace.prompts.rows.length >= 1")
    expect(page.locator("[data-lab-words]")).to_contain_text("Stopped.")
    kept = page.evaluate("TreeRace.prompts.rows.length")
    at_rest(page)
    assert page.evaluate("TreeRace.prompts.rows.length") == kept < 18
    expect(rows.nth(0).locator("td").last).to_have_text("✓ identical")
    choose_file(page, "one.txt", PROMPTS[0])
    expect(page.locator("[data-lab-prompts] [data-about-file]")).to_have_text("1 prompt of one.txt")
    page.select_option("[data-lab-prompts] [data-system]", "lookup")
    page.click("#lab-go")
    page.wait_for_selector("[data-lab-prompts][data-run=done]", timeout=PATIENCE)
    expect(page.locator("[data-lab-words]")).to_contain_text("prompt lookup: ")
    expect(rows).to_have_count(1)


def test_a_bad_file_gets_a_sentence(page):
    open_view(page, "prompts")
    for name, content, words in (
        ("a.jsonl", '"fine"\n{"prompt": 7}', "The prompt on line 2 must be a string, got 7"),
        ("a.txt", "x\n\n" * 51, "at most 50 prompts"),
        ("a.txt", b"caf\xe9", "a.txt is not UTF-8"),
    ):
        choose_file(page, name, content)
        expect(page.locator("[data-lab-words]")).to_contain_text(words)
        expect(page.locator("[data-lab-prompts] [data-table]")).to_be_hidden()


def test_start_without_a_file_says_so(page):
    open_view(page, "prompts")
    page.click("#lab-go")
    expect(page.get_by_test_id("toast-body")).to_contain_text("no prompt in it")
    expect(page.locator("[data-lab-words]")).to_have_text("Choose a file first.")


def test_disturbed_clocks_are_said_in_the_row_and_behind_the_finding(page):
    open_view(page, "prompts")
    row = {"index": 0, "prompt": "a", "tokens": 9, "speedup": 5.08, "tau": 2, "draft_share": 0.1, "verify_share": 0.5}
    row |= {"identical": True, "disturbed": "Disturbed: so it was."}
    words = "The clocks of 1 of 1 prompts were disturbed twice; ratios vary."
    total = {**row, "raced": 1, "refused": 0, "identical": 1, "speedup_total": 5.08, "disturbed": words}
    choose_file(page, "one.txt", PROMPTS[0])
    expect(page.locator("[data-lab-prompts] [data-rows] tr")).to_have_count(1)
    page.evaluate(
        "([row, summary]) => { const { run } = TreeRace.prompts; const title = 'draft tree';"
        " const news = [{ start: true, title }, { row, summary }, { end: true }];"
        " for (const [at, each] of news.entries()) run.show({ run: 'x', seq: at + 1, ...each }); }",
        [row, total],
    )
    expect(page.locator("[data-lab-words]")).to_contain_text(f"identical text in 1 of them. {words}")
    speed = page.locator("[data-lab-prompts] [data-rows] tr").first.locator("td").nth(2)
    expect(speed).to_have_attribute("title", "Disturbed: so it was.")
    assert "disturbed" in speed.evaluate("each => getComputedStyle(each, '::before').content")
    table = page.evaluate("TreeRace.prompts.table()")
    assert table[1][table[0].index("disturbed")] == "Disturbed: so it was."
