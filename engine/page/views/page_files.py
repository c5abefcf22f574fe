"""The page's own files, in the order of `assets/page/manifest.json`. Knows their names and order, never their content.

The manifest names every style and script once, with those that take it: the live "page", the standalone "replay", the
"opening" page.
"""

import json
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "assets" / "page"
MANIFEST = json.loads((PAGE / "manifest.json").read_text("utf-8"))


def markup(name: str) -> str:
    """The HTML of a part of the page. Raises `KeyError` when the manifest has no such part."""
    return read(MANIFEST["markup"][name])


def styles(taker: str) -> str:
    return taken("styles", taker)


def scripts(taker: str) -> str:
    return taken("scripts", taker)


def taken(kind: str, taker: str) -> str:
    return "\n".join(read(path) for path, takers in MANIFEST[kind].items() if taker in takers)


def read(path: str) -> str:
    return (PAGE / path).read_text("utf-8")
