"""Every function behind page and API, private ones too, given what no page sends: a sentence at once, and the next call right."""

import json
import math
import re
import time
import tracemalloc
from typing import Any

import gradio as gr
import pytest
from starlette.testclient import TestClient

from engine.page.web import streams as streams_of_page
from engine.page.web.lending import ServedPairs
from engine.page.web.pace import RateLimiter
from engine.page.web.page import build_gradio_page_and_api, mount_guarded_page
from engine.race import SHAPE
from engine.systems import format_shape, resolve_system_name
from helpers.commands import awaited
from helpers.pairs import spoken_pair
from helpers.traces import made_race

LONGEST_SENTENCE, LONGEST_QUOTE = 900, 60  # characters; a sentence may list all systems


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


VALUES: dict[str, Any] = {
    "null": None,
    "a truth": True,
    "not a number": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "a huge whole number": 10**400,
    "a huge number": 2.5e300,
    "a negative number": -1,
    "nothing": "",
    "half a character": "\ud800",
    "half a character behind a name": "tree\udfff",
    "control characters": "\x00\x07\x1b[31m\r\n",
    "a megabyte": "x" * 1_000_000,
    "shapes without end": "tree" + ":1x1x1" * 100_000,
    "breaks without end": "tree" + "!mask" * 100_000,
    "parts without end": "a/" * 500_000,
    "a shape out of range": "tree:999x999x999",
    "an unknown mix": "warp/" + "kary" * 2 + "/token_match",
    "a path": "../../../../etc/passwd",
    "markup": "<img src=x onerror=window.__hostile=1>" * 9,
    "brackets": "[" * 100_000,
    "objects": '{"prompts":' * 50_000,
    "a number that is none": '{"prompts": NaN, "system": Infinity}',
    "a number of many digits": '{"prompts": ' + "9" * 6000 + "}",
    "unknown names": '{"__class__": 1, "prompts": ["x"], "self": 2}',
    "an empty list": [],
    "an object": {},
    "a nested list": nested(900),
    "many values": ["x"] * 100_000,
    "many numbers": [1] * 100_000,
    "a file of the server": {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}},
}
BROKEN = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff]|Traceback|Error\\b|object at 0x")


def is_sentence(words: str, value: object) -> bool:
    """Whether these are words for a person, and hardly any of them the value's own."""
    quoted = isinstance(value, str) and len(value) > LONGEST_QUOTE and value[: LONGEST_QUOTE + 1] in words
    return 5 < len(words) <= LONGEST_SENTENCE and not BROKEN.search(words) and words.endswith(".") and not quoted


# ---- what there is to ask

