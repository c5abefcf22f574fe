"""The grand prix: up to eight systems on one prompt, and its API."""

from typing import Any

import gradio as gr

from engine.page.screens.answers import example
from engine.page.screens.cards import FIELDS, PROMISES, STAND_INS, cards, label
from engine.page.web.form import Fields, some
from engine.page.web.lending import Served
from engine.page.web.parts import carried, part
from engine.page.web.streams import add_stop, api, runs
from engine.race import BASELINE, FIELD
from engine.systems import SYSTEMS


def fill(served: Served, form: Fields, go: gr.Button, halt: gr.Button) -> None:
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

    about = {name: {**each, "label": label(SYSTEMS[name])} for name, each in cards().items()}
    limits = {"baseline": BASELINE, "least": FIELD[0], "most": FIELD[1]}
    value = {"systems": about, "promises": PROMISES, "presets": FIELDS, "standIns": STAND_INS, **limits}
    part("prix", "mountPrix", value, server_functions=[example])
    fields = {"systems": carried()} | some(form, "prompt", "temperature", "max_new_tokens", "seed")
    add_stop(halt, runs(go, served, "prix", prix_on_page, fields, channel="prix"))
    api(served, "prix", prix)
