"""An answer of vLLM that is opened on the page: what is marked, what each step says, and that its text is no markup."""

import json

from playwright.sync_api import expect

from helpers.page import IMAGE, menu, play_two_lanes

STEPS = {"per_step_accepted": [1, 0, 3, 1], "per_step_drafted": [3, 1, 3, 3]}


def opened(page, **changes) -> None:
    served = {"model": IMAGE, "choices": [{"text": IMAGE * 3}], "metrics": {"speculative_decoding": STEPS | changes}}
    menu(page)
    file = {"name": "answer.json", "mimeType": "application/json", "buffer": json.dumps(served).encode()}
    page.get_by_label("Open a race file", exact=True).set_input_files(file)


def test_an_answer_of_vllm_opens_without_a_clock_and_says_so(page):
    play_two_lanes(page)
    before = page.evaluate("TreeRace.view.run")
    opened(page)
    window = page.locator("dialog.served")
    expect(window.locator("h2")).to_have_text("From vLLM: no clock of TreeRace, order only")
    assert window.locator("dd").all_text_contents() == ["2.25", "4", "10", "5 (50 %)"]
    expect(window.locator("[data-words]")).to_have_text(
        "Step 1 of 4: 3 tokens drafted, 1 accepted, then the target’s own token."
    )
    window.get_by_label("Step of the request").fill("1")
    expect(window.locator("[data-words]")).to_contain_text("Step 2 of 4: 1 token drafted, 0 accepted")
    page.wait_for_selector(".served [data-positions] .main-svg", state="attached")
    drawn = page.evaluate("document.querySelector('.served [data-steps]').data.map(({ y }) => [...y])")
    assert drawn == [[3, 1, 3, 3], [1, 0, 3, 1]]
    shares = page.evaluate("[...document.querySelector('.served [data-positions]').data[0].y]")
    assert [round(each, 3) for each in shares] == [0.75, 0.333, 0.333]
    assert " s" not in window.locator("dl").inner_text().replace(" steps", "")
    assert page.evaluate("TreeRace.view.run") == before
    expect(window.locator(".answer")).to_have_text(IMAGE * 3)
    expect(window.locator(".model")).to_have_text(f"Model: {IMAGE}")
    assert window.locator("img").count() == 0 and page.evaluate("window.__hostile") is None
    page.keyboard.press("Escape")
    expect(window).to_have_count(0)


def test_a_wrong_answer_is_a_sentence(page):
    opened(page, per_step_accepted=[9, 0, 3, 1])
    expect(page.locator("[data-notice]")).to_contain_text("verification 1 cannot accept 9 of 3")
    assert page.locator("dialog.served").count() == 0
