"""The guard: an ASGI layer around the page. Only addresses that the page and its API need are answered, and only bodies that they send.

Whatever else comes is one sentence in bounded time, before Gradio reads it. Knows HTTP as ASGI has it; knows no component.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engine.web.bodies import Bodies, Doors, Refused
from engine.web.pace import Pace, address_of

HEADERS = (
    (
        b"content-security-policy",  # Gradio compiles what its components bring, and writes scripts and styles into its page
        b"default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; script-src-attr 'none'; "
        b"style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
        b"manifest-src 'self'; base-uri 'self'; form-action 'none'; object-src 'none'; "
        b"frame-ancestors 'self' https://huggingface.co https://*.huggingface.co https://*.hf.space",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"strict-origin-when-cross-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), payment=(), usb=(), display-capture=()"),
)
READ = (  # what may be read; the page's own files are added to these
    r"/",
    r"/config/?",
    r"/(assets|static)/(?!.*\.\.)[\w./-]{1,200}",
    r"/(gradio_api/)?theme\.css",
    r"/(favicon\.ico|manifest\.json|robots\.txt|pwa_icon(/\d{1,4})?)",
    r"/gradio_api/(info/?|startup-events|app_id/?)",  # a page that has lost its server asks for the last one until it answers
    r"/gradio_api/heartbeat/[\w-]{1,64}",
    r"/gradio_api/call/\w{1,64}/[\w-]{1,64}",
)
QUEUE = "/gradio_api/queue/data"
RUNS = re.compile(r"/gradio_api/(queue/join|call/\w{1,64})/?")
NAMED = re.compile(rb'"session_hash": "([\w-]{1,64})"')
OF_ADDRESS, OF_VISITOR = (200, 40), (16, 8)  # calls at once and a second; a hall full of visitors may share one address
HURRY = "You send calls faster than they can be answered. Wait a second, then try again."
SESSION = re.compile(rb"(.{0,1000}&)?session_hash=[\w-]{1,64}(&.{0,1000})?")  # private Spaces add a signature
WRITTEN = re.compile(r"/gradio_api/(queue/join|run/predict|call/\w{1,64}|component_server|cancel|reset)/?")
PATIENCE = 30.0  # seconds in which a body must have come
USUAL, MOST_LARGE = 1_000_000, 2  # bytes of a body, and how many larger ones are held at a time
BUSY = "Others are sending large files. Try again in a minute."
NOTHING = "There is nothing at this address."
WORDS = {
    405: NOTHING,
    413: "What was sent is too large.",
    415: "Only JSON is read here.",
    422: "This cannot be read. Send what the API's description at /gradio_api/info asks for.",
    503: "Too many wait for a race. Try again in a minute.",
}


class Guard:
    """The application `app`, behind the doors that it needs."""

    def __init__(self, app: Callable, doors: Doors):
        self.app, self.bodies, self.large = app, Bodies(doors), 0
        self.read = re.compile("|".join((*READ, *(re.escape(f"/gradio_api/file={path}") for path in doors.files))))
        self.addresses, self.visitors = Pace(*OF_ADDRESS), Pace(*OF_VISITOR)

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close"})
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        try:
            asked, path = scope["method"], scope["path"]
            if asked == "POST" and WRITTEN.fullmatch(path):
                address = sender(scope)
                unhurried(self.addresses.allows(address))
                length = length_of(scope, self.bodies.most(path))
                with self.room(length):
                    body = self.bodies.checked(path, await whole(receive, length))
                    if RUNS.fullmatch(path):
                        session = NAMED.search(body[:200])  # it stands before the values
                        unhurried(self.visitors.allows(session[1].decode() if session else address))
                    await self.pass_on(with_length(scope, len(body)), once(body, receive), send)
            elif asked in ("GET", "HEAD") and (self.read.fullmatch(path) or asks_for_queue(scope)):
                await self.pass_on(scope, receive, send)
            else:
                raise Refused(404, NOTHING)
        except Refused as refusal:
            # The page's parts read answers, and no errors
            seen = refusal.fields and "component_server" in scope["path"]
            await sentence(send, 200 if seen else refusal.status, refusal.words, refusal.fields)

    @contextmanager
    def room(self, length: int) -> Iterator[None]:
        """Room in memory for a body. Raises `Refused` when it is a large one and others fill the room."""
        large = length > USUAL
        if large and self.large >= MOST_LARGE:
            raise Refused(503, BUSY, {"refused": BUSY})
        self.large += large
        try:
            yield
        finally:
            self.large -= large

    async def pass_on(self, scope: dict, receive: Callable, send: Callable) -> None:
        """The application's own answer with `HEADERS`. What it says of an error is one sentence instead of its own words."""
        status = 0

        async def guarded(message: dict) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status < 400:
                    message = {**message, "headers": [*message["headers"], *HEADERS]}
            if 0 < status < 400:
                await send(message)

        try:
            await self.app(plain(scope), receive, guarded)
        except Exception as error:  # its text may quote what a visitor wrote
            if not 0 < status < 400:
                print(f"{scope['path'][:60]!r} ended with {type(error).__name__}", flush=True)
        if not 0 < status < 400:
            words = "The server could not answer. Try again." if status in (0, 500) else WORDS.get(status, NOTHING)
            await sentence(send, status or 500, words)


