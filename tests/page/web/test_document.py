"""The page's document: our styles and scripts stand in it and not in Gradio's configuration; nothing of Gradio's own is changed."""

import re

import pytest

from engine.page.views import page_files
from engine.page.web.document import insert_links_styles_and_script, raise_css_specificity_above_gradio


@pytest.fixture(scope="module")
def whole(http) -> str:
    return http.get("/").text


def test_the_pages_styles_and_scripts_stand_at_the_end_of_its_document_once(whole, http):
    """Gradio would have them read and run in one task with the building of all components."""
    script = page_files.join_styles_or_scripts_of_page("scripts", "page")
    assert whole.count(script) == 1 and whole.index(script) > whole.index("<gradio-app")
    assert re.search(r"</script>\s*</body>\s*</html>\s*$", whole)
    styles = whole.index(page_files.join_styles_or_scripts_of_page("styles", "page"))
    assert whole.index("<gradio-app") < styles < whole.index(script)  # behind Gradio's own, which stand in the head
    config = http.get("/config").json()
    assert not config["head"] and not config["css"]
    assert whole[: whole.index("</head>")].count('as="font"') >= 3


def test_a_script_cannot_end_its_own_element():
    document = insert_links_styles_and_script(
        b"<head></head><body></body>", "<link />", "<style></style>", "a = '</script>'"
    )
    assert document == b"<head><link /></head><body><style></style><script>a = '<\\/script>'</script></body>"


@pytest.mark.parametrize("made", [b"<head>of a new kind</head><body>x</body>", b"<body>x</body>", b"<p>x</p>", b""])
def test_a_document_of_another_kind_keeps_all_that_it_holds(made):
    """A new Gradio may write its page otherwise."""
    document = insert_links_styles_and_script(made, "<link />", "<style></style>", "a()")
    assert document.replace(b"<link />", b"").replace(b"<style></style><script>a()</script>", b"") == made
    assert b"<script>a()</script>" in document


def test_a_rule_of_the_dark_page_asks_for_it_outside_of_the_page_and_stays_one_rule():
    css = ".dark .go { color: red; }\n.go { color: blue; }\n@media print {\n  .dark .go { color: black; }\n}"
    inside = raise_css_specificity_above_gradio(css)
    assert inside.startswith(".gradio-container.gradio-container .contain {\n.dark & .go")
    assert inside.count(".dark & .go") == 2 and "\n.go { color: blue; }" in inside
