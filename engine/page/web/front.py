"""The front: answers from the first moment with a page of its own, and hands all requests to the live app once that is there.

Knows HTTP as ASGI has it. It imports neither Gradio nor PyTorch, so that it answers before they are loaded.
"""

import asyncio
import gzip
import math
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from uvicorn.protocols.http import auto

from engine.page.web.guard import HEADERS, HURRY
from engine.page.web.pace import READS, SIGNS, client_address_or_network_of_scope

READINESS = "/readiness"  # where pages ask how far the engine is; with ?coming from one that is about to go over
COMING = 3.0  # seconds in which a browser builds the live page
SILENT = 30.0  # seconds in which a connection must have brought its next request
FRESH = HEADERS | {"cache-control": "no-store"}
LATER = "TreeRace is still loading its models. Ask again in a few seconds."


CONNECTION: Any = auto.AutoHTTPProtocol  # of the parser that is installed


class ExpiringConnection(CONNECTION):
    """A connection as uvicorn has it, which ends when it brings no whole request for `SILENT` seconds."""

    silence_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.restart_silence_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.restart_silence_timer()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self.silence_timer:
            self.silence_timer.cancel()

    def restart_silence_timer(self) -> None:
        if self.silence_timer:
            self.silence_timer.cancel()
        self.silence_timer = self.loop.call_later(SILENT, self.close_if_silent)

    def close_if_silent(self) -> None:
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.abort()


class OpeningPageThenLiveAppServer:
    """The process's only server. `progress_text` says what is being prepared, "" for nothing; `count_runs` how many runs are here."""

    def __init__(self, opening_page_html: str):
        """`opening_page_html` is the HTML that `/` has until there is a live app."""
        self.page = opening_page_html.encode()
        self.packed = gzip.compress(self.page, 1)
        self.progress_text: Callable[[], str] = lambda: "Loading PyTorch"
        self.count_runs: Callable[[], int] = lambda: 0
        self.served: Callable[[], dict[str, str]] = dict  # what the page's head says of the pair
        self.live: Any = None
        self.asked = -math.inf  # when the live page was last asked for, or was about to be

    # ---- the server

    def start_server_thread(self, host: str, port: int) -> int:
        """Answers from now on, on a thread of its own. Returns the port, which the system chooses for 0.

        Raises `OSError` when the port is taken.
        """
        listening = socket.create_server((host, port))
        self.thread = threading.Thread(
            target=lambda: asyncio.run(self.run_uvicorn_on_socket(listening)), name="front", daemon=True
        )
        self.thread.start()
        return listening.getsockname()[1]

    async def run_uvicorn_on_socket(self, listening_socket: socket.socket) -> None:
        self.loop = asyncio.get_running_loop()
        how = uvicorn.Config(self, http=ExpiringConnection, log_level="warning", lifespan="off", server_header=False)
        await uvicorn.Server(how).serve([listening_socket])

    def start_and_attach_live_app(self, live_app: Any) -> None:
        """All requests but `READINESS` go to the Starlette application `live_app`, once its startup is over."""

        async def begin() -> None:
            self.lifespan = live_app.router.lifespan_context(live_app)
            await self.lifespan.__aenter__()
            self.live, self.asked = live_app, time.monotonic()  # open tabs come now

        asyncio.run_coroutine_threadsafe(begin(), self.loop).result()

    @property
    def may_browser_be_building_page(self) -> bool:
        """Whether a browser may be building the live page: on the machine that serves it, what computes beside it makes it stutter."""
        return time.monotonic() - self.asked < COMING

    def wait_until_server_ends_and_raise(self) -> None:
        """Answers until the process ends. Raises `RuntimeError` when the server ends before that."""
        self.thread.join()
        raise RuntimeError("The page's server has ended by itself, so nobody is answered any more. Start it again.")

    # ---- its answers

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        sign = scope["path"] == READINESS
        if scope["type"] == "http" and (sign or self.live is None):
            in_turn = await (SIGNS if sign else READS).wait_for_turn(client_address_or_network_of_scope(scope))
            answer = self.answer_status_or_opening_page(scope) if in_turn else PlainTextResponse(HURRY, 429, FRESH)
            return await answer(scope, receive, send)
        if self.live is None:
            return await send({"type": "websocket.close"})
        if scope["path"] == "/":
            self.asked = time.monotonic()
        await self.live(scope, receive, send)

    def answer_status_or_opening_page(self, scope: dict) -> Response:
        """How far the engine is, or the opening page."""
        if scope["path"] == READINESS:
            live, words = self.live is not None, self.progress_text()
            if scope["query_string"] == b"coming" and live:
                self.asked = time.monotonic()
            status = {
                "words": words,
                "live": live,
                "ready": live and not words,
                "runs": self.count_runs(),
                **self.served(),
            }
            return JSONResponse(status, headers=FRESH)
        if scope["path"] != "/":
            return PlainTextResponse(LATER, 503, FRESH | {"retry-after": "2"})
        if b"gzip" in dict(scope["headers"]).get(b"accept-encoding", b""):
            return HTMLResponse(self.packed, headers=FRESH | {"content-encoding": "gzip"})
        return HTMLResponse(self.page, headers=FRESH)
