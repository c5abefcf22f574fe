"""The form that all screens share: the prompt and the dials, each under its name in `Settings`. Knows components; knows no event.

A handler names the fields it needs and gets their values under the same names.
"""

from typing import Any

import gradio as gr

from engine.page.screens.answers import CHAT_PROMPTS, OPENING, PROMPTS
from engine.page.screens.link import HOTTEST
from engine.race import LIMITS
from engine.record.constraint import LONGEST

Fields = dict[str, Any]  # components of any class, by name; the shared form is one such


def select_fields_by_name(fields: Fields, *names: str) -> Fields:
    """The fields of those names."""
    return {name: fields[name] for name in names}


def build_prompt_box(is_chat: bool = False) -> gr.Textbox:
    """It begins with a request where the page's own pair answers them, else with the beginning of a story."""
    return gr.Textbox(
        (CHAT_PROMPTS["chat"] if is_chat else PROMPTS["stories"])[0]["prompt"],
        label="Prompt",
        show_label=False,
        placeholder="Write the beginning; both lanes go on from here.",
        lines=2,
        max_lines=2,
        elem_id="prompt",
    )


def build_shape_sampling_and_constraint_dials(depth: int, width: int, nodes: int) -> Fields:
    """The dials by name. Only the race uses those of the tree's shape, which is given. The rest is as in the first recorded race."""
    shaping: dict[str, Any] = {"step": 1, "buttons": [], "elem_classes": "shape"}
    return {
        "depth": gr.Slider(*LIMITS["depth"], value=depth, label="Depth", **shaping),
        "width": gr.Slider(*LIMITS["width"], value=width, label="Width", **shaping),
        "temperature": gr.Slider(
            0.0, HOTTEST, OPENING.temperature, step=0.05, label="Temperature", buttons=[], elem_classes="heat"
        ),
        "nodes": gr.Number(nodes, label="Nodes", precision=0, elem_classes=["number", "shape"]),
        "seed": gr.Number(OPENING.seed, label="Seed", precision=0, elem_classes="number"),
        "max_new_tokens": gr.Number(200, label="New tokens", precision=0, elem_classes=["number", "length"]),
        "constraint": gr.Textbox(
            "",
            label="Constraint",
            placeholder="json:…, regex:… or lark:…",
            lines=1,
            max_lines=2,  # or what is pasted would lose its line ends, which a grammar needs
            max_length=LONGEST,
            elem_classes="constraint",
        ),
    }
