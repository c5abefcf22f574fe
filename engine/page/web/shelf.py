"""The shelf: the page and its files, made once by the application, compressed once and kept as they are sent.

Serving one again costs the engine's process next to nothing. Its tag is its content's, so a browser that has it gets a short answer.
Knows HTTP as ASGI has it, and where Gradio writes the page's own address; knows no component.
"""

import asyncio
import gzip
import hashlib
import mimetypes
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

YEAR, DAY, NONE = b"public, max-age=31536000, immutable", b"public, max-age=86400", b"no-cache"
KEPT = re.compile(
    r"/|/config/?|/(assets|static)/.*|/(gradio_api/)?theme\.css|/(favicon\.ico|manifest\.json|robots\.txt)|/gradio_api/info/?"
)
PAGE = ("/", "/config", "/config/")
NAMED = re.compile(rb'"(?:\./|/)?((?:assets|static)/[\w./-]+|[\w.-]+\.min\.js)\\*"')  # a file of ours, in a page


@dataclass(frozen=True)
class KeptAnswer:
    """An answer. `packed` is the body by gzip, or the body itself where that is no shorter."""

    kind: bytes
    body: bytes
    packed: bytes
    tag: bytes
    age: bytes


class Shelf:
    def __init__(self, app: Callable, files: Mapping[str, Path], document: Callable[[bytes], bytes] = bytes):
        """`files` are the page's own, by address. Their addresses change when they do. All others are the application's.

        `document` makes what browsers get of the application's page.
        """
        self.app, self.files, self.document = app, files, document
        self.kept: dict[str, KeptAnswer] = {}
        self.one = asyncio.Lock()  # what two ask for at once is made once

    async def answers(self, scope: dict, send: Callable, headers: tuple) -> bool:
        """Answers a GET or a HEAD of what can be kept, with `headers` besides. False when there is no such thing."""
        path = scope["path"]
        if not (path in self.files or KEPT.fullmatch(path)):
            return False
        if path not in self.kept:
            async with self.one:
                if path not in self.kept and not await self.make(scope):
                    return False
        kept, asked = self.kept[path], dict(scope["headers"])
        here = kept.tag in asked.get(b"if-none-match", b"")
        short = b"gzip" in asked.get(b"accept-encoding", b"") and kept.packed is not kept.body
        body = b"" if here else kept.packed if short else kept.body
        about = [(b"etag", kept.tag), (b"cache-control", kept.age), (b"vary", b"accept-encoding"), *headers]
        if not here:
            about += [(b"content-type", kept.kind), (b"content-length", b"%d" % len(body))]
            about += [(b"content-encoding", b"gzip")] * short
        await send({"type": "http.response.start", "status": 304 if here else 200, "headers": about})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
        return True

    async def make(self, scope: dict) -> bool:
        """Puts what is at the address on the shelf. False when there is nothing."""
        path = scope["path"]
        if path in self.files:
            body = await asyncio.to_thread(self.files[path].read_bytes)
            kind = (mimetypes.guess_type(path)[0] or "application/octet-stream").encode()
        else:
            found = await asked_of(self.app, scope)
            if found is None:
                return False
            kind, body = found
        if path == "/":
            body = self.document(body)
        if path in PAGE:
            body = without_address(body, own(scope)[1], at="" if "config" in path else "/")
        packed = await asyncio.to_thread(gzip.compress, body, 6, mtime=0)
        tag = b'"%s"' % hashlib.blake2b(body, digest_size=8).hexdigest().encode()
        age = (
            YEAR if path in self.files or path.startswith("/assets/") else DAY if path.startswith("/static/") else NONE
        )
        self.kept[path] = KeptAnswer(kind, body, min(body, packed, key=len), tag, age)
        return True


def own(scope: dict) -> tuple[bytes, bytes]:
    """The server's own host, and its own address as Gradio makes it of that. Neither is what a visitor calls it."""
    if space := os.environ.get("SPACE_HOST", "").encode():
        return space, b"https://" + space
    name, port = scope.get("server") or ("127.0.0.1", 7860)
    host = name.encode() + (b":%d" % port if port not in (None, 80) else b"")
    return host, b"http://" + host


def as_own(scope: dict) -> dict:
    """The request as if the server itself had made it: nothing in the answer depends on who asks."""
    host, address = own(scope)
    headers = [(b"host", host), *[(b"x-forwarded-proto", b"https")] * address.startswith(b"https")]
    return {**scope, "method": "GET", "query_string": b"", "headers": headers}


async def rehearse(app: Callable) -> None:
    """Asks for the page and all files that it names, as the first browser will: whatever is made once is there when that comes."""
    _, page = await asked_of(app, asking_for("/")) or (b"", b"")
    for path in {"/theme.css", *(f"/{named.decode()}" for named in NAMED.findall(page))}:
        await asked_of(app, asking_for(path))


def asking_for(path: str) -> dict:
    """A request for what is at the address, with what the application reads of one."""
    about = {"asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": ""}
    return {"type": "http", "path": path, "raw_path": path.encode(), "headers": [], "server": None, **about}


async def asked_of(app: Callable, scope: dict) -> tuple[bytes, bytes] | None:
    """The type and the body of the application's answer; None when that is an error."""
    status, kind, body = 0, b"", bytearray()

    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict:
        if not messages:
            await asyncio.Event().wait()  # nobody leaves before the answer is whole
        return messages.pop()

    async def send(message: dict) -> None:
        nonlocal status, kind
        if message["type"] == "http.response.start":
            status, kind = message["status"], dict(message["headers"]).get(b"content-type", b"")
        body.extend(message.get("body", b""))

    with suppress(Exception):  # whoever asks the application next meets the same
        await app(as_own(scope), receive, send)
    return (kind, bytes(body)) if status == 200 else None


def without_address(page: bytes, address: bytes, at: str) -> bytes:
    """The page with a path where it names the server's address: browsers then ask the server that they got it from.

    `at` stands where there is no path.
    """
    named = re.compile(rb'(?<=")%s(/[^"?]*)?(?=")' % re.escape(address))
    return named.sub(lambda found: (found[1] or b"").rstrip(b"/") or at.encode(), page)
