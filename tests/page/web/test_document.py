"""The page's document: scripts stand in it and not in Gradio's configuration, which has nothing of the API."""

import json
import re
from collections.abc import Iterator

import pytest

from engine.page.views import page_files
from engine.page.web.document import CONFIG, NO_API, insert_page_files, remove_api_from_document


@pytest.fixture(scope="module")
def whole(http) -> str:
    return http.get("/").text


@pytest.fixture(scope="module")
def config(whole) -> dict:
    return json.loads(CONFIG.search(whole.encode())[0])


def ids(layout: dict) -> Iterator[int]:
    yield layout["id"]
    for each in layout.get("children", ()):
        yield from ids(each)


def test_the_pages_styles_and_scripts_stand_at_the_end_of_its_document_once(whole, config):
    """Gradio would have them read and run in one task with the building of all components."""
    script = page_files.join_files_of_page("scripts", "page")
    assert whole.count(script) == 1 and whole.index(script) > whole.index("<gradio-app")
    assert whole.rstrip().endswith("</script></body>\n</html>") or re.search(
        r"</script>\s*</body>\s*</html>\s*$", whole
    )
    styles = whole.index(page_files.join_files_of_page("styles", "page"))
    assert whole.index("<gradio-app") < styles < whole.index(script)  # behind Gradio's own, which stand in the head
    assert not config["head"] and not config["css"]
    links = whole[: whole.index("</head>")]
    assert links.count('rel="modulepreload"') > 15 and links.count('as="font"') >= 3


def test_the_document_has_no_component_and_no_event_of_the_api(whole, config, http):
    asked = http.get("/config").json()
    kept = [each for each in asked["components"] if each["type"] != "api"]
    assert 40 < len(kept) == len(config["components"]) < len(asked["components"])
    assert [each["id"] for each in config["components"]] == [each["id"] for each in kept]
    for layout in (config["layout"], config["page"][""]["layout"]):
        assert [*ids(layout)][1:] == [at for at in [*ids(asked["layout"])][1:] if at in {each["id"] for each in kept}]
    callers = [each["id"] for each in asked["dependencies"] if not each["targets"]]
    assert callers and {each["api_visibility"] for each in config["dependencies"]} == {"private"}
    assert [each for each in asked["dependencies"] if each["id"] not in callers] == config["dependencies"]
    assert NO_API.decode() in whole and "/race" in http.get("/gradio_api/info").json()["named_endpoints"]


def test_what_a_page_holds_is_written_as_gradio_writes_it():
    said = "</script><b>'&\u2028é"
    page = {"components": [{"id": 1, "type": "html", "said": said}, {"id": 2, "type": "api"}], "dependencies": []}
    page |= {"layout": {"id": 0, "children": [{"id": 1}, {"id": 2}]}, "page": {}}
    made = f"window.gradio_config = {json.dumps(page)};</script>".replace("</script><b>", "\\u003c/script><b>")
    document = remove_api_from_document(made.encode())
    inside = document.removeprefix(b"window.gradio_config = ").removesuffix(b";</script>")
    assert not re.search(rb"[<>&']", inside)
    layout = {"id": 0, "children": [{"id": 1}]}
    assert json.loads(inside) == {**page, "components": page["components"][:1], "layout": layout}


def test_a_script_cannot_end_its_own_element():
    document = insert_page_files(b"<head></head><body></body>", "<link />", "<style></style>", "a = '</script>'")
    assert document == b"<head><link /></head><body><style></style><script>a = '<\\/script>'</script></body>"
