"""The page's own files, in the order of `assets/page/manifest.json`, and its fonts. Knows their names and order, never their content.

The manifest names every style and script once, with those that take it: the live "page", the "replay", the "opening" page. The fonts
come with Gradio's server.
"""

import json
from itertools import product
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "assets" / "page"
MANIFEST = json.loads((PAGE / "manifest.json").read_text("utf-8"))
SANS, MONO = "IBM Plex Sans", "IBM Plex Mono"
WEIGHTS = {"Regular": 400, "Bold": 700}
FONTS = [  # family, weight, and file below Gradio's `static`
    (family, weight, f"fonts/{family.replace(' ', '')}/{family.replace(' ', '')}-{word}.woff2")
    for family, (word, weight) in product((SANS, MONO), WEIGHTS.items())
]


def read_markup_of_part(part_name: str) -> str:
    """The HTML of a part of the page. Raises `KeyError` when the manifest has no such part."""
    return read_page_file(MANIFEST["markup"][part_name])


def join_styles_or_scripts_of_page(kind: str, page_name: str) -> str:
    """The text of all "styles" or "scripts" of one page, joined in the manifest's order."""
    return "\n".join(read_page_file(path) for path, takers in MANIFEST[kind].items() if page_name in takers)


def read_page_file(relative_path: str) -> str:
    return (PAGE / relative_path).read_text("utf-8")
