"""The grand prix: up to eight systems on one prompt, and its API."""

from typing import Any

import gradio as gr

from engine.page.screens.answers import example
from engine.page.screens.cards import FIELDS, PROMISES, STAND_INS, describe_all_systems, label_system
from engine.page.web.form import Fields, select_fields
from engine.page.web.lending import ServedPairs
from engine.page.web.parts import build_page_part, find_or_build_script_field
from engine.page.web.streams import add_api_endpoint, connect_run_button, connect_stop_button
from engine.race import BASELINE, FIELD
from engine.systems import SYSTEMS


def build_prix(served: ServedPairs, form: Fields, start_button: gr.Button, stop_button: gr.Button) -> None:
    def prix_on_page(systems, **settings):
        return {"systems": systems.split() if isinstance(systems, str) else systems, **settings}

    def prix(
        prompt: str,
        systems: list[str],
        temperature: float = 0.0,
        max_new_tokens: int = 200,
        seed: int = 0,
        pair: str = "",
    ) -> dict[str, Any]:
        """Race up to eight systems, plain decoding first. Streams JSON strings; the last one carries "end" and the figures.

        A pair is as in /race.
        """
        return locals()

    about = {name: {**each, "label": label_system(SYSTEMS[name])} for name, each in describe_all_systems().items()}
    limits = {"baseline": BASELINE, "least": FIELD[0], "most": FIELD[1]}
    value = {"systems": about, "promises": PROMISES, "presets": FIELDS, "standIns": STAND_INS, **limits}
    build_page_part("prix", "mountPrix", value, server_functions=[example])
    fields = {"systems": find_or_build_script_field()} | select_fields(
        form, "prompt", "temperature", "max_new_tokens", "seed"
    )
    connect_stop_button(
        stop_button, connect_run_button(start_button, served, "prix", prix_on_page, fields, channel="prix")
    )
    add_api_endpoint(served, "prix", prix)
