"""Runs that stream into a wire of the page, and refusals as sentences. Knows Gradio's events and who asks; knows no race."""

import html
import re
import traceback
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import gradio as gr
from gradio.context import LocalContext

from engine.screens.device import DEVICE, Call
from engine.screens.orders import order
from engine.web.form import Fields
from engine.web.lending import LENDS, Served, lent
from engine.web.pace import address_of
from engine.web.parts import by_name, call, hidden, wire

Stream = Callable[..., AsyncIterator[str]]
ASKED: dict[str, Any] = {"concurrency_limit": None}  # whose turn it is, the device decides
ON_PAGE: dict[str, Any] = {"show_progress": "hidden", "trigger_mode": "once", "api_visibility": "private", **ASKED}
NAME = re.compile(r"[\w-]{1,64}", re.ASCII)
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def refusal(sentence: str) -> gr.Error:
    """A sentence for the visitor, escaped: Gradio renders errors as HTML, and the sentence may quote what the visitor wrote."""
    return gr.Error(html.escape(sentence, quote=False), title="Not started", print_exception=False)


async def told(
    served: Served, kind: str, values: Callable[[], dict[str, Any]], job: object = None
) -> AsyncIterator[str]:
    """The news of an order (`engine.screens.orders`), which takes its turns on the device. A `job` is an open page's name for it.

    Whatever goes wrong becomes a sentence, also in `values`.
    """
    try:
        given = values()
        asked = order(served.pair, kind, given)
        watched = job is not None
        work = Call(asked.steps, visitor(watched), asked.rank, asked.bytes, name_of(job))
        news_of: AsyncGenerator[str, None] = lent(kind, given) if LENDS else DEVICE.stream(work, watched)
        async with aclosing(news_of) as stream:
            async for news in stream:
                yield news
    except gr.Error:  # ZeroGPU's own, such as a quota that is used up
        raise
    except Exception as error:
        raise refusal(sentence_of(error)) from None


def name_of(job: object) -> str:
    """The page's name for a run, or a name of ours where it gives none."""
    if job is None or job == "":
        return uuid.uuid4().hex
    if not (isinstance(job, str) and NAME.fullmatch(job)):
        raise ValueError("A run's name has 1 to 64 letters, digits and dashes.")
    return job


def visitor(watched: bool) -> str:
    """Who asks: an open page by its session. All calls of the API from one address are one visitor's."""
    request = LocalContext.request.get(None)
    if request is None:
        return ""
    if watched:
        return str(request.session_hash)
    return address_of(request.headers, str(getattr(request.client, "host", "")))


def sentence_of(error: Exception) -> str:
    """What the visitor is told of an error. Those that are no refusals are printed."""
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, MemoryError) or any(
        words in str(error).lower() for words in ("out of memory", "allocate memory")
    ):
        return "The device ran out of memory. Ask for fewer nodes or new tokens, or load a smaller pair."
    traceback.print_exception(error)
    return f"Something failed in TreeRace ({type(error).__name__}), so this run has ended. Nobody else's has. Try it again."


def streaming(
    begin: gr.Button, halt: gr.Button, stream: Stream, fields: Fields, channel: str, pending: str
) -> gr.events.Dependency:
    """`begin` streams into the wire named `channel`, and `halt` cancels that. `stream` gets the fields by name, and `job`.

    The page's script names the job, so that it can stop one of which the server has not told yet. `TreeRace.<pending>` hears of it.
    """
    fields = fields | {"job": hidden(f"job-{channel}")}
    running = begin.click(
        stream, inputs_kwargs=fields, outputs=wire(channel), js=by_name(pending, fields, channel), **ON_PAGE
    )
    halt.click(None, js=call("wire.stopped", channel), cancels=[running], **QUIET)
    return running


def runs(begin: gr.Button, halt: gr.Button, stream: Stream, fields: Fields, channel: str, view: str) -> None:
    """`streaming`, of whose begin, failure and halt `TreeRace.<view>` hears."""
    streaming(begin, halt, stream, fields, channel, f"{view}.pending").failure(None, js=call(f"{view}.failed"), **QUIET)
    halt.click(None, js=call(f"{view}.stop"), **QUIET)


def api(function: Stream) -> None:
    """Offers the function as an endpoint of its own name, with its own parameters, defaults and docstring."""
    gr.api(function, api_name=function.__name__, **ASKED)