ACCEPTED = "The engine would run."
SECONDS = 10  # that a call may take on a busy machine; each takes milliseconds
DIALS = {"depth": 3, "width": 2, "nodes": 8, "temperature": 0.0, "max_new_tokens": 8, "seed": 0, "constraint": ""}
FEW = {name: DIALS[name] for name in ("temperature", "max_new_tokens", "seed")}
SWEPT = {"depth": [1, 2], "width": [1], "nodes": [4], "temperature": [0.0], "max_new_tokens": 8, "seed": 0}
STREAMS = {  # what each function of the API is given when all is right
    "race": {
        "prompt": "Once",
        "system": "tree",
        "depth": 3,
        "width": 2,
        **FEW,
        "constraint": "",
        "pair": "",
        "turns": [],
    },
    "prix": {"prompt": "Once", "systems": ["tree", "lookup"], "pair": "", **FEW},
    "sweep": {"prompts": ["Once"], "system": "tree", "grid": "shape", **SWEPT, "pair": ""},
    "prompts": {"text": "Once", "name": "a.txt", "system": "tree", "pair": "", **FEW},
    "pays": {
        "text": "Once\n\nThere\n\nWas",
        "name": "a.txt",
        "systems": ["tree"],
        "acceptance": 3.0,
        "constraint": "",
        "pair": "",
        **FEW,
    },
}
WISHES = {"untouched": "3x2x8", "full": True, "third": True, "turns": []}
PAGE = {  # what the page's one event is asked for, by kind
    "race": {"prompt": "Once", "systems": ["vanilla", "tree"], **DIALS, **WISHES},
    "prix": {"prompt": "Once", "systems": ["tree", "lookup"], **FEW},
    "sweep": {"prompts": ["Once"], "system": "tree", "grid": "shape", **SWEPT},
    "prompts": {"prompts": ["Once"], "system": "tree", **FEW},
    "pays": {"prompts": ["Once", "There", "Was"], "systems": ["tree"], **FEW, "constraint": ""},
    "curve": {"curve": "batch"},
    "distance": {"prompt": "Once", "broken": "tree!mask", **DIALS},
}
PAGE = {kind: {"kind": kind, "run": "a-1", "pair": "", **values} for kind, values in PAGE.items()}
ANSWERS = {
    "look": ["tree", ""],
    "serialise_recorded_race": "1-story-draft-tree",
    "opening": "1-story-draft-tree",
    "opened": made_race().to_json(),
    "replay_page": made_race().to_json(),
    "parse_prompts_of_upload": ["a.txt", "Once"],
    "load_recorded_curve": "batch",
    "load_recorded_run": "sweep",
}
OWN = {name: DIALS[name] for name in SHAPE}
GIVEN = [(name, field) for name, fields in STREAMS.items() for field in fields]
ASKED = [(kind, name) for kind, values in PAGE.items() for name in values]


@pytest.fixture(scope="module")
def page() -> gr.Blocks:
    return build_gradio_page_and_api(ServedPairs(spoken_pair()))


@pytest.fixture(scope="module")
def streams(page) -> dict:
    return {each.name: each.fn for each in page.fns.values() if each.fn}


@pytest.fixture(scope="module")
def answers(page) -> dict:
    return {each.__name__: each for block in page.blocks.values() for each in getattr(block, "server_fns", ())}


@pytest.fixture(autouse=True)
def no_engine(monkeypatch):
    """What is accepted ends in one known sentence before anything runs."""

    def accepted(*_, **__):
        raise ValueError(ACCEPTED)

    monkeypatch.setattr(streams_of_page, "Job", accepted)
    monkeypatch.setattr(RateLimiter, "book_call_if_allowed_now", lambda *_: True)


def plain_text(message: str) -> str:
    """A message as the page shows it."""
    return message.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


async def last(stream) -> None:
    async for news in stream:
        assert json.loads(news)["failed"] is True


def refused(stream, *values: object, **given: object) -> str:
    with pytest.raises(gr.Error) as error:
        awaited(last(stream(*values, **given)))
    assert error.value.print_exception is False  # or the log would have the trace, and with it the prompt
    return plain_text(error.value.message)


def test_no_function_of_the_page_is_left_out(streams, answers):
    assert streams.keys() - {"take", "restore", "run"} == STREAMS.keys() and answers.keys() == ANSWERS.keys()


@pytest.mark.parametrize(("name", "field"), GIVEN)
def test_a_stream_refuses_every_hostile_value_in_a_sentence(streams, name, field):
    for what, value in VALUES.items():
        begun = time.monotonic()
        words = refused(streams[name], **STREAMS[name] | {field: value})
        assert is_sentence(words, value), f"{what}: {words[:200]!r}"
        assert time.monotonic() - begun < SECONDS, what
    assert refused(streams[name], **STREAMS[name]) == ACCEPTED


@pytest.mark.parametrize(("kind", "name"), ASKED)
def test_the_pages_run_refuses_every_hostile_value_in_a_sentence(streams, kind, name):
    for what, value in VALUES.items():
        begun = time.monotonic()
        words = refused(streams["run"], json.dumps(PAGE[kind] | {name: value}))
        assert is_sentence(words, value), f"{what}: {words[:200]!r}"
        assert time.monotonic() - begun < SECONDS, what
    assert refused(streams["run"], json.dumps(PAGE[kind])) == ACCEPTED


