"""The view of a setting for production, in a real Chromium: five engines that follow the choice and the dials."""

from playwright.sync_api import expect

from helpers.page import open_view

CUT = """[...document.querySelectorAll('.engine [data-open], .engine pre, .setting, .cannot')]
  .filter((each) => each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1)
  .map((each) => each.textContent)"""


def test_production_shows_five_engines_that_follow_the_choice_and_the_dials(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_view(page, "production")
    cards = page.locator(".engine")
    expect(cards).to_have_count(5)
    assert [name.split()[0] for name in page.locator(".engine h2 [data-engine]").all_text_contents()] == [
        "vLLM",
        "SGLang",
        "TensorRT-LLM",
        "llama.cpp",
        "transformers",
    ]
    expect(cards.nth(0)).to_contain_text('"num_speculative_tokens": 4')
    page.select_option("[data-lab-production] [data-system]", "eagle")
    expect(cards.nth(1)).to_contain_text("--speculative-num-steps 5")
    expect(cards.nth(3)).to_contain_text("--spec-draft-n-max 5")
    expect(cards.nth(4)).to_contain_text("no EAGLE drafter; a draft model is the nearest")

    page.locator("#dials [aria-label='number input for Temperature']").fill("0.8")
    expect(cards.nth(0)).to_contain_text('"temperature": 0.8')
    page.locator("[name=production-shape][value=dials]").check(force=True)
    expect(page.locator("[data-lab-production] [data-shape]")).to_have_text(
        "depth 4 · width 4 · 8 nodes · temperature 0.8"
    )
    expect(cards.nth(1)).to_contain_text("--speculative-num-steps 4")

    cards.nth(1).get_by_role("button", name="SGLang for").click()
    copy = cards.nth(1).locator("[data-copy]")
    copy.click()
    expect(copy).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("python -m sglang.launch_server \\\n  --model-path TARGET") and copied.endswith("'")
    engines = page.locator(".engine [data-open]")
    for index in range(5):
        engines.nth(index).click()
        expect(page.locator(".engine pre:visible")).to_have_count(1)
        assert page.evaluate(CUT) == []
    fits = "[document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollHeight <= innerHeight]"
    assert page.evaluate(fits) == [True, True]
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
