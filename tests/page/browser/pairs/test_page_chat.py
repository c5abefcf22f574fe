"""A chat model's answer on the page: code stands as code, and nothing of it is markup."""

import json

from playwright.sync_api import Page, expect

from helpers.page import RESULT, finish
from helpers.traces import FakeRace, events, make_step, one_node

ANSWER = ["Here it is:\n\n``", "`python\ndef add(a, b):\n", "    return <b>a</b> + b\n```\n"]  # the mark is cut in two


def answered(page: Page, pieces: list[str], chat: bool) -> None:
    """Plays a made-up race whose lanes write these pieces, a step each."""
    steps = []
    for index, piece in enumerate(pieces):
        end = "length" if index == len(pieces) - 1 else ""
        steps.append((0, one_node(index=index, burst=[99], pieces=[piece], bonus_text=piece, end=end)))
        steps.append((1, make_step(index=index, pieces=[piece, "", ""], end=end)))
    for event in events(FakeRace(steps)):
        message = json.loads(event)
        for system in message.get("systems", []):
            system["trace"] |= {"chat": chat, "prompt": "Write add."}
        page.evaluate("event => TreeRace.view.race.show(event)", message | (RESULT if message.get("end") else {}))
    finish(page)


def face(page: Page) -> str:
    return page.locator(".left [data-text]").evaluate("each => getComputedStyle(each).fontFamily")


def test_an_answer_with_code_stands_in_monospaced_type_with_its_lines(page):
    answered(page, ["An answer", " in", " words."], chat=True)
    words = face(page)
    answered(page, ANSWER, chat=True)
    assert "mono" in face(page).lower() and face(page) != words
    text = page.locator(".left [data-bursts]")
    assert text.inner_text().rstrip() == "".join(ANSWER).rstrip()  # as it is seen: line by line, spaces included
    expect(text.locator("b")).to_have_count(0)
    answered(page, ["An answer", " in", " words."], chat=True)
    assert face(page) == words


def test_what_is_no_answer_keeps_its_face(page):
    answered(page, ["A story"], chat=False)
    words = face(page)
    answered(page, ANSWER, chat=False)
    assert face(page) == words
