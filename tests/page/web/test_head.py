"""The page's head: it names all files of the components, and gives the styles the weight that Gradio would give them."""

import pytest

from engine.page.web import document
from engine.page.web.lending import ServedPairs
from engine.page.web.page import build_page
from helpers.pairs import spoken_pair


@pytest.fixture(scope="module")
def types() -> set[str]:
    return {each.get_block_name() for each in build_page(ServedPairs(spoken_pair())).blocks.values()} - {
        "api",
        "blocks",
    }


def test_every_kind_of_component_has_its_files_and_they_are_there(types):
    assert {"html", "textbox", "slider", "dropdown", "button"} <= types
    for name in types:
        files = document.component_files_of([name])
        assert any(file.endswith(".js") for file in files), name
        assert all((document.ASSETS / file.removeprefix("./assets/")).is_file() for file in files)


def test_files_stand_once_in_the_order_of_the_components():
    first, both = document.component_files_of(["html"]), document.component_files_of(["html", "textbox"])
    assert both[: len(first)] == first and len(both) == len({*both}) > len(first)


def test_a_build_that_lists_files_otherwise_has_no_links(monkeypatch, tmp_path):
    (tmp_path / "core-1").with_suffix(".js").write_text("export {}", encoding="utf-8")
    monkeypatch.setattr(document, "ASSETS", tmp_path)
    assert document.component_files_of(["html"]) == []


def test_a_rule_of_the_dark_page_asks_for_it_outside_of_the_page_and_stays_one_rule():
    css = ".dark .go { color: red; }\n.go { color: blue; }\n@media print {\n  .dark .go { color: black; }\n}"
    inside = document.raise_specificity(css)
    assert inside.startswith(".gradio-container.gradio-container .contain {\n.dark & .go")
    assert inside.count(".dark & .go") == 2 and "\n.go { color: blue; }" in inside
