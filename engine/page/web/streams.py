"""Runs that stream into a wire of the page, and refusals as sentences. Knows Gradio's events and who asks; knows no race."""

import asyncio
import html
import math
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import wraps
from inspect import signature
from typing import Any

import gradio as gr
from gradio.context import LocalContext
from gradio.events import Dependency

from engine.models.constraint import compile_pair_constraint
from engine.page.screens.device import DEVICE
from engine.page.screens.orders import build_order
from engine.page.screens.turns import Job
from engine.page.views.wire import number_messages
from engine.page.web.bodies import NAME
from engine.page.web.form import Fields
from engine.page.web.lending import LENDS, ServedPairs, stream_run_on_lent_gpu
from engine.page.web.pace import client_address_of
from engine.page.web.parts import (
    build_event_wire,
    build_script_call,
    build_script_call_with_fields,
    find_or_build_script_field,
)
from engine.page.web.sessions import LISTENERS
from engine.record.constraint import validate_constraint
from engine.record.failures import is_out_of_memory

Values = Callable[..., dict[str, Any]]  # of an order, made of what a page or a caller has sent
Runs = dict[str, Dependency]  # events that run until a Stop, by their wires' names
ASKED: dict[str, Any] = {"concurrency_limit": None}  # whose turn it is, the device decides
ON_PAGE: dict[str, Any] = {"show_progress": "hidden", "trigger_mode": "once", "api_visibility": "private", **ASKED}
SHOWN = 0.25  # seconds between the last news and a failure: within one frame a page hears of the failure first
UNHEARD = 10.0  # seconds after which a run that nobody listens to ends
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


async def stream_order(served: ServedPairs, kind: str, values: Values, name: object = None) -> AsyncIterator[str]:
    """The news of an order (`engine.page.screens.orders`), which takes its turns on the device. `name` is an open page's for the run.

    `values` may name the "pair", one of those that are served. Whatever goes wrong becomes a sentence, also in `values`.
    """
    told = -math.inf  # when there were news last
    try:
        given = dict(values())
        pair_name = given.pop("pair", "")
        pair = served.choose_pair(pair_name)
        if text := given.get("constraint"):
            # Compiled before anybody waits for it, in a thread: the page's own loop goes on
            await asyncio.to_thread(compile_pair_constraint, pair, validate_constraint(text))
        asked = build_order(pair, kind, given)
        watched = name is not None
        who, address = identify_visitor(watched), identify_visitor(watched=False)
        run = validate_run_name(name)
        work = Job(lambda: number_messages(run, asked.steps()), who, asked.rank, asked.bytes, run, address)
        async with aclosing(
            stream_run_on_lent_gpu(run, pair_name, kind, given) if LENDS else DEVICE.stream(work, watched)
        ) as stream:
            request, event = LocalContext.request.get(None), LocalContext.event_id.get(None)
            heard = time.monotonic()
            async for news in stream:  # they come every second, if only to say where the visitor stands
                if request is None or LISTENERS.has_listener(str(request.session_hash), str(event)):
                    heard = time.monotonic()
                if time.monotonic() - heard > UNHEARD:
                    raise ValueError(
                        f"Nobody has listened to this run for {UNHEARD:g} s, so it has ended. Listen when you ask."
                    )
                told = time.monotonic()
                yield news
    except gr.Error:  # ZeroGPU's own, such as a quota that is used up
        raise
    except Exception as error:
        # Gradio renders errors as HTML, and the sentence may quote what the visitor wrote
        sentence = html.escape(error_sentence_of(error), quote=False)
        await asyncio.sleep(max(0.0, told + SHOWN - time.monotonic()))
        raise gr.Error(sentence, title="Not started", print_exception=False) from None


def validate_run_name(name: object) -> str:
    """The page's name for a run, or a name of ours where it gives none. All messages of the run carry it."""
    if name is None or name == "":
        return uuid.uuid4().hex
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise ValueError("A run's name has 1 to 64 letters, digits and dashes.")
    return name


def identify_visitor(watched: bool) -> str:
    """Who asks: an open page by its session. All calls of the API from one address are one visitor's."""
    request = LocalContext.request.get(None)
    if request is None:
        return ""
    if watched:
        return str(request.session_hash)
    return client_address_of(request.headers, str(getattr(request.client, "host", "")))


def error_sentence_of(error: Exception) -> str:
    """What the visitor is told of an error. Those that are no refusals are printed."""
    if isinstance(error, ValueError):
        return str(error)
    if is_out_of_memory(error):
        return "The device ran out of memory. Ask for fewer nodes or new tokens, or load a smaller pair."
    traceback.print_exception(error)
    return f"Something failed in TreeRace ({type(error).__name__}), so this run has ended. Nobody else's has. Try it again."


def build_stream_function(served: ServedPairs, kind: str, values: Values) -> Callable[..., AsyncIterator[str]]:
    """The function as Gradio calls it. It orders what `values` makes of its parameters and streams news. A page gives a `run` too."""

    @wraps(values)
    async def stream(*given: object, run: object = None, **named: object) -> AsyncIterator[str]:
        async for news in stream_order(served, kind, lambda: values(*given, **named), run):
            yield news

    return stream


def connect_run_button(
    start_button: gr.Button, served: ServedPairs, kind: str, values: Values, fields: Fields, channel: str
) -> Runs:
    """Makes the button start a run whose events go to the page's `channel`. Returns the event that a Stop button cancels. `values` gets
    the fields by name, and the `pair`.

    The page's run of that channel (`assets/page/shared/runs.js`) hears of all of it. It names the run, so that it can stop one of which
    the server has not told yet, and the pair that the visitor has chosen.
    """
    name = f"runs.on.{channel}"
    fields = fields | dict.fromkeys(("run", "pair"), find_or_build_script_field())
    running = start_button.click(
        build_stream_function(served, kind, values),
        inputs_kwargs=fields,
        outputs=build_event_wire(channel),
        js=build_script_call_with_fields(f"{name}.ask", fields),
        **ON_PAGE,
    )
    running.failure(None, js=build_script_call(f"{name}.fail"), **QUIET)
    return {channel: running}


def connect_stop_button(stop_button: gr.Button, all_runs: Runs) -> None:
    """`stop_button` cancels all of these runs. It is one event for all: Gradio compares every event with every component as the page
    comes.
    """
    stop_button.click(None, js=build_script_call("stopRuns", *all_runs), cancels=[*all_runs.values()], **QUIET)


def add_api_endpoint(served: ServedPairs, kind: str, values: Values) -> None:
    """Offers the function as an endpoint of its own name, with its own parameters, defaults and docstring. It streams strings."""
    stream = build_stream_function(served, kind, values)
    stream.__signature__ = signature(values).replace(return_annotation=AsyncIterator[str])  # type: ignore[attr-defined]
    gr.api(stream, api_name=values.__name__, **ASKED)
