"""The page's document: as Gradio makes it, with our styles and scripts in it, and without what only callers of the API need.

Gradio has a page's styles and scripts read, compiled and run in a task that builds all components too. In the document the browser's
parser does that earlier, in a task of its own. Gradio asks for its files one component after the other, and links name all at once.
Knows what Gradio's template holds and how its build lists files; knows no component.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gradio

ASSETS = Path(gradio.__file__).parent / "templates" / "frontend" / "assets"
FILES = re.compile(r"m\.f\|\|\(m\.f=(\[.*?\])\)")  # in a script: all files that its imports need, which it numbers
CONFIG = re.compile(rb"(?<=window\.gradio_config = )\{.*?\}(?=;</script>)", re.DOTALL)
API = re.compile(rb"(?<=window\.gradio_api_info = )\{.*?\}(?=;</script>)", re.DOTALL)
NO_API = b'{"named_endpoints":{},"unnamed_endpoints":{}}'
ESCAPED = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&'"})  # as Gradio writes JSON into its page


def insert_page_files(document: bytes, links: str, styles: str, javascript: str) -> bytes:
    """The document with `links` in its head; our styles and script at its end come behind Gradio's styles, and before its script."""
    script = "<script>{}</script>".format(javascript.replace("</script", "<\\/script"))
    document = document.replace(b"</head>", links.encode() + b"</head>", 1)
    before, end, after = document.rpartition(b"</body>")
    return before + styles.encode() + script.encode() + end + after


def remove_api_from_document(document: bytes) -> bytes:
    """The document without the API's events, their components and their description: Gradio's script goes through all of them often."""

    def bare(found: re.Match[bytes]) -> bytes:
        config = json.dumps(remove_api_from_config(json.loads(found[0])), ensure_ascii=False, separators=(",", ":"))
        return config.translate(ESCAPED).encode()

    return API.sub(NO_API, CONFIG.sub(bare, document))


def remove_api_from_config(config: dict[str, Any]) -> dict[str, Any]:
    components = [each for each in config["components"] if each["type"] != "api"]
    events = [each for each in config["dependencies"] if each["targets"]]
    kept = {each["id"] for each in components}
    pages = {name: {**page, "layout": filter_layout(page["layout"], kept)} for name, page in config["page"].items()}
    layout = filter_layout(config["layout"], kept)
    return {**config, "components": components, "dependencies": events, "layout": layout, "page": pages}


def filter_layout(layout: dict[str, Any], kept: set[int]) -> dict[str, Any]:
    """The tree of components, with the root and those that are `kept`."""
    if "children" not in layout:
        return layout
    return {**layout, "children": [filter_layout(each, kept) for each in layout["children"] if each["id"] in kept]}


def build_style_tags(css: str) -> str:
    return f"<style>{css}</style>\n<style>{raise_specificity(css)}</style>"


def raise_specificity(rules: str) -> str:
    """The rules again, with the weight that Gradio gives them, for elements inside of its page: there they win over its own."""
    inside = re.sub(r"^(\s*)\.dark ", r"\1.dark & ", rules, flags=re.MULTILINE)
    return f".gradio-container.gradio-container .contain {{\n{inside}\n}}"


def component_files_of(types: Iterable[str]) -> list[str]:
    """The scripts and styles of components of these types, in the order in which Gradio would ask for them.

    There are none where its build lists them otherwise. The browser then meets them as it builds the page.
    """
    scripts = (path.read_text("utf-8") for path in sorted(ASSETS.glob("core-*.js")))
    script, listed = next(((text, found[1]) for text in scripts if (found := FILES.search(text))), ("", "[]"))
    files = json.loads(listed)
    named: dict[str, None] = {}
    for name in types:
        numbers = re.search(rf"[{{,]{name}:{{[^}}]*?component:[^}}]*?__vite__mapDeps\(\[([\d,]+)\]\)", script)
        named |= dict.fromkeys(files[int(number)] for number in (numbers[1].split(",") if numbers else ()))
    return [file.replace("./", "./assets/", 1) for file in named]


def build_link_tag(file: str) -> str:
    kind = "stylesheet" if file.endswith(".css") else "modulepreload"
    return f'<link rel="{kind}" crossorigin href="{file}" />'
