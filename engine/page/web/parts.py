"""The components that the page's own scripts fill: parts of the page and wires. Knows how Gradio calls a script by name."""

import json
from typing import Any

import gradio as gr
from gradio.context import Context

from engine.page.views import page_files


def build_javascript_call(function_name: str, *arguments: object) -> str:
    """JavaScript that calls `TreeRace.<function_name>` with plain values."""
    return f"TreeRace.{function_name}({', '.join(json.dumps(each) for each in arguments)})"


def build_script_call_with_fields(function_name: str, fields: dict[str, gr.components.Component]) -> str:
    """JavaScript that calls `TreeRace.<function_name>` with the fields' values in one object, by name. It may return those that it
    changes.
    """
    return build_javascript_call("gradio.named", function_name, list(fields))


def build_hidden_event_channel() -> gr.HTML:
    """A hidden component that carries all runs' news to the page as JSON strings (`assets/page/shared/runs.js`)."""
    return gr.HTML(
        "", html_template="", js_on_load="TreeRace.runs.mountWire(props, watch);", visible="hidden", elem_id="wire"
    )


def build_scripted_html_part(part_name: str, mount_function: str, value: object = None, **html_options: Any) -> gr.HTML:
    """A part of the page: its markup in `assets/page/`, filled by its own script's `TreeRace.<mount>(element, value, server)`."""
    return gr.HTML(
        json.dumps(value),
        html_template=page_files.read_markup_of_part(part_name),
        js_on_load=f"TreeRace.gradio.mount({json.dumps(mount_function)}, element, props, server);",
        apply_default_css=False,
        elem_id=part_name,
        **html_options,
    )


def build_hidden_field(element_id: str | None = None, value: str | None = None) -> gr.Textbox:
    """A hidden field that the page's scripts write."""
    return gr.Textbox(value, visible="hidden", elem_id=element_id)


def find_or_build_script_field() -> gr.Textbox:
    """The hidden field that stands for all values that scripts give with an event. A page has one: Gradio lays out every field."""
    there = Context.root_block.blocks.values() if Context.root_block else ()
    fields = [each for each in there if isinstance(each, gr.Textbox) and each.elem_id == "carried"]
    return fields[0] if fields else build_hidden_field("carried")


def build_hidden_button(element_id: str) -> gr.Button:
    """A hidden button that the page's scripts click."""
    return gr.Button(visible="hidden", elem_id=element_id)
