"""Pictures of the page as Chromium draws it at 1280x720. It judges nothing.

python -m tests.sheet opening.png               the opening page's first twenty seconds, a sheet of twelve frames
python -m tests.sheet assets/page.png --live    README's picture: the live page on the step at which its first race comes to rest

Whoever sees only the sheet should be able to say what happens and why it is a tree. The browser's clock is stepped by hand, so that a
busy machine draws the same frames.
"""

import argparse
import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from engine.page.views import standalone

sys.path.append(str(Path(__file__).parents[1]))  # where pytest finds helpers
from helpers.commands import starting_app
from helpers.page import FLAGS, NO_STORY, PATIENCE
from helpers.paths import CHROMIUM

SECONDS = (1.5, 2.8, 3.9, 4.7, 5.8, 6.9, 8.5, 10, 12, 14, 17, 20)  # the story's six scenes at their ends, then the race
COLUMNS = 3
WINDOW = {"width": 1280, "height": 720}
SHRUNK = (800, 450)  # pixels of a frame on the sheet
GAP = 8  # pixels
START = "http://opening.test/"  # nothing is there: the page is handed to the browser
READINESS = '{"words": "Loading PyTorch", "live": false}'


def picture(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot()))


def frames(page: Page) -> list[Image.Image]:
    """The opening page as it stands at `SECONDS`."""
    html = standalone.render_opening_page()
    page.route("**", lambda route: route.fulfill(body=READINESS if "readiness" in route.request.url else html))
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.goto(START)
    page.wait_for_function("TreeRace.view.slowStart.isTelling", polling=50)
    made = []
    for last, second in zip((0, *SECONDS), SECONDS, strict=False):
        page.clock.run_for(round(1000 * (second - last)))
        made.append(picture(page))
    return made


def sheet(made: list[Image.Image]) -> Image.Image:
    """The frames in rows of `COLUMNS`, in their order."""
    (width, height), rows = SHRUNK, -(-len(made) // COLUMNS)
    whole = Image.new("RGB", (COLUMNS * (width + GAP) + GAP, rows * (height + GAP) + GAP), "black")
    for index, frame in enumerate(made):
        row, column = divmod(index, COLUMNS)
        small = frame.resize(SHRUNK, Image.Resampling.LANCZOS)
        whole.paste(small, (GAP + column * (width + GAP), GAP + row * (height + GAP)))
    return whole


def at_rest(page: Page) -> Image.Image:
    """The live page of the default pair, once its recorded race is over."""
    with starting_app(bare=True) as address:
        page.add_init_script(NO_STORY)
        page.goto(address("ready"))
        page.wait_for_function("window.TreeRace?.view?.recorded && TreeRace.view.isOver")
        page.evaluate("TreeRace.view.skip()")
        page.evaluate("document.fonts.ready")
        page.wait_for_timeout(1000)  # marks and washes fade in
        return picture(page)


def main() -> None:
    """Raises `RuntimeError` where there is no Chromium."""
    parser = argparse.ArgumentParser(prog="python -m tests.sheet", description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="the picture's file")
    parser.add_argument("--live", action="store_true", help="the live page at rest instead of the sheet")
    given = parser.parse_args()
    if CHROMIUM is None:
        raise RuntimeError("No Chromium on this machine: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_context(viewport=WINDOW).new_page()
        page.set_default_timeout(PATIENCE)
        made = at_rest(page) if given.live else sheet(frames(page))
        browser.close()
    made.save(given.out)
    print(f"{given.out}: {made.width} x {made.height}")


if __name__ == "__main__":
    main()
