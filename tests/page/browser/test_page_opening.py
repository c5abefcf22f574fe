"""The opening page in a real Chromium: it plays, says what is being made ready, and goes over to the live page."""

import pytest
from playwright.sync_api import expect

from helpers.page import PATIENCE, until


class Live:
    def __init__(self):
        self.router = self

    def lifespan_context(self, app):
        return self

    async def __aenter__(self):
        return self

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b"<title>live</title>"})


@pytest.fixture
def opened(front, browser):
    """The opening page in a tab of its own. Afterwards: no complaint, and no request to anywhere else."""
    with browser.new_context(viewport={"width": 1280, "height": 720}) as context:
        context.set_default_timeout(PATIENCE)
        tab, complaints, requests = context.new_page(), [], []
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(f"{front.url}?seed=3")
        yield tab
        asked = [url for url in requests if not url.startswith((front.url, "data:", "blob:"))]
    assert complaints == [] and asked == []


def after_the_story(opened) -> None:
    """The race plays, and nobody has touched it."""
    until(opened, "TreeRace.view.slowStart.isTelling")
    opened.evaluate("TreeRace.view.slowStart.story.leave()")
    until(opened, "TreeRace.view.playing && TreeRace.view.time > 0")


def test_the_opening_page_plays_and_goes_over_by_itself(front, opened):
    after_the_story(opened)
    expect(opened.locator("[data-recorded]")).to_contain_text("recorded on ")
    expect(opened.locator("[data-opening-words]")).to_have_text("Making ready 2 of 18: draft tree")
    assert opened.evaluate("document.documentElement.scrollHeight <= innerHeight")
    front.start_and_attach_live_app(Live())
    expect(opened).to_have_title("live")
    assert opened.url == f"{front.url}?seed=3"


def test_who_looks_at_the_recorded_race_is_asked_first(front, opened):
    after_the_story(opened)
    opened.get_by_role("button", name="Pause").click()
    front.start_and_attach_live_app(Live())
    button = opened.get_by_role("button", name="Open the live page")
    expect(button).to_be_visible()
    expect(opened).not_to_have_title("live")
    with opened.expect_request(f"{front.url}readiness"):  # nothing has to rest for a page that may never be asked for
        pass
    button.click()
    expect(opened).to_have_title("live")


def test_the_race_begins_again_with_its_story_until_somebody_touches_it(front, opened):
    telling = "TreeRace.view.slowStart.isTelling"
    until(opened, telling)
    opened.clock.install()  # a race's rest at its end is longer than any test should be
    opened.evaluate("TreeRace.view.skip()")
    assert not opened.evaluate(telling)
    opened.clock.fast_forward(5000)
    until(opened, telling)
    opened.mouse.click(5, 5)
    opened.evaluate("TreeRace.view.skip()")
    opened.clock.fast_forward(5000)
    assert opened.evaluate(f"!{telling} && TreeRace.view.atEnd")


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_what_is_being_made_ready_moves_nothing(front, opened, width, height):
    opened.set_viewport_size({"width": width, "height": height})
    opened.mouse.click(5, 5)
    line, words = opened.locator(".opening"), opened.locator("[data-opening-words]")
    sizes = []
    for said in ("", "Loading PyTorch", "Making ready 12 of 27: prompt lookup, 118 loops compiled"):
        front.progress_text = lambda said=said: said
        expect(words).to_have_text(said)
        sizes.append(line.bounding_box())
    front.start_and_attach_live_app(Live())
    expect(opened.get_by_role("button", name="Open the live page")).to_be_in_viewport(ratio=1)
    sizes.append(line.bounding_box())
    assert sizes == [sizes[0]] * 4
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_nobody_is_torn_out_of_a_story(front, opened):
    """Nor does the engine begin anything that the page would then be built beside; unless somebody has touched the page."""
    until(opened, "TreeRace.view.slowStart.isTelling")
    opened.evaluate("TreeRace.view.slowStart.story.player.pause()")
    front.start_and_attach_live_app(Live())
    with opened.expect_request(lambda request: request.url == f"{front.url}readiness?coming"):
        opened.wait_for_timeout(2000)
    expect(opened).to_have_title("TreeRace")
    opened.evaluate("TreeRace.view.slowStart.story.leave()")
    expect(opened).to_have_title("live")
