"""Lending: on ZeroGPU a race runs in a process of its own, and only plain values cross. Asked for by what the race should take."""

import json
import os
import subprocess
import sys

import pytest

from engine.page.web import lending
from helpers.paths import ROOT

# The page on a stand-in for ZeroGPU, in a process of its own: the real one also begins before anything has run.
LENT = """
import asyncio, json, os, sys
os.environ["SPACES_ZERO_GPU"] = "true"
sys.path[:0] = ["tests", "tests/page/web/stand_in"]
import spaces
from helpers.decoding import hurry
from helpers.pairs import tiny_pair
from engine.page.web import lending, streams
from engine.page.web.page import build_gradio_page_and_api

hurry()
pair = tiny_pair(same=True)
served = lending.ServedPairs(pair)
page = build_gradio_page_and_api(served)

async def heard(kind, most=None, name="a-1", **values):
    events = []
    async for news in streams.stream_request_events_and_refusals(served, lambda: {"kind": kind, "run": name, **values}):
        events.append(json.loads(news))
        if len(events) == most:
            break
    return events

def refused(kind, **values):
    try:
        asyncio.run(heard(kind, **values))
    except Exception as error:
        return str(error)

settings = {"systems": ["vanilla", "tree"], "max_new_tokens": 24}
race = asyncio.run(heard("race", prompt="Once upon", **settings))
again = asyncio.run(heard("race", prompt="Once upon", **settings))
asyncio.run(heard("race", prompt="Once upon", most=1, systems=["vanilla", "tree"], max_new_tokens=100))
long = asyncio.run(heard("sweep", prompts=["Once"], depth=[1, 2], width=[1], nodes=[4], max_new_tokens=8))
sentences = refused("race", prompt="", **settings), refused("race", prompt="x" * 500, **settings)
pids = [pid for pid in spaces.PARENTS]
alive = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
print(json.dumps({"race": race[-1], "again": again[-1], "sweep": long[-1], "asked": spaces.ASKED,
                  "processes": len(set(pids)), "own": os.getpid() in pids, "alive": alive, "sentences": sentences}))
"""


@pytest.mark.slow
def test_a_race_on_zerogpu_runs_in_a_process_of_its_own():
    done = subprocess.run([sys.executable, "-c", LENT], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["race"]["end"] and told["race"]["identical"] is True
    assert [lane["text"] for lane in told["race"]["lanes"]] == [lane["text"] for lane in told["again"]["lanes"]]
    assert told["sweep"]["end"] and len(told["sweep"]["cells"]) == 2
    assert told["processes"] >= 4 and not told["own"] and told["alive"] == []
    assert all(15 <= seconds <= 120 for seconds in told["asked"])
    assert "The prompt is empty" in told["sentences"][0] and "context window" in told["sentences"][1]


def test_without_zerogpu_nothing_is_lent():
    """The package `spaces` is not there, and is not asked for."""
    assert "SPACES_ZERO_GPU" not in os.environ
    assert not lending.LENDS and "spaces" not in sys.modules
