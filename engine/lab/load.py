"""`python -m engine load`: fifty visitors at once on a server of its own, and what each of them got.

Every visitor is an open page with a prompt and a seed of his own. In each wave some leave mid-race, one floods the API with calls, one
sweeps, one sends a file of prompts and one sends rubbish. Afterwards every race is run again, alone, on the same server: the text must
be the same, and the ratio of the speeds tells what sharing the device costs. Then one visitor races beside each flood of
`engine.lab.floods` and alone, in turn.
"""

import asyncio
import random
import re
import socket
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import torch
from tqdm import tqdm

from engine.lab.floods import FLOODS, Strangers
from engine.lab.visitors import HEROES, PLACES, Page, Visitor, race
from engine.models.loading import hardware_name

LEAVERS = 0.2  # of the visitors
LOOK = 0.025  # seconds between two looks at whether somebody runs; the server answers 50 a second
LEAVINGS = 10  # times that somebody leaves
LONE_RACES, FLOODED_RACES = 10, 5  # races beside all others, and beside each flood
WARM = 2.0  # seconds that a flood goes on before a race begins beside it
NEAR = 0.1  # of a ratio from 1
LONE = {"prompt": "Story: Once upon a time, there was a little fox who", "temperature": 0.0, "tokens": 200}
REST = 3.0  # seconds after which the server has given freed memory back


async def in_turn(
    page: Page, strangers: Strangers, others: list[int | str], pause: float
) -> tuple[list[Visitor], list[Visitor], Counter[str]]:
    """One visitor's default races alone, and as many, each behind a pause, beside others. Tells how these were answered too."""
    alone, beside, counts = list[Visitor](), list[Visitor](), Counter[str]()
    for number, other in enumerate(others):
        fields = {**LONE, "seed": number}
        alone.append(Visitor(2 * number, -1, False, fields))
        await race(page, alone[-1], f"alone{other}{number}")
        strangers.begin(other)
        await asyncio.sleep(pause)
        beside.append(Visitor(2 * number + 1, -1, False, fields))
        await race(page, beside[-1], f"beside{other}{number}")
        counts += await strangers.end()
        await free(page)
    return alone, beside, counts


async def lone(page: Page, strangers: Strangers, tries: int, counts: Counter) -> dict:
    """One visitor's default races, with all the others behind them and with nobody."""
    alone, others, answers = await in_turn(page, strangers, list(range(1000, 1000 + tries)), 0.5)
    counts += answers
    waits = [visitor.waited for visitor in others if visitor.waited]
    ratios = [[visitor.end["speedup"] for visitor in each if visitor.end] for each in (others, alone)]
    return {
        "finished": len(ratios[0]),
        "wait_seconds": {"median": statistics.median(waits), "most": max(waits)},
        "wait_alone": statistics.median(visitor.waited for visitor in alone if visitor.waited),
        "ratio": {"beside": statistics.median(ratios[0]), "alone": statistics.median(ratios[1])},
    }


async def beside(page: Page, strangers: Strangers, flood: str, tries: int) -> dict:
    """One visitor's default races beside a flood and alone, in turn.

    `ratio` is plain decoding's speed beside the flood over that alone, on its own clock. `marked` counts races beside the flood that
    say that they were disturbed. `sound` says that all finished, and that the ratio is near 1 or all are marked.
    """
    *both, counts = await in_turn(page, strangers, [flood] * tries, WARM)
    ends = [[visitor.end for visitor in each if visitor.end] for each in both]
    alone, among = ([end["lanes"][0]["tokens"] / end["lanes"][0]["seconds"] for end in each] for each in ends)
    ratio = statistics.median(among) / statistics.median(alone) if alone and among else 0.0
    marked = sum(bool(end.get("disturbed")) for end in ends[1])
    sound = len(among) == tries and (abs(ratio - 1) <= NEAR or marked == tries)
    return {"ratio": round(ratio, 3), "finished": len(among), "marked": marked, "sound": sound, "answers": dict(counts)}


async def free(page: Page) -> None:
    """Waits until nobody runs."""
    while await page.runs():
        await asyncio.sleep(LOOK)


async def time_to_free(page: Page, tries: int) -> list[float]:
    """Seconds from the moment at which a visitor leaves mid-race until the device is free of his run."""
    times = []
    for number in range(tries):
        fields = {"prompt": "Story: Somebody leaves", "seed": number, "temperature": 0.8, "tokens": 900}
        await race(page, Visitor(number, -1, True, fields), f"leaver{number}")
        begun = time.monotonic()
        await free(page)
        times.append(time.monotonic() - begun)
    return times


