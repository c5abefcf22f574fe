"""The guided walk beside the race: it measures how far a deliberately broken system is off."""

import gradio as gr

from engine.breaks import BREAKS
from engine.page.screens.answers import PROMPTS
from engine.page.screens.cards import card
from engine.page.web.form import Form
from engine.page.web.lending import Served
from engine.page.web.parts import part, trigger
from engine.page.web.streams import runs
from engine.systems import find


def fill(served: Served, form: Form, halt: gr.Button) -> None:
    def distances(**asked):
        return asked

    broken_cards = {name: card(find(each.suggestion.systems[-1])) for name, each in BREAKS.items()}
    breaks = {name: {**each.to_dict(), "card": broken_cards[name]} for name, each in BREAKS.items()}
    part("walk", "mountWalk", {"prompt": PROMPTS["stories"][0]["prompt"], "breaks": breaks})
    begin, fields = trigger("walk-measure"), form.fields("broken", *Form.__annotations__)
    runs(begin, halt, served, "distance", distances, fields, channel="treebreak")
