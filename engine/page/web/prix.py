"""The grand prix: up to eight systems on one prompt, and its API."""

from collections.abc import AsyncIterator

import gradio as gr

from engine.page.screens.cards import FIELDS, PROMISES, cards, label
from engine.page.web.form import Form
from engine.page.web.lending import Served
from engine.page.web.parts import carried, part
from engine.page.web.streams import api, runs, told
from engine.race import BASELINE, FIELD
from engine.systems import SYSTEMS


def fill(served: Served, form: Form, go: gr.Button, halt: gr.Button) -> None:
    async def prix_on_page(systems, job, **settings):
        names = systems.split() if isinstance(systems, str) else systems
        async for news in told(served, "prix", lambda: {"systems": names, **settings}, job):
            yield news

    async def prix(
        prompt: str,
        systems: list[str],
        temperature: float = 0.0,
        max_new_tokens: int = 200,
        seed: int = 0,
        pair: str = "",
    ) -> AsyncIterator[str]:
        """Race up to eight systems, plain decoding first. Streams JSON strings; the last one carries "end" and the figures.

        A pair is as in /race.
        """
        settings = {"temperature": temperature, "max_new_tokens": max_new_tokens, "seed": seed, "pair": pair}
        async for news in told(served, "prix", lambda: {"prompt": prompt, "systems": systems, **settings}):
            yield news

    about = {name: {**each, "label": label(SYSTEMS[name])} for name, each in cards().items()}
    least, most = FIELD
    limits = {"baseline": BASELINE, "least": least, "most": most}
    part("prix", "mountPrix", {"systems": about, "promises": PROMISES, "presets": FIELDS, **limits})
    chosen = {"systems": carried()}
    fields = chosen | form.fields("prompt", "temperature", "max_new_tokens", "seed")
    runs(go, halt, prix_on_page, fields, channel="prix")
    api(prix)
