"""The guard: an ASGI layer around the page. Only addresses that the page and its API need are answered, and only bodies that they send.

Whatever else comes is one sentence in bounded time, before Gradio reads it. Knows HTTP as ASGI has it; knows no component.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from urllib.parse import parse_qsl

import anyio
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from engine.page.screens.device import DEVICE
from engine.page.web.bodies import MOST, SMALL, AllowedEndpoints, RequestRefused, last_path_segment
from engine.page.web.kept_streams import FIRST, ResumableStreams, parse_received_event_count_or_first
from engine.page.web.pace import READS, SIGNS, RateLimiter, client_address_or_network_of_scope
from engine.page.web.sessions import LISTENERS, OpenStreamCounter
from engine.page.web.shelf import CompressedAnswerCache

HEADERS = {
    # Gradio compiles what its components bring, and writes scripts and styles into its page
    "content-security-policy": (
        "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; script-src-attr 'none'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
        "manifest-src 'self'; base-uri 'self'; form-action 'none'; object-src 'none'; "
        "frame-ancestors 'self' https://huggingface.co https://*.huggingface.co https://*.hf.space"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "strict-origin-when-cross-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=(), display-capture=()",
}
KEPT = (  # what everybody gets, beside the page's own files
    r"/",
    r"/config/?",
    r"/(assets|static)/(?![./]|.*(\.\.|/[./]))[\w./-]{1,200}",  # each file has one address
    r"/(gradio_api/)?theme\.css",
    r"/(favicon\.ico|manifest\.json|robots\.txt)",
    r"/gradio_api/info/?",
)
READ = (  # what else may be read
    r"/pwa_icon(/\d{1,4})?",
    r"/gradio_api/(startup-events|app_id/?)",  # a page that has lost its server asks for the last one until it answers
    r"/gradio_api/heartbeat/[\w-]{1,64}",
)
FETCHED = re.compile(r"/gradio_api/call/\w{1,64}/([\w-]{1,64})")
QUEUE = "/gradio_api/queue/data"
ALIVE = (
    "/alive"  # where pages say of a run of theirs whether they still wait for it: ?run=NAME&page=shown, hidden or gone
)
RUNS = re.compile(r"/gradio_api/(queue/join|call/\w{1,64})/?")
OF_ADDRESS, OF_VISITOR = (200, 40), (16, 8)  # calls at once and a second; a hall full of visitors may share one address
HURRY = "You send calls faster than they can be answered. Wait a second, then try again."
FETCHED_ONCE = "A call's news can be fetched once, and somebody fetches these or has fetched them."
NOT_KEPT = "What is asked for of these news is not kept any more. Load the page again."
SESSION = re.compile(rb"(.{0,1000}&)?session_hash=([\w-]{1,64})(&.{0,1000})?")  # private Spaces add a signature
WRITTEN = re.compile(r"/gradio_api/(queue/join|run/predict|call/\w{1,64}|component_server|cancel|reset)/?")
PATIENCE = 30.0  # seconds in which a body must have come
USUAL = 1_000_000  # bytes of a body that announces no length
HELD, HELD_OF_ADDRESS = 160_000_000, 32_000_000  # bytes of bodies that are held at a time, in all and of one address
ALWAYS = 20_000  # bytes of a body for which there is room even then
BUSY = "Too much is being sent at once. Try again in a minute."
GOING_ON = 400  # answers of one address that go on at a time: two for each open page, and a hall may share an address
FULL = "Too many pages are open at your address. Close some, then load this one again."
NOTHING = "There is nothing at this address."
WORDS = {
    405: NOTHING,
    413: "What was sent is too large.",
    415: "Only JSON is read here.",
    422: "This cannot be read. Send what the API's description at /gradio_api/info asks for.",
    503: "Too many wait for a race. Try again in a minute.",
}


class RequestGuardMiddleware:
    """The application `app`, of which only `allowed_endpoints` answer. `transform_document` makes what browsers get of its page."""

    def __init__(
        self, app: Callable, allowed_endpoints: AllowedEndpoints, transform_document: Callable[[bytes], bytes] = bytes
    ):
        self.app, self.allowed_endpoints, self.held = app, allowed_endpoints, Counter[str]()
        self.shelf = CompressedAnswerCache(app, allowed_endpoints.file_by_address, transform_document, HEADERS)
        self.kept = re.compile("|".join((*KEPT, *map(re.escape, allowed_endpoints.file_by_address))))
        self.read = re.compile("|".join((self.kept.pattern, *READ)))
        self.addresses, self.visitors = RateLimiter(*OF_ADDRESS), RateLimiter(*OF_VISITOR)
        self.going_on, self.streams = OpenStreamCounter(), ResumableStreams()

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close"})
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        try:
            asked, path = scope["method"], scope["path"]
            if asked == "POST" and WRITTEN.fullmatch(path):
                address = client_address_or_network_of_scope(scope)
                refuse_unless_within_rate(self.addresses.book_call_if_allowed_now(address))
                length = validate_content_type_and_read_announced_length(
                    scope, MOST.get(last_path_segment(path), SMALL)
                )
                with self.count_body_bytes_within_limits(address) as hold:
                    body, session = self.allowed_endpoints.filter_body_and_extract_session(
                        path, await read_body_within_size_and_time(scope, receive, length, hold)
                    )
                    if RUNS.fullmatch(path) or last_path_segment(path) == "component_server":
                        refuse_unless_within_rate(self.visitors.book_call_if_allowed_now(session or address))
                    await self.forward_request_hiding_errors(
                        strip_proxy_headers_and_set_length(scope, len(body)),
                        build_receive_replaying_body(body, receive),
                        send,
                    )
            elif asked == "POST" and path == ALIVE:
                refuse_unless_within_rate(await SIGNS.wait_for_turn(client_address_or_network_of_scope(scope)))
                await extend_or_cancel_run_by_page_heartbeat(scope)(scope, receive, send)
            elif asked in ("GET", "HEAD") and (self.read.fullmatch(path) or session_or_call_of_event_stream(scope)):
                address = client_address_or_network_of_scope(scope)
                refuse_unless_within_rate(await READS.wait_for_turn(address))
                if self.kept.fullmatch(path) and (kept := await self.shelf.answer_from_cache_or_fill_it(scope)):
                    return await kept(scope, receive, send)
                with self.limit_and_count_open_answers(address), claim_event_stream_and_count_listener(scope):
                    if path == QUEUE:
                        await self.stream_or_resume_session_events(scope, receive, send)
                    else:
                        await self.forward_request_hiding_errors(
                            strip_proxy_headers_and_set_length(scope), receive, send
                        )
            else:
                raise RequestRefused(404, NOTHING)
        except RequestRefused as refusal:
            part = (
                refusal.is_shown_by_page_parts and "component_server" in scope["path"]
            )  # it reads answers, and no errors
            told = build_sentence_response(
                200 if part else refusal.status, refusal.sentence, refusal.is_shown_by_page_parts
            )
            await told(scope, receive, send)

    @contextmanager
    def count_body_bytes_within_limits(self, client_address: str) -> Iterator[Callable[[int], None]]:
        """Yields a function that counts a body's bytes. It raises `RequestRefused` when the address, or all together, hold too many."""
        mine = 0

        def hold(count: int) -> None:
            nonlocal mine
            mine += count
            self.held[client_address] += count
            if mine > ALWAYS and (self.held[client_address] > HELD_OF_ADDRESS or self.held.total() > HELD):
                raise RequestRefused(503, BUSY, is_shown_by_page_parts=True)

        try:
            yield hold
        finally:
            self.held[client_address] -= mine
            self.held = +self.held  # without those that hold nothing

    def limit_and_count_open_answers(self, client_address: str) -> AbstractContextManager:
        """An answer that may go on for as long as a page is open. Raises `RequestRefused` when the address has `GOING_ON` of them."""
        if self.going_on[client_address] >= GOING_ON:
            raise RequestRefused(503, FULL)
        return self.going_on.count_while_open(client_address)

    async def stream_or_resume_session_events(self, scope: dict, receive: Callable, send: Callable) -> None:
        """A session's news, which go on where a reader lost them. Raises `RequestRefused` for those that are kept no more."""
        session, said, passed_on = (
            session_or_call_of_event_stream(scope),
            parse_received_event_count_or_first(scope),
            strip_proxy_headers_and_set_length(scope),
        )
        if not said:
            return await self.forward_request_hiding_errors(passed_on, receive, send)
        del MutableHeaders(scope=passed_on)["accept-encoding"]  # events are counted
        if said == FIRST:
            begun = await self.streams.replace_stream_of_session(
                session, partial(self.forward_request_hiding_errors, passed_on)
            )
            return await begun.send_events_from(0, receive, send)
        if not (kept := self.streams.find_stream_resumable_from(session, int(said))):
            raise RequestRefused(404, NOT_KEPT)
        await kept.send_events_from(int(said), receive, send)

    async def forward_request_hiding_errors(self, scope: dict, receive: Callable, send: Callable) -> None:
        """The application's own answer with `HEADERS`. What it says of an error is one sentence instead of its own words."""
        status = 0

        async def guarded(message: dict) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            if 0 < status < 400:
                await send(message)

        try:
            await self.app(scope, receive, guarded)
        except Exception as error:  # its text may quote what a visitor wrote
            if not 0 < status < 400:
                print(f"{scope['path'][:60]!r} ended with {type(error).__name__}", flush=True)
        if not 0 < status < 400:
            words = "The server could not answer. Try again." if status in (0, 500) else WORDS.get(status, NOTHING)
            await build_sentence_response(status or 500, words)(scope, receive, send)