@pytest.mark.parametrize("kind", PAGE)
def test_the_pages_run_refuses_what_is_no_request(streams, kind):
    """A hostile value in its place, a value too few and a value that its kind does not have."""
    for what, value in VALUES.items():
        words = refused(streams["run"], value, *[value] * 3)
        assert is_sentence(words, value), f"{what}: {words[:200]!r}"
    for name in ("kind", "run"):
        lacking = {each: value for each, value in PAGE[kind].items() if each != name}
        assert "kind" in refused(streams["run"], json.dumps(lacking))
    assert "'self' is wrong in it" in refused(streams["run"], json.dumps(PAGE[kind] | {"self": 1}))


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_to_every_hostile_value_is_a_sentence(answers, name):
    good = ANSWERS[name]
    parts = [[*good[:at], None, *good[at + 1 :]] for at in range(len(good))] if isinstance(good, list) else []
    for what, value in VALUES.items():
        for given in (value, *([value if each is None else each for each in part] for part in parts)):
            begun = time.monotonic()
            answer = answers[name](given)
            right = "refused" not in answer and given is not value  # a file may have any name
            assert right or (list(answer) == ["refused"] and is_sentence(answer["refused"], value)), f"{what}: {answer}"
            assert time.monotonic() - begun < SECONDS, what
    assert "refused" not in answers[name](good)


def test_a_link_and_a_menu_take_every_hostile_value(streams):
    for value in VALUES.values():
        begun = time.monotonic()
        for query in (value, f"?right={value}&depth={value}&prompt={value}" if isinstance(value, str) else value):
            told = next(iter(streams["restore"](query).values()))
            assert len(told) < 3000 and not told.encode("utf-8").startswith(b"Traceback")
        for asked in ((value, value, ""), ("mix", value, ""), ("tree", "", value)):
            assert isinstance(streams["take"](*asked, format_shape(OWN), **OWN), dict)
        assert isinstance(streams["take"](value, value, value, value, **dict.fromkeys(SHAPE, value)), dict)
        assert time.monotonic() - begun < SECONDS
    assert len(streams["take"]("tree", "", "", format_shape(OWN), **OWN)) == 4


def test_a_long_name_takes_no_memory():
    tracemalloc.start()
    for suffix in (":1x1x1", "!mask", "/x"):
        with pytest.raises(ValueError, match="Unknown system"):
            resolve_system_name("tree" + suffix * 400_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
    with pytest.raises(ValueError, match="two shapes"):
        resolve_system_name("tree:1x1x3:2x2x3")


# ---- the same over HTTP

GOOD, SECRET = ["Once", "tree", 4, 4, 0.0, 8, 0, "", "", []], "a prompt that nobody else may read"


def asked(http, data: list):
    """What the server answers to a call of the API's race, or how its stream ends."""
    headers = {"Content-Type": "application/json"}
    answer = http.post("/gradio_api/call/race", content=json.dumps({"data": data}), headers=headers)
    if answer.status_code != 200:
        return answer.json()["detail"]
    said = http.get(f"/gradio_api/call/race/{answer.json()['event_id']}").text
    [words] = re.findall(r'event: error\ndata: .*?"error": "((?:[^"\\]|\\.)*)"', said)
    return plain_text(json.loads(f'"{words}"'))


def test_a_hostile_value_is_a_sentence_over_http_and_no_log_has_the_prompt(page, capfd):
    with TestClient(mount_guarded_page(page)) as http:
        for what, value in VALUES.items():
            for at in (1, 4):
                words = asked(http, [SECRET, *GOOD[1:at], value, *GOOD[at + 1 :]])
                assert is_sentence(words, value), f"{what}: {words[:200]!r}"
        assert asked(http, GOOD) == ACCEPTED
    printed = "".join(capfd.readouterr())
    assert SECRET not in printed and "Traceback" not in printed
