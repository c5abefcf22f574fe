"""The API on the embedded models: what races, grands prix, sweeps, prompts and verdicts stream, answer and refuse."""

import json
import urllib.request

import pytest

from engine.systems import SYSTEMS
from helpers.page import PROMPT


def told(strings) -> list[dict]:
    """The messages of a run, without its place in line, which is told every second."""
    return [message for message in map(json.loads, strings) if "seq" in message]


def test_the_api_streams_the_race(client):
    strings = list(client.submit(PROMPT, "tree", 4, 4, 0.0, 24, 0, api_name="/race"))
    events = told(strings)
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
        ({"constraint": 7}, "must be a text such as"),
        ({"constraint": "xml:<a>"}, "begins with json:"),
        ({"constraint": "regex:("}, "The regular expression cannot be compiled"),
        ({"constraint": "regex:" + "a" * 8_000}, "at most 8,000"),
        ({"turns": "Hi"}, "turns must be a list such as"),
        ({"turns": [["Hi", "Hello!"], [" ", "Bye."]]}, "The request of turn 2 is empty"),
        ({"turns": [["Hi", "Hello!"]]}, "does not chat, so it takes no earlier turns"),
    ],
)
def test_the_api_of_a_race_refuses_with_a_sentence(client, changes, words):
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
    body = json.dumps({"data": [PROMPT, "tree", 4, 4, float("nan"), 24, 0, "", "", []]}).encode()
    call = urllib.request.Request(f"{server}gradio_api/call/race", body, {"Content-Type": "application/json"})
    event = json.load(urllib.request.urlopen(call, timeout=60))["event_id"]
    answer = urllib.request.urlopen(f"{server}gradio_api/call/race/{event}", timeout=60).read().decode()
    assert "Temperature must be a number" in answer


STEPS = 4


def test_the_api_streams_a_grand_prix(client):
    events = told(client.submit(PROMPT, ["tree", "lookup"], 0.0, 16, 0, api_name="/prix"))
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [system["name"] for system in events[0]["systems"]] == ["vanilla", "tree", "lookup"]
    lanes = events[-1]["lanes"]
    assert events[-1]["end"] and [lane["identical"] for lane in lanes] == [True] * 3 and lanes[0]["speedup"] == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"systems": []}, "2 to 8 systems"),
        ({"systems": ["tree", "tree"]}, "twice"),
        ({"systems": list(SYSTEMS)[:9]}, "got 9. Choose fewer"),
        ({"systems": ["warp"]}, "Unknown system 'warp'"),
        ({"systems": "tree"}, "must be a list"),
        ({"systems": ["model/kary/speculative"]}, "would bias the output"),
        ({"temperature": -1}, "Temperature must be"),
        ({"max_new_tokens": 10**9}, "tokens must be"),
    ],
)
def test_the_api_of_a_grand_prix_refuses_with_a_sentence(client, changes, words):
    good = {"prompt": PROMPT, "systems": ["tree"], "temperature": 0.0, "max_new_tokens": 16, "seed": 0}
    with pytest.raises(Exception, match=words) as refusal:
        client.predict(**{**good, **changes}, api_name="/prix")
    assert "Traceback" not in str(refusal.value)


TEXT = "Story: Once upon a time"


def test_the_api_streams_a_sweep(client):
    job = client.submit([TEXT], "tree", "shape", [1, 2], [1], [4], [0.0], 8, 0, api_name="/sweep")
    job.result(timeout=120)
    lines = told(job.outputs())
    assert [(cell["x"], cell["y"]) for cell in lines[-1]["cells"]] == [(1, 1), (2, 1)]
    assert lines[0]["start"] and lines[-1]["end"]
    with pytest.raises(Exception, match="at most 64"):
        client.predict([TEXT], "tree", "shape", list(range(1, 12)), list(range(1, 9)), api_name="/sweep")


def test_the_api_streams_a_row_for_every_prompt(client):
    stream = client.submit(text="Story: one\n\nStory: two", system="lookup", max_new_tokens=8, api_name="/prompts")
    messages = told(stream)
    assert [message["row"]["tokens"] for message in messages if "row" in message] == [8, 8]
    assert messages[-1]["end"] is True and [message["seq"] for message in messages] == list(range(1, len(messages) + 1))


def test_the_api_says_whether_guessing_pays(client):
    text = "Story: one\n\nStory: two\n\nStory: three"
    stream = client.submit(text=text, systems=["lookup"], max_new_tokens=8, acceptance=1.5, api_name="/pays")
    messages = told(stream)
    assert messages[0]["start"] and messages[-1]["end"] is True
    assert messages[-1]["verdict"].startswith(messages[-1]["answer"]) and messages[-1]["best"] == "lookup"
    assert [each["index"] for each in messages[-1]["prompts"]] == [0, 1, 2]
    [estimated] = messages[-1]["acceptance"]["rows"]
    assert estimated["acceptance"] == 1.5 and estimated["speedup"] == pytest.approx(
        1.5 / estimated["break_even"], rel=1e-4
    )
    with pytest.raises(Exception, match="needs 3 to 20 prompts here, got 1"):
        client.predict(text="Story: one", api_name="/pays")


def test_the_api_says_whether_guessing_pays_under_a_constraint(client):
    text = "Story: one\n\nStory: two\n\nStory: three"
    asked = {"text": text, "systems": ["forced"], "max_new_tokens": 16, "api_name": "/pays"}
    free, bound = (told(client.submit(**asked, constraint=each))[-1] for each in ("", "regex:maybe, [a-z]{1,3}"))
    assert free["systems"][0]["tau"] == 1 < bound["systems"][0]["tau"]  # without one no token is forced
    assert (free["constraint"], bound["constraint"]) == ("", "regex:maybe, [a-z]{1,3}")
    with pytest.raises(Exception, match="The regular expression cannot be compiled"):
        client.predict(**asked, constraint="regex:(")
