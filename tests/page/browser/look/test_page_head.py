"""What the page's head brings: the browser adds no file of a component to it, and reads every rule of the styles inside of the page."""

import re

LINKS = "[...document.querySelectorAll('link')].map(({ id, href }) => id || href)"
RULES = """() => {
  const sheets = [...document.styleSheets].filter(({ ownerNode }) => ownerNode.tagName === 'STYLE');
  const at = sheets.findIndex(({ cssRules }) => cssRules[0]?.selectorText === '.gradio-container.gradio-container .contain');
  const named = (rules) => [...rules].filter((rule) => rule.selectorText || rule.media)
    .map((rule) => (rule.media ? named(rule.cssRules) : rule.selectorText.replaceAll('& ', '')));
  return [named(sheets[at - 1].cssRules), named(sheets[at].cssRules[0].cssRules)];
}"""


def test_no_file_of_a_component_is_asked_for_later(page, server):
    given = re.findall(r'href="\.(/assets/[^"]+)"', page.evaluate("fetch('').then((document) => document.text())"))
    named = {server.rstrip("/") + file for file in given}
    links = page.evaluate(LINKS)
    ours = links.index("plotly")  # the last link of the document
    assert len(named) > 30 and named <= {*links[:ours]} and not named & {*links[ours:]}


def test_every_rule_has_its_weight_inside_of_the_page(page):
    outside, inside = page.evaluate(RULES)
    assert len(outside) > 300 and inside == outside
