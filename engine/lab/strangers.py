"""Strangers: those others of `python -m engine load`, in a process of their own."""

import asyncio
import multiprocessing
from collections import Counter
from multiprocessing.connection import Connection

import psutil

from engine.lab.floods import FLOODS
from engine.lab.visitors import Page, background


class Strangers:
    """A process of its own for those others, so that what they do does not delay who is measured. Leaving the `with` ends it."""

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