async def measure(
    page: Page, strangers: Strangers, server: psutil.Process, count: int, waves: int, tokens: int, seed: int
) -> dict:
    choose, counts, visitors = random.Random(seed), Counter[str](), []
    await asyncio.sleep(REST)
    memory = [(server.memory_info().rss / 1e6,) * 2]
    await page.read_config()
    for number in tqdm(range(waves), desc="waves", unit="wave"):
        here = []
        for who in range(count):
            hero, place = choose.choice(HEROES), choose.choice(PLACES)
            prompt = f"Story: Visitor {who} of wave {number} met a {hero} near {place}. The"
            how = {"seed": choose.randrange(1000), "temperature": choose.choice((0.0, 0.8)), "tokens": tokens}
            here.append(Visitor(who, number, choose.random() < LEAVERS, {"prompt": prompt, **how}))
        begun = time.monotonic()
        strangers.begin(number)
        await asyncio.gather(*(race(page, visitor, f"visitor{visitor.number}wave{number}") for visitor in here))
        counts += await strangers.end()
        await free(page)
        visitors += here
        seconds, busy = time.monotonic() - begun, server.memory_info().rss
        await asyncio.sleep(REST)
        memory.append((busy / 1e6, server.memory_info().rss / 1e6))
        tqdm.write(f"wave {number + 1}: {seconds:.0f} s, {busy / 1e6:,.0f} MB, {memory[-1][1]:,.0f} MB at rest")
    ratios, equal, finished = [], 0, [visitor for visitor in visitors if visitor.outcome == "finished"]
    for visitor in tqdm(finished, desc="the same races alone", unit="race"):
        alone = Visitor(visitor.number, -1, False, visitor.fields)
        await race(page, alone, f"alone{visitor.number}wave{visitor.wave}")
        assert alone.end and visitor.end, alone.refused
        equal += [lane["text"] for lane in alone.end["lanes"]] == [lane["text"] for lane in visitor.end["lanes"]]
        ratios.append((visitor.end["speedup"], alone.end["speedup"]))
    waits = sorted(visitor.waited for visitor in visitors if visitor.waited is not None)
    freed = await time_to_free(page, LEAVINGS)
    one = await lone(page, strangers, LONE_RACES, counts)
    floods = {
        f"beside {flood}": await beside(page, strangers, flood, FLOODED_RACES)
        for flood in tqdm(FLOODS, desc="floods", unit="flood")
    }
    return {
        "outcomes": dict(Counter(visitor.outcome for visitor in visitors)),
        "refusals": dict(Counter(re.sub(r"\d+", "N", visitor.refused) for visitor in visitors if visitor.refused)),
        "equal_to_alone": equal,
        "identical": sum(visitor.end["identical"] is True for visitor in finished if visitor.end),
        "others": dict(counts),
        "wait_seconds": {"p50": statistics.median(waits), "p95": waits[int(0.95 * (len(waits) - 1))]},
        "free_seconds": {"median": statistics.median(freed), "most": max(freed)},
        "memory_mb": {"loaded": [round(busy) for busy, _ in memory], "at_rest": [round(rest) for _, rest in memory]},
        "lone": one,
        **floods,
        "ratio": {
            "loaded": statistics.median(loaded for loaded, _ in ratios),
            "alone": statistics.median(alone for _, alone in ratios),
        },
    }


def main(asked: Namespace) -> dict:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    hardware = hardware_name(torch.device("cpu"))
    print(f"{hardware}, {asked.visitors} visitors, {asked.waves} waves, {asked.tokens} tokens a race", flush=True)
    serve = [sys.executable, "app.py", "--port", str(port)]
    app = subprocess.Popen(serve, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/"
        ready = False
        while not ready:
            if app.poll() is not None:
                raise SystemExit("app.py ended before it was ready.")
            time.sleep(0.5)
            with suppress(httpx.HTTPError):
                ready = httpx.get(f"{url}readiness", timeout=5).json()["ready"]
        with Strangers(url) as strangers:
            server = psutil.Process(app.pid)
            figures = asyncio.run(
                measure(Page(url), strangers, server, asked.visitors, asked.waves, asked.tokens, asked.seed)
            )
    finally:
        app.terminate()
        app.wait(20)
    for name, value in figures.items():
        print(f"{name:<18}{value}")
    return figures
