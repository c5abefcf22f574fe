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

from starlette.responses import Response

YEAR, DAY, NONE = "public, max-age=31536000, immutable", "public, max-age=86400", "no-cache"
KEPT = re.compile(
    r"/|/config/?|/(assets|static)/.*|/(gradio_api/)?theme\.css|/(favicon\.ico|manifest\.json|robots\.txt)|/gradio_api/info/?"
)
PAGE = ("/", "/config", "/config/")
NAMED = re.compile(rb'"(?:\./|/)?((?:assets|static)/[\w./-]+|[\w.-]+\.min\.js)\\*"')  # a file of ours, in a page


@dataclass(frozen=True)
class CachedAnswer:
    """An answer as it is, by gzip where that is shorter, and for a browser that has it, which names its `tag`."""

    whole: Response
    packed: Response
    unchanged: Response
    tag: str


class AnswerCache:
    def __init__(self, app: Callable, files: Mapping[str, Path], document: Callable, headers: Mapping[str, str]):
        """`files` are the page's own, by address. Their addresses change when they do. All others are the application's.

        `document` makes what browsers get of the application's page, as bytes of bytes. Every answer has the `headers`.
        """
        self.app, self.files, self.document, self.headers = app, files, document, headers
        self.kept: dict[str, CachedAnswer] = {}
        self.one = asyncio.Lock()  # what two ask for at once is made once

    async def answer_from_cache(self, scope: dict) -> Response | None:
        """The answer to a GET or a HEAD of what can be kept; None when there is no such thing."""
        path = scope["path"]
        if not (path in self.files or KEPT.fullmatch(path)):
            return None
        if path not in self.kept:
            async with self.one:
                if path not in self.kept and not await self.store_answer(scope):
                    return None
        kept, asked = self.kept[path], dict(scope["headers"])
        if kept.tag.encode() in asked.get(b"if-none-match", b""):
            return kept.unchanged
        return kept.packed if b"gzip" in asked.get(b"accept-encoding", b"") else kept.whole

    async def store_answer(self, scope: dict) -> bool:
        """Fetches the answer for this path and caches it. False when there is none."""
        path = scope["path"]
        if path in self.files:
            body = await asyncio.to_thread(self.files[path].read_bytes)
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
        elif found := await fetch_from_app(self.app, path, scope):
            kind, body = found
        else:
            return False
        if path == "/":
            body = self.document(body)
        if path in PAGE:
            body = remove_server_address(
                body, server_address(scope).encode(), root_path="" if "config" in path else "/"
            )
        short = await asyncio.to_thread(gzip.compress, body, 6, mtime=0)
        tag = f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"'
        lasting = path in self.files or path.startswith("/assets/")
        age = YEAR if lasting else DAY if path.startswith("/static/") else NONE
        about = {"etag": tag, "cache-control": age, "vary": "accept-encoding", **self.headers}
        typed = about | {"content-type": kind}
        whole = Response(body, headers=typed)
        packed = Response(short, headers=typed | {"content-encoding": "gzip"}) if len(short) < len(body) else whole
        self.kept[path] = CachedAnswer(whole, packed, Response(status_code=304, headers=about), tag)
        return True


def server_address(scope: dict) -> str:
    """The server's own address as Gradio makes it, not what a visitor calls it."""
    if space := os.environ.get("SPACE_HOST", ""):
        return f"https://{space}"
    name, port = scope.get("server") or ("127.0.0.1", 7860)
    return f"http://{name}" + (f":{port}" if port not in (None, 80) else "")


async def warm_up_answers(app: Callable) -> None:
    """Asks for the page and all files that it names, as the first browser will: whatever is made once is there when that comes."""
    _, page = await fetch_from_app(app, "/", {}) or ("", b"")
    for path in {"/theme.css", *(f"/{named.decode()}" for named in NAMED.findall(page))}:
        await fetch_from_app(app, path, {})


async def fetch_from_app(app: Callable, path: str, scope: dict) -> tuple[str, bytes] | None:
    """The type and the body of the application's answer to the server itself; None when that is an error.

    Nothing in it depends on who asks: of the request `scope` it has what the application keeps there.
    """
    import httpx  # the opening page waits for no client

    asking = httpx.ASGITransport(lambda asked, *way: app({**scope, **asked}, *way))
    identity = {"accept-encoding": "identity"}
    async with httpx.AsyncClient(transport=asking, base_url=server_address(scope), headers=identity) as own:
        with suppress(Exception):  # whoever asks the application next meets the same
            found = await own.get(path)
            return (found.headers.get("content-type", ""), found.content) if found.status_code == 200 else None
    return None


def remove_server_address(page: bytes, address: bytes, root_path: str) -> bytes:
    """The page with a path where it names the server's address: browsers then ask the server that they got it from.

    `root_path` stands where there is no path.
    """
    named = re.compile(rb'(?<=")%s(/[^"?]*)?(?=")' % re.escape(address))
    return named.sub(lambda found: (found[1] or b"").rstrip(b"/") or root_path.encode(), page)
