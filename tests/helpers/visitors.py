"""Visitors of a served page: one who races as the page does, and strangers who ask for too much."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

LABELS = {"seed": "Seed", "temperature": "Temperature", "tokens": "New tokens"}  # of the page's fields
PATIENCE = 120.0  # seconds until a race counts as lost
READERS, CALLERS, SENDERS = 8, 4, 10  # at once
UNFINISHED = 999_000  # bytes of a body, of which the last one never comes
LATER = 0.05  # seconds after which somebody who was refused asks again


@dataclass
class Visitor:
    """One race of an open page. `events` are what its wire brought."""

    fields: dict[str, Any]
    leaves: bool = False
    events: list[dict] = field(default_factory=list)
    waited: float | None = None  # seconds until the race began
    refusal: str = ""

    @property
    def end(self) -> dict | None:
        return self.events[-1] if self.events and self.events[-1].get("end") else None


class Page:
    """The server as its page calls it. Fields that a caller does not set keep what the page begins with."""

    def __init__(self, url: str, address: str = "127.0.0.1"):
        """`address` is where the calls come from."""
        transport = httpx.AsyncHTTPTransport(local_address=address, limits=httpx.Limits(max_connections=None))
        self.http = httpx.AsyncClient(base_url=url, timeout=PATIENCE, transport=transport)
        self.address, self.port = address, self.http.base_url.port

    async def read_config(self) -> None:
        config = (await self.http.get("config")).json()
        parts = {each["id"]: each["props"] for each in config["components"]}
        self.calls = {
            each["api_name"]: (each["id"], [parts[at] for at in each["inputs"]])
            for each in config["dependencies"]
            if each["backend_fn"]
        }

    async def join(self, data: list, session: str) -> httpx.Response:
        """Puts a race of these values into the queue."""
        body = {"data": data, "fn_index": self.calls["race_on_page"][0], "session_hash": session}
        return await self.http.post("gradio_api/queue/join", json=body)

    async def run(self, session: str, **fields: Any) -> AsyncIterator[dict]:
        """The events of a race on the page. Raises `ValueError` with the sentence of a refusal."""
        parts = self.calls["race_on_page"][1]
        values = [fields.get(part.get("elem_id") or part.get("label"), part.get("value")) for part in parts]
        (await self.join(["" if each is None else each for each in values], session)).raise_for_status()
        async with self.http.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as stream:
            async for line in stream.aiter_lines():
                message = json.loads(line[5:]) if line.startswith("data:") else {}
                if message.get("msg") == "process_completed" and not message["success"]:
                    raise ValueError(message["output"].get("error"))
                if message.get("msg") == "process_generating":
                    [value] = message["output"]["data"]
                    if isinstance(value, list):  # what has changed since the last one
                        value = "".join(part for _, _, part in value)
                    if value.startswith("{"):
                        yield json.loads(value)
                if message.get("msg") in ("process_completed", "close_stream"):
                    return

    async def await_nobody(self) -> None:
        """Waits until nobody runs."""
        while (await self.http.get("readiness")).json()["runs"]:
            await asyncio.sleep(0.025)


async def open_page(url: str, address: str = "127.0.0.1") -> Page:
    page = Page(url, address)
    await page.read_config()
    return page


async def race(page: Page, visitor: Visitor, session: str) -> None:
    """One race of the visitor, who leaves early or where it runs again."""
    begun = time.monotonic()
    fields = {LABELS.get(name, name): value for name, value in visitor.fields.items()}
    try:
        async for event in page.run(session, **fields):
            if "place" in event:
                continue
            visitor.waited = visitor.waited or time.monotonic() - begun
            visitor.events.append(event)
            if event.get("again") or (visitor.leaves and len(visitor.events) > 1):
                return
    except ValueError as error:
        visitor.refusal = str(error)


async def fetch_often(page: Page, counts: Counter) -> None:
    """Connections that fetch the page as fast as they are answered."""

    async def fetch() -> None:
        while True:
            counts[f"GET: {(await page.http.get('')).status_code}"] += 1

    await asyncio.gather(*(fetch() for _ in range(READERS)))


async def change_names(page: Page, counts: Counter) -> None:
    """Calls that cost their sender nothing, each under a new name."""
    numbers, parts = count(), page.calls["race_on_page"][1]

    async def call() -> None:
        while True:
            answer = await page.join([None] * len(parts), f"name{next(numbers)}")
            counts[f"names: {answer.status_code}"] += 1
            await asyncio.sleep(LATER * (answer.status_code != 200))

    await asyncio.gather(*(call() for _ in range(CALLERS)))


async def leave_bodies_unfinished(page: Page, counts: Counter) -> None:
    """Bodies just under one megabyte of which the end never comes, on plain connections."""
    head = f"POST /gradio_api/queue/join HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {UNFINISHED}\r\n\r\n"

    async def send() -> None:
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", page.port, local_addr=(page.address, 0))
            try:
                writer.write(head.encode() + b"x" * (UNFINISHED - 1))
                answer = await reader.readline()
                counts[f"bodies: {answer.split()[1].decode() if answer else 'closed'}"] += 1
            except OSError:  # it was refused while it was sent
                counts["bodies: broken off"] += 1
            finally:
                writer.close()
            await asyncio.sleep(LATER)

    await asyncio.gather(*(send() for _ in range(SENDERS)))


async def ask_without_listening(page: Page, counts: Counter) -> None:
    """Long races of the API whose news nobody fetches."""
    while True:
        answer = await page.http.post("gradio_api/call/race", json={"data": race_values("Story: Nobody listens")})
        counts[f"unheard: {answer.status_code}"] += 1
        await asyncio.sleep(LATER)


def race_values(prompt: str) -> list:
    """What the API's race takes."""
    return [prompt, "tree", 4, 4, 0.0, 200, 0, "", ""]
