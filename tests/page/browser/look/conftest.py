"""Replays, in a tab that all their tests share: what Chromium has compiled of the page once it need not compile again."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from engine.page.views import standalone
from engine.record.race_file import Record
from helpers.page import PATIENCE

# Every address that is gone to is a visit of its own, in which no story has been told. A page that is loaded again stays in its visit.
FIRST_VISIT = """if (location.protocol === 'file:' && performance.getEntriesByType('navigation')[0].type === 'navigate')
  sessionStorage.clear();"""


@pytest.fixture(scope="session")
def replay_tab(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """It begins the app that later tests open, where there are such tests."""
    if any("server" in item.fixturenames for item in request.session.items):
        request.getfixturevalue("starting")
    with browser.new_context() as context:
        context.set_default_timeout(PATIENCE)
        tab = context.new_page()
        tab.add_init_script(FIRST_VISIT)
        yield tab


@pytest.fixture
def replay_file(tmp_path: Path) -> Callable[[Record], str]:
    """Writes the replay page of a record; gives its address."""

    def written(record: Record) -> str:
        file = tmp_path / "race.html"
        file.write_text(standalone.render_replay_page(record), "utf-8")
        return file.as_uri()

    return written


@pytest.fixture
def replay_of(replay_tab: Page, replay_file: Callable[[Record], str]) -> Callable[..., Page]:
    """Opens the replay page of a record in a window of that size, as a first visit."""

    def opened(record: Record, width: int, height: int, motion: str = "no-preference") -> Page:
        address = replay_file(record)
        replay_tab.goto("about:blank")
        replay_tab.set_viewport_size({"width": width, "height": height})
        replay_tab.emulate_media(reduced_motion=motion)
        replay_tab.mouse.move(0, 0)
        replay_tab.goto(address)
        return replay_tab

    return opened
