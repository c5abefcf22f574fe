"""Floods: four ways in which one address asks a server of ours for too much, and the process of all who disturb the measured ones.

Only `127.0.0.1` is ever asked. Each flood goes on until it is cancelled, over few connections, and counts what it was answered with.
"""

import asyncio
import json
import multiprocessing
from collections import Counter
from itertools import count
from multiprocessing.connection import Connection

import psutil

from engine.lab.visitors import Page, background, posted

READERS, CALLERS, SENDERS, MOST_UNHEARD = 8, 4, 300, 100
UNFINISHED = 999_000  # bytes of a body, of which the last one never comes
LATER = 0.5  # seconds after which somebody who was refused asks again


async def gets(page: Page, counts: Counter) -> None:
    """Eight connections that fetch the page as fast as they are answered."""

    async def read() -> None:
        reader, writer = await page.connection()
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
            reader, writer = await page.connection()
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


FLOODS = {each.__name__: each for each in (gets, names, bodies, unheard)}


class Strangers:
    """A process for all others, so that what they do does not delay who is measured. Leaving the `with` ends it."""

    def __init__(self, url: str):
        spawned = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawned.Pipe()
        self.process = spawned.Process(target=attend, args=(url, theirs), daemon=True)

    def __enter__(self) -> "Strangers":
        self.process.start()
        self.pipe.recv()
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()

    def begin(self, what: int | str) -> None:
        """Begins everybody in `background` under this number, or the flood of this name."""
        self.pipe.send(what)

    async def end(self) -> Counter[str]:
        """They break off. Returns how often each of them was answered with what."""
        self.pipe.send(None)
        return await asyncio.to_thread(self.pipe.recv)


def attend(url: str, pipe: Connection) -> None:
    """The process of `Strangers`: a number or a name begins them, the next message ends them and is answered with counts."""

    async def attending() -> None:
        psutil.Process().nice(19)  # their machines are not the server's
        page, stranger = Page(url), Page(url, "127.0.0.2")  # who floods and who sends rubbish come from elsewhere
        for each in (page, stranger):
            await each.read_config()
        pipe.send("ready")
        while True:
            counts = Counter[str]()
            what = await asyncio.to_thread(pipe.recv)
            if isinstance(what, str):
                tasks = [asyncio.create_task(FLOODS[what](stranger, counts))]
            else:
                tasks = background(page, stranger, what, counts)
            await asyncio.to_thread(pipe.recv)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            pipe.send(counts)

    asyncio.run(attending())
