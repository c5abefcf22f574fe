"""Colours, fonts, and the style rules that follow from the engine's screens and systems. Knows no component."""

from collections.abc import Iterable

import gradio as gr

from engine.page.screens.cards import headings
from engine.page.views.page_files import MONO, SANS, WEIGHTS
from engine.remote.server import Server


def theme() -> gr.themes.Base:
    return gr.themes.Base(
        primary_hue="orange",
        secondary_hue="blue",
        neutral_hue="stone",
        radius_size="md",
        font=[gr.themes.LocalFont(SANS, weights=(*WEIGHTS.values(),)), "system-ui", "sans-serif"],
        font_mono=[gr.themes.LocalFont(MONO, weights=(*WEIGHTS.values(),)), "ui-monospace", "monospace"],
    ).set(
        body_background_fill="#f4f3ee",
        body_background_fill_dark="#0f1113",
        body_text_color="#1b1c1e",
        body_text_color_dark="#f1f2f3",
        body_text_color_subdued="#5b5c5e",
        body_text_color_subdued_dark="#a4abb3",
        block_background_fill="#ffffff",
        block_background_fill_dark="#181b1f",
        border_color_primary="#d9d8d1",
        border_color_primary_dark="#33383e",
        slider_color="#a84300",
        slider_color_dark="#f08a24",
    )


def rules(screens: Iterable[str], remote: Server | None = None) -> str:
    """The style rules of a page that has these screens, by name, and perhaps another server in its menus."""
    return "\n".join((*map(unless_shown, screens), menu_headings(remote)))


def unless_shown(screen: str) -> str:
    """The style rule that hides a screen's column and buttons while another one is shown."""
    own = ", ".join(f"#{screen}-{element}" for element in ("screen", "go", "halt"))
    return f'#screen:not([data-screen="{screen}"]) :is({own}) {{ display: none; }}'


def menu_headings(remote: Server | None) -> str:
    """Style rules that write each promise beside its first system in the menus."""
    return "\n".join(
        f"#systems li:nth-of-type({at})::after {{ content: '{words}'; }}" for at, words in headings(remote).items()
    )
