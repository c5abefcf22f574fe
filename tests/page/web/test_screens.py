"""The page as Gradio is told it, without a server or a browser: screens from their registry, values by name, scripts by name."""

import json
import re

import gradio as gr
import pytest

from engine.page.screens import requests
from engine.page.screens.answers import CHAT_PROMPTS, PROMPTS
from engine.page.screens.cards import describe_pair
from engine.page.views import page_files
from engine.page.web import streams
from engine.page.web.lending import ServedPairs
from engine.page.web.page import SCREENS, Screen, build_gradio_page_and_api, build_screen_and_menu_style_rules
from engine.remote.server import OpenAICompatibleServer
from helpers.commands import awaited
from helpers.pairs import spoken_pair

# What the page says before anything runs
PAIR = spoken_pair()
CALL = re.compile(r"TreeRace\.([\w.]+)\((.*)\)")


@pytest.fixture(scope="module")
def page() -> dict:
    return build_gradio_page_and_api(ServedPairs(PAIR)).get_config_file()


def by_id(page: dict) -> dict[str, dict]:
    return {each["props"]["elem_id"]: each["props"] for each in page["components"] if each["props"].get("elem_id")}


def test_a_new_tab_is_a_line_of_the_registry():
    filled = []

    def fill(served, form):
        filled.append((served.pair, "prompt" in form))
        gr.HTML("of the new tab", elem_id="inside")
        return form

    screens = (
        *SCREENS,
        Screen("new", "A new tab", start_button_label="Begin", build_column=fill, kinds_of_runs=("race",)),
    )
    parts = by_id(build_gradio_page_and_api(ServedPairs(PAIR), screens).get_config_file())
    assert filled == [(PAIR, True)] and (parts["new-go"]["value"], parts["new-halt"]["value"]) == ("Begin", "Stop")
    assert {"new-screen", "new-go", "new-halt", "inside"} <= parts.keys()
    assert json.loads(parts["masthead"]["value"])["screens"]["new"] == "A new tab"
    assert '#screen:not([data-screen="new"]) :is(#new-screen, #new-go, #new-halt)' in build_screen_and_menu_style_rules(
        each.name for each in screens
    )


def test_the_page_names_another_server_and_never_its_address():
    server = OpenAICompatibleServer("http://127.0.0.1:8000/hidden/v1", "big/model")
    config = build_gradio_page_and_api(ServedPairs(spoken_pair(remote=server))).get_config_file()
    menus = [
        each["props"]["choices"] for each in config["components"] if "System of the" in str(each["props"].get("label"))
    ]
    assert len(menus) == 2 and all(("remote: big/model", "remote") in map(tuple, menu) for menu in menus)
    assert json.loads(by_id(config)["race"]["value"])["systems"]["remote"]["title"] == "remote: big/model"
    assert "127.0.0.1" not in json.dumps(config, default=str) and "remote: big/model" not in json.dumps(
        build_gradio_page_and_api(ServedPairs(PAIR)).get_config_file(), default=str
    )


def test_handlers_of_the_page_are_given_every_value_by_name():
    for function in build_gradio_page_and_api(ServedPairs(PAIR)).fns.values():
        if function.fn and function.name == "restore":
            assert function.input_keyword_names and len(function.input_keyword_names) == len(function.inputs), (
                function.name
            )


def test_python_calls_the_pages_scripts_by_name_alone(page):
    scripts = page_files.join_styles_or_scripts_of_page("scripts", "page")
    calls = [each["js"] for each in page["dependencies"] if each["js"]]
    calls += [each["props"]["js_on_load"].rstrip(";") for each in page["components"] if each["props"].get("js_on_load")]
    assert len(calls) > 20
    for call in calls:
        name, given = CALL.fullmatch(call).groups()
        paths = [name, *re.findall(r'^"([\w.]+)"', given)] if name.startswith("gradio.") else [name]
        for path in paths:
            method = path.split(".")[-1]
            assert re.search(rf"(^|[ .]){method}( = |\([^\n]*\) {{)", scripts, re.M), call


def test_another_pair_may_take_the_place_of_the_one_that_is_served(monkeypatch):
    """What was asked before goes on with its own pair; the next call gets the new one. The page is the same."""
    asked = []

    def noted(pair, kind, given):
        asked.append(pair)
        raise ValueError("noted")

    monkeypatch.setattr(streams, "build_request_within_token_limit", noted)
    served = ServedPairs(PAIR)
    parts = build_gradio_page_and_api(served).get_config_file()
    other = spoken_pair(title="another pair")

    async def race() -> None:
        with pytest.raises(gr.Error, match="noted"):
            async for _ in streams.stream_request_events_and_refusals(served, lambda: {"kind": "race"}):
                pass

    awaited(race())
    served.pair = other
    awaited(race())
    assert asked == [PAIR, other] and describe_pair(other)["pair"].startswith("another pair · a machine · fp32")
    said = describe_pair(other)
    assert "chat" not in said["pair"] + said["way"] and said["chat"] is False
    other.chat = True
    assert " · chat · " in describe_pair(other)["pair"] and "chat template" in describe_pair(other)["way"]
    begins = [
        by_id(build_gradio_page_and_api(ServedPairs(pair)).get_config_file())["prompt"]["value"]
        for pair in (PAIR, other)
    ]
    assert begins == [PROMPTS["stories"][0]["prompt"], CHAT_PROMPTS["chat"][0]["prompt"]]
    lanes = [
        each["props"]["value"] for each in parts["components"] if "System of the" in each["props"].get("label", "")
    ]
    assert lanes == ["vanilla", "auto"]


def test_what_scripts_give_with_an_event_shares_one_hidden_field(page):
    """What runs, a link, a pair: each would be laid out before anybody sees the page."""
    [field] = [each["id"] for each in page["components"] if each["props"].get("elem_id") == "carried"]
    counts = [each["inputs"].count(field) for each in page["dependencies"]]
    assert sum(counts) == 5 and max(counts) == 1


def test_all_runs_share_one_event_and_one_wire(page):
    [run] = [each for each in page["dependencies"] if each["queue"] and each["api_visibility"] == "private"]
    [wire] = [each["id"] for each in page["components"] if each["props"].get("elem_id") == "wire"]
    assert (run["outputs"], run["trigger_mode"]) == ([wire], "multiple")  # a race may begin while a sweep goes on
    assert {kind for screen in SCREENS for kind in screen.kinds_of_runs} == requests.KINDS.keys()
