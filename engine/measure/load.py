"""`python -m engine load`: fifty visitors at once on a server of its own, and what each of them got.

Every visitor is an open page with a prompt and a seed of his own. In each wave some leave mid-race, one floods the API with calls, one
sweeps, one sends a file of prompts and one sends rubbish. Afterwards every race is run again, alone, on the same server: the text must
be the same, and the ratio of the speeds tells what sharing the device costs. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import random
import re
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import torch

from engine.models.loading import hardware_name
from engine.screens.device import REST

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
LEAVERS = 0.2  # of the visitors
FLOOD = 200  # calls
RUBBISH: tuple[Any, ...] = (
    None,
    [],
    {},
    "x" * 100_000,
    "\ud800",
    float("inf"),
    10**400,
    [[[]]],
    True,
    "tree:999x999x999",
)
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
        self.url = url

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
        keys = [part.get("elem_id") or part.get("label") or "hidden" for part in parts]
        data = [fields.get(key, part.get("value")) for key, part in zip(keys, parts, strict=True)]
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


async def race(page: Page, visitor: Visitor, session: str) -> None:
    begun = time.monotonic()
    fields = {
        "prompt": visitor.fields["prompt"],
        "Seed": visitor.fields["seed"],
        "Temperature": visitor.fields["temperature"],
    }
    try:
        async for event in page.run("race_on_page", session, **fields, **{"New tokens": visitor.fields["tokens"]}):
            if "job" in event:
                continue
            visitor.waited = visitor.waited or time.monotonic() - begun
            visitor.events.append(event)
            if visitor.leaves and len(visitor.events) > 1:
                return
    except ValueError as error:
        visitor.refused = str(error)


async def flood(page: Page, counts: Counter) -> None:
    """One client that asks for many races at once."""

    async def call() -> None:
        answer = await page.http.post("gradio_api/call/race", json={"data": ["Flood", "tree", 4, 4, 0.0, 200, 0]})
        if answer.status_code != 200:
            counts[f"flood: {answer.json()['detail']}"] += 1
            return
        async with page.http.stream("GET", f"gradio_api/call/race/{answer.json()['event_id']}") as stream:
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
            body = json.dumps({"data": [value] * 7, "fn_index": page.calls[name][0], "session_hash": "rubbish"})
            answer = await page.http.post(
                "gradio_api/queue/join", content=body, headers={"content-type": "application/json"}
            )
            counts[f"rubbish: {answer.status_code // 100}xx"] += 1


def background(page: Page, stranger: Page, number: int, counts: Counter) -> list[asyncio.Task]:
    """The others: one floods, one sweeps, one sends a file of prompts, one sends rubbish."""
    order = {
        "prompts": ["Story: A long day"] * 3,
        "system": "tree",
        "grid": "shape",
        "max_new_tokens": 48,
        "seed": number,
    }
    texts = {"prompts": [f"Story: {text}" for text in (*HEROES, *PLACES)], "system": "tree"}
    return [
        asyncio.create_task(flood(stranger, counts)),
        asyncio.create_task(rubbish(stranger, counts)),
        asyncio.create_task(long_work(page, "sweep_on_page", f"sweeps{number}", counts, hidden=json.dumps(order))),
        asyncio.create_task(long_work(page, "prompts_on_page", f"file{number}", counts, hidden=json.dumps(texts))),
    ]


async def end(page: Page, tasks: list[asyncio.Task]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    while await page.runs():
        await asyncio.sleep(0.05)


async def lone(page: Page, stranger: Page, tries: int, counts: Counter) -> dict:
    """One visitor's default races, with all the others behind them and with nobody."""
    fields = {"prompt": "Story: Once upon a time, there was a little fox who", "temperature": 0.0, "tokens": 200}
    beside, alone = (
        [Visitor(number, -1, False, {**fields, "seed": number}) for number in range(tries)] for _ in range(2)
    )
    for number, visitor in enumerate(beside):
        others = background(page, stranger, 1000 + number, counts)
        await asyncio.sleep(0.5)
        await race(page, visitor, f"lone{number}")
        await end(page, others)
        await race(page, alone[number], f"nobody{number}")
    waits = [visitor.waited for visitor in beside if visitor.waited]
    ratios = [[visitor.end["speedup"] for visitor in each if visitor.end] for each in (beside, alone)]
    return {
        "finished": len(ratios[0]),
        "wait_seconds": {"median": statistics.median(waits), "most": max(waits)},
        "wait_alone": statistics.median(visitor.waited for visitor in alone if visitor.waited),
        "ratio": {"beside": statistics.median(ratios[0]), "alone": statistics.median(ratios[1])},
    }


