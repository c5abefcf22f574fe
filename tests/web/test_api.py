"""The API of a race, on the embedded models: what it streams, what it answers, what it refuses."""

import json
import urllib.request

import pytest

from helpers.page import PROMPT


def test_the_api_streams_the_race(client):
    strings = list(client.submit(PROMPT, "tree", 4, 4, 0.0, 24, 0, api_name="/race"))
    events = [json.loads(each) for each in strings]
    assert all(isinstance(each, str) for each in strings) and len(events) >= 2
    assert events[0]["start"] and [event["seq"] for event in events] == list(range(1, len(events) + 1))
    last = events[-1]
    assert last["end"] is True and last["identical"] is True
    assert [lane["name"] for lane in last["lanes"]] == ["vanilla", "tree"]
    assert all(lane.keys() >= {"name", "text", "tokens", "seconds", "forwards", "tau"} for lane in last["lanes"])
    written = ["", ""]
    for lane, step in (each for event in events for each in event.get("steps", [])):
        written[lane] += "".join(step["pieces"])
    assert written == [lane["text"] for lane in last["lanes"]]


def test_the_api_races_a_mix(client):
    last = json.loads(client.predict(PROMPT, "bigram/chain/token_match", 3, 2, 0.7, 12, 5, api_name="/race"))
    assert last["lanes"][1]["name"] == "bigram/chain/token_match" and last["identical"] is True


def test_the_api_answers_a_plain_call_with_the_last_string(client):
    last = json.loads(client.predict(PROMPT, "lookup", 3, 2, 0.7, 12, 5, api_name="/race"))
    assert last["end"] is True and last["lanes"][1]["name"] == "lookup" and last["lanes"][1]["tokens"] <= 12


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": None}, "prompt is empty"),
        ({"prompt": "x" * 100_000}, "100,000 characters"),
        ({"system": "warp"}, "Unknown system 'warp'"),
        ({"system": ["tree"]}, "Unknown system"),
        ({"system": "model/kary/speculative"}, "would bias the output"),
        ({"system": "model/kary/hope"}, "Unknown acceptance rule 'hope'"),
        ({"depth": 0}, "Depth must be"),
        ({"depth": 999}, "Depth must be"),
        ({"width": 2.5}, "whole number"),
        ({"temperature": -1}, "Temperature must be"),
        ({"temperature": "NaN"}, "Temperature must be"),
        ({"temperature": None}, "Temperature must be"),
        ({"max_new_tokens": 10**9}, "tokens must be"),
        ({"seed": "x"}, "Seed must be"),
    ],
)
def test_the_api_refuses_with_a_sentence(client, changes, words):
    good = {
        "prompt": PROMPT,
        "system": "tree",
        "depth": 4,
        "width": 4,
        "temperature": 0.0,
        "max_new_tokens": 24,
        "seed": 0,
    }
    with pytest.raises(Exception, match=words) as refusal:
        client.predict(**{**good, **changes}, api_name="/race")
    assert "Traceback" not in str(refusal.value)


def test_the_api_refuses_a_bare_nan(server):
    """Python's client refuses to send NaN; other clients do send it."""
    body = json.dumps({"data": [PROMPT, "tree", 4, 4, float("nan"), 24, 0]}).encode()
    call = urllib.request.Request(f"{server}gradio_api/call/race", body, {"Content-Type": "application/json"})
    event = json.load(urllib.request.urlopen(call, timeout=60))["event_id"]
    answer = urllib.request.urlopen(f"{server}gradio_api/call/race/{event}", timeout=60).read().decode()
    assert "Temperature must be a number" in answer