def unhurried(allowed: bool) -> None:
    if not allowed:
        raise Refused(429, HURRY, {"refused": HURRY})


def sender(scope: dict) -> str:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return address_of(headers, (scope.get("client") or ("",))[0])


def asks_for_queue(scope: dict) -> bool:
    return scope["path"] == QUEUE and bool(SESSION.fullmatch(scope["query_string"]))


def plain(scope: dict) -> dict:
    """The request without what only changes addresses in the answer: another host's name, and links to stored states."""
    own = os.environ.get("SPACE_HOST", "").encode()
    headers = [
        (name, value)
        for name, value in scope["headers"]
        if name not in (b"x-gradio-server", b"x-forwarded-host", b"x-forwarded-prefix")
        or (name == b"x-forwarded-host" and value == own)
    ]
    page = scope["path"] in ("/", "/config", "/config/")
    return {**scope, "headers": headers, **({"query_string": b""} if page else {})}


def with_length(scope: dict, length: int) -> dict:
    others = [
        (name, value) for name, value in scope["headers"] if name not in (b"content-length", b"transfer-encoding")
    ]
    return {**scope, "headers": [*others, (b"content-length", b"%d" % length)]}


def length_of(scope: dict, most: int) -> int:
    """How many bytes the body may have: as many as are announced, else `USUAL`. Raises `Refused` for what is no JSON or too large."""
    headers = dict(scope["headers"])
    if not headers.get(b"content-type", b"").lower().startswith(b"application/json"):
        raise Refused(415, WORDS[415])
    length = headers.get(b"content-length", b"%d" % min(most, USUAL))
    if not length.isdigit() or int(length[:20]) > most:
        raise too_large(most)
    return int(length)


async def whole(receive: Callable, most: int) -> bytes:
    """The request's body. Raises `Refused` when it is too large or too slow."""
    try:
        return await asyncio.wait_for(gathered(receive, most), PATIENCE)
    except (TimeoutError, asyncio.TimeoutError):
        raise Refused(408, f"It did not arrive within {PATIENCE:g} seconds.") from None


async def gathered(receive: Callable, most: int) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most or message["type"] == "http.disconnect":
            raise too_large(most)
    return bytes(body)


def too_large(most: int) -> Refused:
    words = f"What was sent is too large: at most {most / 1e6:g} MB are read here."
    return Refused(413, words, {"refused": words})


def once(body: bytes, receive: Callable) -> Callable:
    """A `receive` that hands over the body, then whatever comes."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def handed() -> dict:
        return messages.pop() if messages else await receive()

    return handed


async def sentence(send: Callable, status: int, words: str, fields: Mapping[str, Any] | None = None) -> None:
    body = json.dumps({"detail": words, **(fields or {})}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
