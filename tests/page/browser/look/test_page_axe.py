"""axe-core finds nothing on any screen, light and dark; what it leaves open about contrast is computed here."""

import pytest

from helpers.page import idle, open_view, until

RUN = """async () => {
  const { violations, incomplete } = await axe.run(document);
  const place = ({ target }) => target.join(' ');
  const open = incomplete.find(({ id }) => id === 'color-contrast')?.nodes ?? [];
  return {
    violations: violations.map(({ id, nodes }) => [id, ...nodes.map(place)]),
    faint: open.map((node) => [contrast(document.querySelector(place(node))), place(node)]).filter(([ratio]) => ratio < 4.5),
  };
}"""
CONTRAST = """() => {
  const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const over = (colours) => { // the last one on top of all others
    paint.clearRect(0, 0, 1, 1);
    for (const colour of colours) { paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1); }
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  window.contrast = (element) => {
    const grounds = [];
    for (let at = element; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
    const style = getComputedStyle(element);
    const ink = element.closest('svg') ? style.fill : style.color;
    const [one, other] = [over(grounds), over([...grounds, ink])].map(light).sort((a, b) => a - b);
    return (other + 0.05) / (one + 0.05);
  };
}"""
PAGES = 9  # of the walk
LAB = ("sweep", "prompts", "pays", "predict", "production")
OPENED = {
    "race": lambda tab: None,
    "card": lambda tab: tab.locator(".right [data-badge]").click(),
    "more of the mask": lambda tab: tab.locator("[data-more]").check(force=True),
    "prix": lambda tab: tab.click("[data-name=prix]"),
    "learn": lambda tab: tab.click("[data-learn]"),
    "presentation": lambda tab: tab.keyboard.press("f"),
    **{view: lambda tab, view=view: open_view(tab, view) for view in LAB},
}


@pytest.fixture(scope="module", params=["light", "dark"])
def visit(request, server, browser, axe):
    """A tab that shows the recorded race at its end."""
    context = browser.new_context()
    tab = idle(context.new_page(), server, color_scheme=request.param, reduced_motion="reduce")
    tab.evaluate(axe)
    tab.evaluate(CONTRAST)
    yield tab
    tab.context.close()
    context.close()


def test_no_screen_has_a_violation_or_text_that_is_too_faint(visit):
    until(visit, "Boolean(window.TreeRace?.view?.result)")
    visit.evaluate("TreeRace.view.skip()")
    found, wanted = {}, {"violations": [], "faint": []}
    for screen, show in OPENED.items():
        visit.evaluate("TreeRace.screens.showScreen('race')")
        show(visit)
        visit.wait_for_timeout(400)
        found[screen] = visit.evaluate(RUN)
        if screen == "learn":
            for number in range(2, PAGES + 1):
                visit.locator("[data-walk] [data-next]").click()
                visit.wait_for_timeout(200)
                found[f"learn {number}"] = visit.evaluate(RUN)
            visit.locator("[data-walk] [data-close]").click()
        if screen in ("card", "presentation"):
            visit.keyboard.press("Escape")
    assert {screen: result for screen, result in found.items() if result != wanted} == {}
