"""Visitors of a server of ours: open pages that race, and others who ask for much, sweep and send rubbish."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

PLACES = (
    "the forest",
    "an old town",
    "the sea",
    "a small farm",
    "the snow",
    "a tall tower",
    "the river",
    "a quiet hill",
)
HEROES = ("fox", "bear", "girl", "boy", "robot", "cat", "dragon", "mouse", "king", "owl")
FLOOD = 200  # calls
FLOODED = json.dumps({"data": ["Flood", "tree", 4, 4, 0.0, 200, 0, "", ""]}).encode()
RUBBISH = (None, [], {}, "x" * 100_000, "\ud800", float("inf"), 10**400, [[[]]], True, "tree:999x999x999")
LABELS = {"seed": "Seed", "temperature": "Temperature", "tokens": "New tokens"}  # of the page's fields
PATIENCE = 600.0  # seconds until a race counts as lost


@dataclass
class Visitor:
    """One race of an open page. `events` are what its wire brought."""

    number: int
    wave: int
    leaves: bool
    fields: dict[str, Any]
    events: list[dict] = field(default_factory=list)
    waited: float | None = None  # seconds until the race began
    refused: str = ""

    @property
    def end(self) -> dict | None:
        return self.events[-1] if self.events and self.events[-1].get("end") else None

    @property
    def outcome(self) -> str:
        """finished, left, refused, mixed (another visitor's race) or lost."""
        started = [event for event in self.events if event.get("start")]
        prompts = {system["trace"]["prompt"] for event in started for system in event["systems"]}
        if len({event["run"] for event in self.events}) > 1 or prompts - {self.fields["prompt"]}:
            return "mixed"
        if [event["seq"] for event in self.events] != list(range(1, len(self.events) + 1)):
            return "lost"
        return "finished" if self.end else "refused" if self.refused else "left" if self.leaves else "lost"


class Page:
    """The server as its page calls it. Fields that a caller does not set keep what the page begins with."""

    def __init__(self, url: str, address: str = "127.0.0.1"):
        """`address` is where the calls come from."""
        ways = httpx.AsyncHTTPTransport(local_address=address, limits=httpx.Limits(max_connections=None))
        self.http = httpx.AsyncClient(base_url=url, timeout=httpx.Timeout(PATIENCE), transport=ways)
        self.address, self.port = address, self.http.base_url.port
        self.host = f"127.0.0.1:{self.port}"

    async def read_config(self) -> None:
        config = (await self.http.get("config")).json()
        parts = {each["id"]: each["props"] for each in config["components"]}
        self.calls = {
            each["api_name"]: (each["id"], [parts[at] for at in each["inputs"]])
            for each in config["dependencies"]
            if each["backend_fn"]
        }

    async def run(self, name: str, session: str, **fields: Any) -> AsyncIterator[dict]:
        """The events of a page's function. Raises `ValueError` with the sentence of a refusal."""
        number, parts = self.calls[name]
        keys = [part.get("elem_id") or part.get("label") for part in parts]
        # Several places share the hidden field `carried`; what is given for it is the first one's
        data = [fields.pop(key, part.get("value")) for key, part in zip(keys, parts, strict=True)]
        data = ["" if each is None else each for each in data]
        body = {"data": data, "fn_index": number, "session_hash": session}
        (await self.http.post("gradio_api/queue/join", json=body)).raise_for_status()
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

    async def runs(self) -> int:
        return (await self.http.get("readiness")).json()["runs"]

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A plain one: a client library would take half a core from the server."""
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.address, 0))


async def race(page: Page, visitor: Visitor, session: str) -> None:
    """One race of the visitor, who leaves where it runs again: a race beside others runs once, so the first run is what compares."""
    begun = time.monotonic()
    fields = {LABELS.get(name, name): value for name, value in visitor.fields.items()}
    try:
        async for event in page.run("race_on_page", session, **fields):
            if "place" in event:
                continue
            visitor.waited = visitor.waited or time.monotonic() - begun
            visitor.events.append(event)
            if event.get("again"):
                visitor.events[-1] = event | {"end": True}
                return
            if visitor.leaves and len(visitor.events) > 1:
                return
    except ValueError as error:
        visitor.refused = str(error)


async def posted(page: Page, path: str, body: bytes) -> tuple[int, bytes]:
    """Status and body of an answer."""
    reader, writer = await page.connection()
    head = f"POST /{path} HTTP/1.1\r\nHost: {page.host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    try:
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        top, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        return int(top.split()[1]), answer
    finally:
        writer.close()


async def flood(page: Page, counts: Counter) -> None:
    """One client that asks for many races at once."""

    async def call() -> None:
        status, answer = await posted(page, "gradio_api/call/race", FLOODED)
        if status != 200:
            counts[f"flood: {json.loads(answer)['detail']}"] += 1
            return
        async with page.http.stream("GET", f"gradio_api/call/race/{json.loads(answer)['event_id']}") as stream:
            text = "".join([line async for line in stream.aiter_lines()])
        counts["flood: refused with a sentence" if "You have" in text or "full" in text else "flood: raced"] += 1

    await asyncio.gather(*(call() for _ in range(FLOOD)))


async def long_work(page: Page, name: str, session: str, counts: Counter, **fields: Any) -> None:
    """A sweep or a file of prompts. It goes on until the wave is over."""
    try:
        async for event in page.run(name, session, **fields):
            counts[f"{name}: messages"] += 1
            if event.get("end"):
                counts[f"{name}: finished"] += 1
    except ValueError as error:
        counts[f"{name}: {error}"] += 1


async def rubbish(page: Page, counts: Counter) -> None:
    """Hand-made calls that no page sends."""
    for value in RUBBISH:
        for name in page.calls:
            body = json.dumps({"data": [value] * 8, "fn_index": page.calls[name][0], "session_hash": "rubbish"})
            status, _ = await posted(page, "gradio_api/queue/join", body.encode())
            counts[f"rubbish: {status // 100}xx"] += 1


def background(page: Page, stranger: Page, number: int, counts: Counter) -> list[asyncio.Task]:
    """The others: one floods, one sweeps, one sends a file of prompts, one sends rubbish."""
    fields = {"grid": "shape", "max_new_tokens": 48, "seed": number}
    order = {"prompts": ["Story: A long day"] * 3, "system": "tree", **fields}
    texts = {"prompts": [f"Story: {text}" for text in (*HEROES, *PLACES)], "system": "tree"}
    works = (
        flood(stranger, counts),
        rubbish(stranger, counts),
        long_work(page, "sweep_on_page", f"sweeps{number}", counts, carried=json.dumps(order)),
        long_work(page, "prompts_on_page", f"file{number}", counts, carried=json.dumps(texts)),
    )
    return [asyncio.create_task(work) for work in works]
