"""Floods: four ways in which one address asks a server of ours for too much. Each goes on until it is cancelled, over few connections.

Only `127.0.0.1` is ever asked. Every flood counts what it was answered with.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from engine.lab.visitors import Page, posted

READERS, CALLERS, SENDERS, MOST_UNHEARD = 8, 4, 300, 100
UNFINISHED = 999_000  # bytes of a body, of which the last one never comes
LATER = 0.5  # seconds after which somebody who was refused asks again


async def gets(page: Page, counts: Counter) -> None:
    """Eight connections that fetch the page as fast as they are answered."""

    async def read() -> None:
        reader, writer = await connection(page)
        try:
            while True:
                writer.write(f"GET / HTTP/1.1\r\nHost: {page.host}\r\nAccept-Encoding: gzip\r\n\r\n".encode())
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
                counts[f"GET: {head.split()[1].decode()}"] += 1
        finally:
            writer.close()

    await asyncio.gather(*(read() for _ in range(READERS)))


async def names(page: Page, counts: Counter) -> None:
    """Calls that cost their sender nothing, each under a new name."""
    function, parts = page.calls["race_on_page"]
    numbers = count()

    async def call() -> None:
        while True:
            session = f"name{next(numbers)}"
            body = json.dumps({"data": [None] * len(parts), "fn_index": function, "session_hash": session})
            status, _ = await posted(page, "gradio_api/queue/join", body.encode())
            counts[f"names: {status}"] += 1
            await asyncio.sleep(LATER * (status != 200))

    await asyncio.gather(*(call() for _ in range(CALLERS)))


async def bodies(page: Page, counts: Counter) -> None:
    """Bodies just under one megabyte of which the end never comes."""
    head = f"POST /gradio_api/queue/join HTTP/1.1\r\nHost: {page.host}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {UNFINISHED}\r\n\r\n"

    async def send() -> None:
        while True:
            reader, writer = await connection(page)
            try:
                writer.write(head.encode() + b"x" * (UNFINISHED - 1))
                # The server answers in time. A limit of ours could swallow the cancellation that ends this
                answer = await reader.readline()
                counts[f"bodies: {answer.split()[1].decode() if answer else 'closed'}"] += 1
            except OSError:  # it was refused while it was sent
                counts["bodies: broken off"] += 1
            finally:
                writer.close()
            await asyncio.sleep(LATER)

    await asyncio.gather(*(send() for _ in range(SENDERS)))


async def unheard(page: Page, counts: Counter) -> None:
    """Long races of the API whose news nobody fetches."""
    body = json.dumps({"data": ["Story: Nobody listens", "tree", 4, 4, 0.8, 900, 0, "", ""]}).encode()
    for _ in range(MOST_UNHEARD):
        status, _ = await posted(page, "gradio_api/call/race", body)
        counts[f"unheard: {status}"] += 1
        await asyncio.sleep(LATER)


async def connection(page: Page) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", page.port, local_addr=(page.address, 0))


FLOODS: dict[str, Callable[[Page, Counter], Coroutine[Any, Any, None]]] = {
    each.__name__: each for each in (gets, names, bodies, unheard)
}
