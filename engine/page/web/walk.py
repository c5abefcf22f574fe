"""The guided walk beside the race: it sets the controls, and measures how far a deliberately broken system is off."""

import gradio as gr

from engine.breaks import BREAKS
from engine.page.screens.cards import card
from engine.page.screens.gallery import PROMPTS
from engine.page.web.form import Form
from engine.page.web.lending import Served
from engine.page.web.parts import by_name, call, part, trigger
from engine.page.web.streams import QUIET, streaming, told
from engine.systems import find

CONTROLS = (
    "prompt",
    "left",
    "right",
    "depth",
    "width",
    "nodes",
    "temperature",
    "max_new_tokens",
    "seed",
    "constraint",
    "broken",
    "untouched",
)


def fill(served: Served, form: Form, halt: gr.Button) -> None:
    async def distances(job, **asked):
        async for news in told(served, "distance", lambda: asked, job):
            yield news

    broken_cards = {name: card(find(each.suggestion.systems[-1])) for name, each in BREAKS.items()}
    breaks = {name: {**each.to_dict(), "card": broken_cards[name]} for name, each in BREAKS.items()}
    part("walk", "mountWalk", {"prompt": PROMPTS["stories"][0]["prompt"], "breaks": breaks})
    controls = form.fields(*CONTROLS)
    components = [*controls.values()]
    trigger("walk-set").click(None, components, components, js=by_name("walk.controls.take", controls), **QUIET).then(
        None, js=call("walk.controls.settled"), **QUIET
    )
    asked = form.fields(*(name for name in CONTROLS if name not in ("left", "right", "untouched")))
    measuring = streaming(trigger("walk-measure"), halt, distances, asked, "treebreak", "walk.breaks.pending")
    measuring.failure(None, js=call("walk.breaks.failed"), **QUIET)