async def time_to_free(page: Page, tries: int) -> list[float]:
    """Seconds from the moment at which a visitor leaves mid-race until the device is free of his run."""
    times = []
    for number in range(tries):
        fields = {"prompt": "Story: Somebody leaves", "seed": number, "temperature": 0.8, "tokens": 900}
        await race(page, Visitor(number, -1, True, fields), f"leaver{number}")
        begun = time.monotonic()
        while await page.runs():
            await asyncio.sleep(0.005)
        times.append(time.monotonic() - begun)
    return times


async def measure(page: Page, server: psutil.Process, count: int, waves: int, tokens: int, seed: int) -> dict:
    choose, counts, visitors = random.Random(seed), Counter[str](), []
    memory = [(server.memory_info().rss / 1e6,) * 2]
    stranger = Page(page.url, "127.0.0.2")  # who floods and who sends rubbish come from elsewhere
    for each in (page, stranger):
        await each.read_config()
    for number in range(waves):
        here = []
        for who in range(count):
            prompt = (
                f"Story: Visitor {who} of wave {number} met a {choose.choice(HEROES)} near {choose.choice(PLACES)}. The"
            )
            fields = {
                "prompt": prompt,
                "seed": choose.randrange(1000),
                "temperature": choose.choice((0.0, 0.8)),
                "tokens": tokens,
            }
            here.append(Visitor(who, number, choose.random() < LEAVERS, fields))
        begun = time.monotonic()
        others = background(page, stranger, number, counts)
        await asyncio.gather(*(race(page, visitor, f"visitor{visitor.number}wave{number}") for visitor in here))
        await end(page, others)
        visitors += here
        seconds, busy = time.monotonic() - begun, server.memory_info().rss
        await asyncio.sleep(REST + 1)  # until freed memory is given back
        memory.append((busy / 1e6, server.memory_info().rss / 1e6))
        print(f"wave {number + 1}: {seconds:.0f} s, {busy / 1e6:,.0f} MB, {memory[-1][1]:,.0f} MB at rest", flush=True)
    ratios, equal, finished = [], 0, [visitor for visitor in visitors if visitor.outcome == "finished"]
    for visitor in finished:
        alone = Visitor(visitor.number, -1, False, visitor.fields)
        await race(page, alone, f"alone{visitor.number}wave{visitor.wave}")
        assert alone.end and visitor.end, alone.refused
        equal += [lane["text"] for lane in alone.end["lanes"]] == [lane["text"] for lane in visitor.end["lanes"]]
        ratios.append((visitor.end["speedup"], alone.end["speedup"]))
    waits = sorted(visitor.waited for visitor in visitors if visitor.waited is not None)
    free = await time_to_free(page, 20)
    one = await lone(page, stranger, 20, counts)
    return {
        "outcomes": dict(Counter(visitor.outcome for visitor in visitors)),
        "refusals": dict(Counter(re.sub(r"\d+", "N", visitor.refused) for visitor in visitors if visitor.refused)),
        "equal_to_alone": equal,
        "identical": sum(visitor.end["identical"] is True for visitor in finished if visitor.end),
        "others": dict(counts),
        "wait_seconds": {"p50": statistics.median(waits), "p95": waits[int(0.95 * (len(waits) - 1))]},
        "free_seconds": {"median": statistics.median(free), "most": max(free)},
        "memory_mb": {"loaded": [round(busy) for busy, _ in memory], "at_rest": [round(rest) for _, rest in memory]},
        "lone": one,
        "ratio": {
            "loaded": statistics.median(loaded for loaded, _ in ratios),
            "alone": statistics.median(alone for _, alone in ratios),
        },
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m engine load", description="Let many visitors race at once.")
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--waves", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    hardware = hardware_name(torch.device("cpu"))
    print(f"{hardware}, {asked.visitors} visitors, {asked.waves} waves, {asked.tokens} tokens a race", flush=True)
    app = subprocess.Popen([sys.executable, "app.py", "--port", str(port)], cwd=Path(__file__).parents[2])
    try:
        url = f"http://127.0.0.1:{port}/"
        while not ready(url):
            if app.poll() is not None:
                raise SystemExit("app.py ended before it was ready.")
            time.sleep(0.5)
        figures = asyncio.run(
            measure(Page(url), psutil.Process(app.pid), asked.visitors, asked.waves, asked.tokens, asked.seed)
        )
    finally:
        app.terminate()
        app.wait(20)
    for name, value in figures.items():
        print(f"{name:<16}{value}")
    print(json.dumps(figures))


def ready(url: str) -> bool:
    try:
        return bool(httpx.get(f"{url}readiness", timeout=5).json()["ready"])
    except httpx.HTTPError:
        return False
