"""Runs that stream into the page's wire or to callers of the API, and refusals as sentences. Knows Gradio's events and who asks."""

import asyncio
import html
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

from engine.models.constraint import compile_pair_constraint
from engine.page.screens.device import DEVICE
from engine.page.screens.requests import build_request_within_token_limit, parse_and_validate_page_request
from engine.page.screens.turns import Job
from engine.page.views.wire import serialise_and_number_messages
from engine.page.web.bodies import NAME
from engine.page.web.form import Fields
from engine.page.web.lending import LENDS, ServedPairs, stream_request_on_lent_gpu
from engine.page.web.pace import client_address_of
from engine.page.web.parts import (
    build_hidden_button,
    build_hidden_event_channel,
    build_javascript_call,
    build_script_call_with_fields,
    find_or_build_script_field,
)
from engine.page.web.sessions import LISTENERS
from engine.record.compact_json import to_compact_json_with_rounded_floats
from engine.record.constraint import validate_constraint
from engine.record.failures import is_out_of_memory

RequestValuesFunction = Callable[..., dict[str, Any]]  # of a request, made of what a page or a caller has sent
ASKED: dict[str, Any] = {"concurrency_limit": None}  # whose turn it is, the device decides
ON_PAGE: dict[str, Any] = {"show_progress": "hidden", "trigger_mode": "multiple", "api_visibility": "private", **ASKED}
UNHEARD = 10.0  # seconds after which a run that nobody listens to ends
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


async def stream_request_events_and_refusals(
    served: ServedPairs, read_request_values: Callable[[], dict[str, Any]]
) -> AsyncIterator[str]:
    """The news of a request (`engine.page.screens.requests`), which takes its turns on the device.

    `read_request_values` gives its "kind", one of the served pairs as "pair", an open page's name for the "run", and the kind's own
    values. Whatever goes wrong becomes a sentence, also in there. A page is told of it in the wire too, behind all news.
    """
    run, watched = "", False  # by an open page
    try:
        values = read_request_values()
        kind, name, pair_name = values.pop("kind"), values.pop("run", None), values.pop("pair", "")
        run, watched = validate_or_create_run_name(name), name is not None
        pair = served.choose_pair(pair_name)
        if text := values.get("constraint"):
            # Compiled before anybody waits for it, in a thread: the page's own loop goes on
            await asyncio.to_thread(compile_pair_constraint, pair, validate_constraint(text))
        request = build_request_within_token_limit(pair, kind, values)
        who, address = visitor_session_or_address(watched), visitor_session_or_address(is_open_page=False)
        job = Job(
            lambda: serialise_and_number_messages(run, request.run(pair)),
            who,
            request.priority,
            request.cache_bytes,
            run,
            address,
        )
        async with aclosing(
            stream_request_on_lent_gpu(run, pair_name, request)
            if LENDS
            else DEVICE.queue_job_and_stream_json_events(job, watched)
        ) as stream:
            caller, event = LocalContext.request.get(None), LocalContext.event_id.get(None)
            heard = time.monotonic()
            async for news in stream:  # they come every second, if only to say where the visitor stands
                if caller is None or LISTENERS.has_listener(str(caller.session_hash), str(event)):
                    heard = time.monotonic()
                if time.monotonic() - heard > UNHEARD:
                    raise ValueError(
                        f"Nobody has listened to this run for {UNHEARD:g} s, so it has ended. Listen when you ask."
                    )
                yield news
    except Exception as error:
        if watched:
            yield to_compact_json_with_rounded_floats({"run": run, "failed": True})
        if isinstance(error, gr.Error):  # ZeroGPU's own, such as a quota that is used up
            raise
        # Gradio renders errors as HTML, and the sentence may quote what the visitor wrote
        sentence = html.escape(describe_error_and_print_if_unexpected(error), quote=False)
        raise gr.Error(sentence, title="Not started", print_exception=False) from None


def validate_or_create_run_name(run_name: object) -> str:
    """The page's name for a run, or a name of ours where it gives none. All messages of the run carry it."""
    if run_name is None or run_name == "":
        return uuid.uuid4().hex
    if not (isinstance(run_name, str) and NAME.fullmatch(run_name)):
        raise ValueError("A run's name has 1 to 64 letters, digits and dashes.")
    return run_name


def visitor_session_or_address(is_open_page: bool) -> str:
    """Who asks: an open page by its session. All calls of the API from one address are one visitor's."""
    request = LocalContext.request.get(None)
    if request is None:
        return ""
    if is_open_page:
        return str(request.session_hash)
    return client_address_of(request.headers, str(getattr(request.client, "host", "")))


def describe_error_and_print_if_unexpected(error: Exception) -> str:
    """What the visitor is told of an error. Those that are no refusals are printed."""
    if isinstance(error, ValueError):
        return str(error)
    if is_out_of_memory(error):
        return "The device ran out of memory. Ask for fewer nodes or new tokens, or load a smaller pair."
    traceback.print_exception(error)
    return f"Something failed in TreeRace ({type(error).__name__}), so this run has ended. Nobody else's has. Try it again."


def connect_run_button_to_event_stream(served: ServedPairs, form: Fields) -> None:
    """The page's one event that runs something: a script's request goes to the device, its news come back in the wire.

    `assets/page/shared/runs.js` makes the request of what the `form` holds, hears the news and knows whose they are.
    """
    fields: Fields = {"request": find_or_build_script_field(), **form}

    async def run(request: object, *_: object) -> AsyncIterator[str]:
        async for news in stream_request_events_and_refusals(served, lambda: parse_and_validate_page_request(request)):
            yield news

    build_hidden_button("run").click(
        run,
        [*fields.values()],
        build_hidden_event_channel(),
        js=build_script_call_with_fields("runs.request", fields),
        **ON_PAGE,
    ).failure(None, js=build_javascript_call("runs.refuseUnheard"), **QUIET)


def add_streaming_api_endpoint(served: ServedPairs, api_name: str, build_request_values: RequestValuesFunction) -> None:
    """Offers the function as an endpoint of that name, with its own parameters, defaults and docstring. It streams strings."""

    @wraps(build_request_values)
    async def stream(*given: object, **named: object) -> AsyncIterator[str]:
        async for news in stream_request_events_and_refusals(
            served, lambda: {"kind": api_name, **build_request_values(*given, **named)}
        ):
            yield news

    stream.__name__ = api_name
    stream.__signature__ = signature(build_request_values).replace(return_annotation=AsyncIterator[str])  # type: ignore[attr-defined]
    gr.api(stream, api_name=api_name, **ASKED)
