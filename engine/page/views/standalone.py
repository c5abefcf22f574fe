"""The replay page: a race as one HTML file that plays without a network. And the opening page. Knows a Record and the page's files."""

import base64
import importlib.util
import re
from argparse import Namespace
from html import escape
from pathlib import Path

from engine.page.views import page_files
from engine.page.views.wire import serialise_whole_race_as_event
from engine.record.files import read_text_file
from engine.record.race_file import Record, first_and_last_of_shown_lanes

PLOTLY = Path(importlib.util.find_spec("plotly").origin).parent / "package_data" / "plotly.min.js"  # type: ignore[union-attr, arg-type]
POLICY = (  # no network, ever
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


def render_replay_page(record: Record) -> str:
    """The page as one HTML text. Raises `ValueError` unless the race has two or three lanes."""
    prompt = first_and_last_of_shown_lanes(record)[0].trace.prompt
    return fill_replay_template(record, "replay", title=f"TreeRace: {' '.join(prompt.split())[:60]}")


def render_opening_page() -> str:
    """The HTML that is served while the live page loads: it plays the first recorded race and asks the server for its progress."""
    record = Record.from_trusted_json(min((page_files.PAGE.parent / "races").glob("*.json")).read_text("utf-8"))
    policy, status = f"{POLICY}; connect-src 'self'", page_files.read_markup_of_part("opening")
    return fill_replay_template(record, "opening", "TreeRace", policy, status)


def fill_replay_template(
    record: Record, asset_set: str, title: str, content_security_policy: str = POLICY, status_html: str = ""
) -> str:
    """A page that plays a race by `asset_set`'s files, `status_html` below its head. Raises `ValueError` unless there are 2 or 3
    lanes.
    """
    first = first_and_last_of_shown_lanes(record)[0].trace
    parts = {
        "title": escape(title),
        "policy": content_security_policy,
        "pair": escape(f"{first.pair} · {first.hardware} · {first.dtype}"),
        "styles": "\n".join((*build_font_rules(), page_files.join_styles_or_scripts_of_page("styles", asset_set))),
        "status": status_html,
        "race": page_files.read_markup_of_part("race"),
        "event": serialise_whole_race_as_event(record).replace(
            "<", "\\u003c"
        ),  # or a text with "</script>" would end the script
        "plotly": PLOTLY.read_text("utf-8").replace("</script", "<\\/script"),
        "scripts": page_files.join_styles_or_scripts_of_page("scripts", asset_set).replace("</script", "<\\/script"),
    }
    return re.sub(r"{{(\w+)}}", lambda slot: parts[slot[1]], page_files.read_markup_of_part("replay"))


def build_font_rules() -> list[str]:
    """Style rules that embed the page's fonts. Without Gradio there are none, and the system's fonts are used."""
    server = importlib.util.find_spec("gradio")  # finds its files and imports nothing
    static = Path(str(server.origin)).parent / "templates" / "frontend" / "static" if server else Path()
    rule = "@font-face {{ font-family: '{}'; font-weight: {}; src: url(data:font/woff2;base64,{}); }}"
    there = [(family, weight, static / file) for family, weight, file in page_files.FONTS if (static / file).is_file()]
    return [rule.format(family, weight, base64.b64encode(path.read_bytes()).decode()) for family, weight, path in there]


SPACE = """---
title: TreeRace replay
emoji: 🌳
colorFrom: blue
colorTo: yellow
sdk: static
app_file: index.html
pinned: false
license: apache-2.0
short_description: A race of tree-based speculative decoding, replayed
tags: [speculative-decoding, tree-attention, inference, visualization]
---

# TreeRace replay

One recorded race of tree-based speculative decoding. The page plays it and lets you look inside every step. It needs no hardware.
"""


def main(options: Namespace) -> None:
    """A static Space is two files in a folder: the page and a README."""
    out = options.space / "index.html" if options.space else options.out or options.race.with_suffix(".html")
    record = Record.from_json(
        read_text_file(options.race, "Name a race file, such as `python -m engine record` writes.")
    )
    if out.is_dir():
        raise ValueError(f"{str(out)!r} is a folder. Name a file in it.")
    out.parent.mkdir(parents=True, exist_ok=True)
    if options.space:
        (out.parent / "README.md").write_text(SPACE, "utf-8")
    if out.suffix == ".gif":
        from engine.page.views import film  # a browser, which no page needs

        film.record_replay_as_gif(render_replay_page(record), out, options.width)
    else:
        out.write_text(render_replay_page(record), "utf-8")
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB, opens from the disk")
