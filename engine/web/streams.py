"""Runs that stream into a wire of the page, one at a time, and refusals as sentences. Knows Gradio's queue; knows no race."""

import html
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import gradio as gr

from engine.screens.device import DEVICE
from engine.web.form import Fields
from engine.web.parts import by_name, call, wire

ONE_AT_A_TIME = {"concurrency_id": "race", "concurrency_limit": 1}  # a second race would disturb the clocks
ON_PAGE: dict[str, Any] = {
    "show_progress": "hidden",
    "trigger_mode": "once",
    "api_visibility": "private",
    **ONE_AT_A_TIME,
}
Order = TypeVar("Order")  # what a visitor asked for, checked
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def refusal(sentence: str) -> gr.Error:
    """A sentence for the visitor, escaped: Gradio renders errors as HTML, and the sentence may quote what the visitor wrote."""
    return gr.Error(html.escape(sentence, quote=False), title="Not started", print_exception=False)


def told(asked: Callable[[], Order], events: Callable[[Order], Iterator[str]]) -> Iterator[str]:
    """The events of what is asked, in a turn of their own on the device.

    A mistake that the visitor can correct becomes a sentence, at once where `asked` raises it.
    """
    try:
        order = asked()
        with DEVICE.race():
            for event in events(order):
                DEVICE.doing = "The rest is made ready behind the race"
                yield event
    except ValueError as error:
        raise refusal(str(error)) from None
    except RuntimeError as error:
        if "out of memory" not in str(error).lower():
            raise
        raise refusal(
            "The device ran out of memory. Ask for fewer nodes or new tokens, or load a smaller pair."
        ) from None


def streaming(
    begin: gr.Button, stream: Callable[..., Iterator[str]], fields: Fields, channel: str, js: str | None = None
) -> gr.events.Dependency:
    """`begin` streams into the wire named `channel`. `stream` gets the fields by name, after `js` has changed them."""
    return begin.click(stream, inputs_kwargs=fields, outputs=wire(channel), js=js, **ON_PAGE)


def runs(
    begin: gr.Button, halt: gr.Button, stream: Callable[..., Iterator[str]], fields: Fields, channel: str, view: str
) -> None:
    """`begin` streams into the wire named `channel`, and `halt` cancels that. `TreeRace.<view>` hears of begin, failure and halt."""
    running = streaming(begin, stream, fields, channel, by_name(f"{view}.pending", fields))
    running.failure(None, js=call(f"{view}.failed"), **QUIET)
    halt.click(None, js=call(f"{view}.stop"), cancels=[running], **QUIET)


def api(function: Callable[..., Iterator[str]]) -> None:
    """Offers the function as an endpoint of its own name, with its own parameters, defaults and docstring."""
    gr.api(function, api_name=function.__name__, **ONE_AT_A_TIME)
