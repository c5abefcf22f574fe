"""The page's styles, and links to what Gradio's components need. Knows how Gradio's build lists files; no component.

Gradio reads styles in the browser, rule by rule, and asks for its files one component after the other. Here both stand in the document,
so that the page is built in shorter tasks.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import gradio

ASSETS = Path(gradio.__file__).parent / "templates" / "frontend" / "assets"
FILES = re.compile(r"m\.f\|\|\(m\.f=(\[.*?\])\)")  # in a script: all files that its imports need, which it numbers


def links(types: Iterable[str], *more: str) -> str:
    """Links to the files of components of these types, and `more`."""
    return "\n".join((*map(link, files_of(types)), *more))


def styles(css: str) -> str:
    return f"<style>{css}</style>\n<style>{weighty(css)}</style>"


def weighty(css: str) -> str:
    """The rules again, with the weight that Gradio gives them, for elements inside of its page: there they win over its own."""
    inside = re.sub(r"^(\s*)\.dark ", r"\1.dark & ", css, flags=re.MULTILINE)
    return f".gradio-container.gradio-container .contain {{\n{inside}\n}}"


def files_of(types: Iterable[str]) -> list[str]:
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


def link(file: str) -> str:
    kind = "stylesheet" if file.endswith(".css") else "modulepreload"
    return f'<link rel="{kind}" crossorigin href="{file}" />'