def extend_or_cancel_run_by_page_heartbeat(scope: dict) -> JSONResponse:
    """Tells the device whether a page still waits for its run. Answers whether the run goes on."""
    asked = dict(parse_qsl(scope["query_string"][:200].decode("latin-1")))
    run, state = asked.get("run", ""), asked.get("page")
    here = state != "gone" and DEVICE.extend_page_deadline(run, state == "hidden")
    if state == "gone":
        DEVICE.cancel_run_even_before_it_arrives(run)
    return JSONResponse({"here": here}, headers=HEADERS)


def refuse_unless_within_rate(is_allowed: bool) -> None:
    """Raises `RequestRefused` (429) when the sender has exceeded the call rate."""
    if not is_allowed:
        raise RequestRefused(429, HURRY, is_shown_by_page_parts=True)


def session_or_call_of_event_stream(scope: dict) -> str:
    """The session or call whose event stream this request reads, "" for any other request."""
    if fetched := FETCHED.fullmatch(scope["path"]):
        return fetched[1]
    session = SESSION.fullmatch(scope["query_string"]) if scope["path"] == QUEUE else None
    return session[2].decode() if session else ""


def claim_event_stream_and_count_listener(scope: dict) -> AbstractContextManager:
    """Counts one open reader of the requested stream. Raises `RequestRefused` for a call's stream that was read before."""
    name = session_or_call_of_event_stream(scope)
    if FETCHED.fullmatch(scope["path"]) and not LISTENERS.claim_first_fetch_of_stream(name):
        raise RequestRefused(404, FETCHED_ONCE)
    return LISTENERS.streams.count_while_open(name) if name else nullcontext()


