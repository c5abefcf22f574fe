"""A chat on the page: code in an answer stands as code, nothing of it is markup, and Reply goes on behind it."""

import json
from typing import Any

from playwright.sync_api import Page, expect

from helpers.page import HOSTILE, RESULT, finish, refused
from helpers.traces import FakeRace, events, make_step, one_node

ANSWER = ["Here it is:\n\n``", "`python\ndef add(a, b):\n", "    return <b>a</b> + b\n```\n"]  # the mark is cut in two


def answered(page: Page, pieces: list[str], chat: bool, **told: Any) -> None:
    """Plays a made-up race whose lanes write these pieces, a step each. `told` are further fields of its traces."""
    steps = []
    for index, piece in enumerate(pieces):
        end = "length" if index == len(pieces) - 1 else ""
        steps.append((0, one_node(index=index, burst=[99], pieces=[piece], bonus_text=piece, end=end)))
        steps.append((1, make_step(index=index, pieces=[piece, "", ""], end=end)))
    for event in events(FakeRace(steps)):
        message = json.loads(event)
        for system in message.get("systems", []):
            system["trace"] |= {"chat": chat, "prompt": "Write add."} | told
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


def test_a_reply_sends_the_earlier_turns_and_shows_them_as_text(page):
    """The pair is made up here to chat. The server's own does not, and says so once it has read the turns."""
    said, prompt = "".join(HOSTILE), page.locator("#prompt textarea")
    reply, anew = (page.get_by_role("button", name=name, exact=True) for name in ("Reply", "New chat"))
    answered(page, [said], chat=False)
    expect(reply).to_be_hidden()
    expect(anew).to_be_hidden()
    page.evaluate(
        "() => { const { pairs } = TreeRace; pairs.hear({ ...pairs.own, chat: true }); pairs.hear = () => {}; }"
    )
    title = page.evaluate("TreeRace.pairs.spoken.title")
    answered(page, [said], chat=True, pair=title, turns=[[said, said]])
    turns = page.locator(".race .turns")
    expect(turns.get_by_role("button")).to_contain_text("1 earlier turn")
    turns.get_by_role("button").click()
    expect(turns.locator("p")).to_be_visible()
    assert turns.locator(".turn-request").all_text_contents() == [said] * 2
    expect(turns.locator("span *")).to_have_count(0)
    reply.click()
    expect(prompt).to_be_focused()
    expect(prompt).to_have_value("")
    expect(prompt).to_have_attribute("placeholder", "Reply … (after 2 earlier turns)")
    expect(reply).to_be_disabled()
    prompt.fill("And now?")
    with page.expect_request(lambda asked: "queue/join" in asked.url) as joined:
        page.click("#race-go")
    [sent] = [each for each in joined.value.post_data_json["data"] if isinstance(each, str) and each.startswith("{")]
    assert json.loads(sent)["turns"] == [[said, said], ["Write add.", said]]
    refused(page, "does not chat, so it takes no earlier turns")
    anew.click()
    expect(anew).to_be_disabled()
    reply.click()
    page.get_by_role("button", name="chat", exact=True).click()
    page.get_by_role("button", name="Three reasons").click()
    expect(anew).to_be_disabled()
    assert page.evaluate("window.__hostile") is None
