"""What the page's head brings: the browser reads every rule of the styles inside of the page, and the pair's words are shown whole."""

RULES = """() => {
  const sheets = [...document.styleSheets].filter(({ ownerNode }) => ownerNode.tagName === 'STYLE');
  const at = sheets.findIndex(({ cssRules }) => cssRules[0]?.selectorText === '.gradio-container.gradio-container .contain');
  const named = (rules) => [...rules].filter((rule) => rule.selectorText || rule.media)
    .map((rule) => (rule.media ? named(rule.cssRules) : rule.selectorText.replaceAll('& ', '')));
  return [named(sheets[at - 1].cssRules), named(sheets[at].cssRules[0].cssRules)];
}"""


def test_every_rule_has_its_weight_inside_of_the_page(page):
    outside, inside = page.evaluate(RULES)
    assert len(outside) > 300 and inside == outside


PAIRS = """names => {
  const { pairs } = TreeRace;
  const same = { ...pairs.own, memory: "", verify_ms: {} };
  const made = names.map(([name, size, pair, chat]) => ({ ...same, name, size, title: size, pair, chat, own: name === "embedded" }));
  pairs.hear({ ...pairs.own, pairs: made });
  pairs.hear = () => {};
}"""
CUT = """() => {
  const all = document.querySelector("#masthead [data-pair]").getBoundingClientRect();
  const parts = [...document.querySelectorAll("#masthead [data-pair] span")].map((part) => [part, part.getBoundingClientRect()]);
  const shown = parts.filter(([, { top }]) => top < all.bottom - 1);
  return [shown.map(([part]) => part.textContent).join(""), shown.filter(([, { right }]) => right > all.right + 0.5).length];
}"""


def test_of_the_pairs_words_whole_parts_are_shown_on_a_small_window(page):
    """With three pairs to choose from there is little room: what a person must know of a chat model stands first."""
    rest = "2 CPU cores · 8-bit, compiled"
    names = [["small", "11M", f"embedded pair · {rest}", False], ["embedded", "67M", f"embedded pair · {rest}", False]]
    page.evaluate(PAIRS, [*names, ["smollm2", "SmolLM2 135M", f"Instruct · chat · {rest}", True]])
    for name, least in (("embedded", ""), ("smollm2", "Instruct · chat")):
        page.evaluate("name => TreeRace.pairs.pick(name)", name)
        shown, cut = page.evaluate(CUT)
        assert cut == 0 and shown.startswith(least)
    page.set_viewport_size({"width": 1920, "height": 1080})
    assert page.evaluate(CUT) == [f"Instruct · chat · {rest}", 0]
