"""The grand prix: up to eight systems on one prompt, and its API."""

from collections.abc import Iterator
from typing import Any

import gradio as gr

from engine.models.pairs import LoadedPair
from engine.race import BASELINE, FIELD, Race, Settings, field
from engine.screens.cards import FIELDS, PROMISES, cards, label
from engine.systems import SYSTEMS
from engine.views.wire import events
from engine.web.form import Form
from engine.web.parts import hidden, part
from engine.web.streams import api, runs, told


def fill(pair: LoadedPair, form: Form, go: gr.Button, halt: gr.Button) -> None:
    def stream(systems: list[str], prompt: str, **settings: Any) -> Iterator[str]:
        yield from told(lambda: Settings(prompt, field(systems), **settings), lambda asked: events(Race(pair, asked)))

    def prix_on_page(systems, **settings):
        yield from stream(systems.split(), **settings)

    def prix(
        prompt: str, systems: list[str], temperature: float = 0.0, max_new_tokens: int = 200, seed: int = 0
    ) -> Iterator[str]:
        """Race up to eight systems, plain decoding first. Streams JSON strings; the last one carries "end" and the figures."""
        yield from stream(systems, prompt, temperature=temperature, max_new_tokens=max_new_tokens, seed=seed)

    about = {name: {**each, "label": label(SYSTEMS[name])} for name, each in cards().items()}
    least, most = FIELD
    limits = {"baseline": BASELINE, "least": least, "most": most}
    part("prix", "mountPrix", {"systems": about, "promises": PROMISES, "presets": FIELDS, **limits})
    chosen = {"systems": hidden()}
    fields = chosen | form.fields("prompt", "temperature", "max_new_tokens", "seed")
    runs(go, halt, prix_on_page, fields, channel="prix", view="prix")
    api(prix)
