"""The shelf: the page and its files, made once by the application, compressed once and kept as they are sent.

Serving one again costs the engine's process next to nothing. Its tag is its content's, so a browser that has it gets a short answer.
Knows HTTP as ASGI has it; knows nothing of what an answer holds.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from anyio import sleep_forever
from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse

YEAR, DAY, NONE = "public, max-age=31536000, immutable", "public, max-age=86400", "no-cache"
PAGE = ("/", "/config", "/config/")
LEVEL = 6  # of compression: a higher one takes twice as long for a hundredth of the bytes


class CompressedAnswerCache:
    def __init__(
        self,
        app: Callable,
        file_by_address: Mapping[str, Path],
        transform_document: Callable,
        headers: Mapping[str, str],
    ):
        """`file_by_address` are the page's own, by address. Their addresses change when they do. All others are the application's.

        `transform_document` makes what browsers get of the application's page, as bytes of bytes. Every answer has the `headers`.
        """
        self.app, self.files, self.document, self.headers = app, file_by_address, transform_document, headers
        self.kept: dict[str, tuple[Response, Response]] = {}  # by path: an answer as it is, and by gzip
        self.one = asyncio.Lock()  # what two ask for at once is made once

    async def answer_from_cache_or_fill_it(self, scope: dict) -> Response | None:
        """The answer to a GET or a HEAD of what everybody gets; None when the application has no such thing."""
        path, asked = scope["path"], Headers(scope=scope)
        if path not in self.kept:
            async with self.one:
                if path not in self.kept and not await self.fetch_and_store_answer(scope):
                    return None
        whole, packed = self.kept[path]
        if whole.headers["etag"] in asked.get("if-none-match", ""):
            unchanged = NotModifiedResponse(whole.headers)
            unchanged.headers.update(self.headers)
            return unchanged
        return packed if "gzip" in asked.get("accept-encoding", "") else whole

    async def fetch_and_store_answer(self, scope: dict) -> bool:
        """Puts what is at the address on the shelf. False when there is nothing."""
        path, address = scope["path"], own_server_address_of(scope)
        scheme, _, host = address.partition("://")
        # Nothing in the answer depends on who asks
        own = {**scope, "method": "GET", "scheme": scheme, "query_string": b"", "headers": [(b"host", host.encode())]}
        made = None
        with suppress(Exception):  # whoever asks the application next meets the same
            made = await collect_asgi_answer(FileResponse(self.files[path]) if path in self.files else self.app, own)
        if not made or made.status_code != 200:
            return False
        body = bytes(made.body)
        if path == "/":
            body = self.document(body)
        if path in PAGE:  # browsers ask the server that they got it from
            body = body.replace(address.encode(), b"")
        lasting = path in self.files or path.startswith("/assets/")
        about = {
            "content-type": made.headers.get("content-type", "application/octet-stream"),
            "etag": f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"',
            "cache-control": YEAR if lasting else DAY if path.startswith("/static/") else NONE,
            "vary": "accept-encoding",
            **self.headers,
        }
        zipped = GZipMiddleware(Response(body, headers=about), compresslevel=LEVEL)
        accepting = {**own, "headers": [(b"accept-encoding", b"gzip")]}
        packed = await asyncio.to_thread(
            asyncio.run, collect_asgi_answer(zipped, accepting)
        )  # races stream on meanwhile
        self.kept[path] = Response(body, headers=about), packed
        return True


async def collect_asgi_answer(app: Callable, scope: dict) -> Response:
    """The whole answer of an ASGI application to a request without a body."""
    request = [{"type": "http.request", "body": b"", "more_body": False}]
    start: dict[str, Any] = {}
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if not request:
            await sleep_forever()
        return request.pop()

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        else:
            parts.append(message.get("body", b""))

    await app({**scope, "extensions": {}}, receive, send)
    answer = Response(b"".join(parts), start["status"])
    answer.raw_headers = [*start["headers"]]
    return answer


def own_server_address_of(scope: dict) -> str:
    """The server's own address as Gradio makes it, not what a visitor calls it."""
    if space := os.environ.get("SPACE_HOST", ""):
        return f"https://{space}"
    name, port = scope.get("server") or ("127.0.0.1", 7860)
    return f"http://{name}" + (f":{port}" if port not in (None, 80) else "")