def strip_proxy_headers_and_set_length(scope: dict, body_length: int | None = None) -> dict:
    """The request without what only changes addresses in the answer, another host's name, and with the length of its body, if any."""
    passed_on = {**scope}
    headers = MutableHeaders(scope=passed_on)
    if headers.getlist("x-forwarded-host") != [os.environ.get("SPACE_HOST")]:
        del headers["x-forwarded-host"]
    del headers["x-gradio-server"], headers["x-forwarded-prefix"]
    if body_length is not None:
        del headers["transfer-encoding"]
        headers["content-length"] = str(body_length)
    return passed_on


def validate_content_type_and_read_announced_length(scope: dict, max_bytes: int) -> int:
    """The body's announced bytes, else `USUAL`. Raises `RequestRefused` for what is no JSON, and for more than `max_bytes`."""
    headers = dict(scope["headers"])
    if not headers.get(b"content-type", b"").lower().startswith(b"application/json"):
        raise RequestRefused(415, WORDS[415])
    length = headers.get(b"content-length", b"%d" % min(max_bytes, USUAL))
    if not length.isdigit() or int(length[:20]) > max_bytes:
        raise build_too_large_refusal(max_bytes)
    return int(length)


async def read_body_within_size_and_time(
    scope: dict, receive: Callable, max_bytes: int, reserve_bytes: Callable[[int], None]
) -> bytes:
    """The request's body. Raises `RequestRefused` when it is too large or too slow, or when its sender has left."""
    body = bytearray()
    try:
        with anyio.fail_after(PATIENCE):
            async for chunk in Request(scope, receive).stream():
                reserve_bytes(len(chunk))
                body += chunk
                if len(body) > max_bytes:
                    raise build_too_large_refusal(max_bytes)
    except TimeoutError:
        raise RequestRefused(408, f"It did not arrive within {PATIENCE:g} seconds.") from None
    except ClientDisconnect:
        raise build_too_large_refusal(max_bytes) from None
    return bytes(body)


def build_too_large_refusal(max_bytes: int) -> RequestRefused:
    return RequestRefused(
        413, f"What was sent is too large: at most {max_bytes / 1e6:g} MB are read here.", is_shown_by_page_parts=True
    )


def build_receive_replaying_body(body: bytes, receive: Callable) -> Callable:
    """A `receive` that hands over the body, then whatever comes."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def handed() -> dict:
        return messages.pop() if messages else await receive()

    return handed


def build_sentence_response(status: int, sentence: str, is_shown_by_page_parts: bool = False) -> JSONResponse:
    return JSONResponse(
        {"detail": sentence} | ({"refused": sentence} if is_shown_by_page_parts else {}), status, HEADERS
    )
