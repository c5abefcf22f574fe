"""The opening page's first twenty seconds as one sheet: `python -m tests.sheet SHEET.png` has Chromium draw its frames at 1280x720.

Whoever sees only the sheet should be able to say what happens and why it is a tree. It knows the opening page; it judges nothing.
The browser's clock is stepped by hand, so that a busy machine draws the same frames.
"""

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from engine.page.views import standalone

SECONDS = (1.5, 2.8, 3.9, 4.7, 5.8, 6.9, 8.5, 10, 12, 14, 17, 20)  # the story's six scenes at their ends, then the race
COLUMNS = 3
WINDOW = {"width": 1280, "height": 720}
SHRUNK = (800, 450)  # pixels of a frame on the sheet
GAP = 8  # pixels
START = "http://opening.test/"  # nothing is there: the page is handed to the browser
READINESS = '{"words": "Loading PyTorch", "live": false}'


def frames() -> list[Image.Image]:
    """The page as it stands at `SECONDS`. Raises `RuntimeError` where there is no Chromium."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise RuntimeError("No Chromium on this machine: apt-get install chromium")
    html = standalone.opening()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport=WINDOW).new_page()
        page.route("**", lambda route: route.fulfill(body=READINESS if "readiness" in route.request.url else html))
        page.clock.install(time=0)
        page.clock.pause_at(1000)
        page.goto(START)
        page.wait_for_function("TreeRace.view.slowStart.isTelling", polling=50)
        made, last = [], 0.0
        for second in SECONDS:
            page.clock.run_for(round(1000 * (second - last)))
            last = second
            made.append(Image.open(io.BytesIO(page.screenshot())))
        browser.close()
    return made


def sheet(made: list[Image.Image]) -> Image.Image:
    """The frames in rows of `COLUMNS`, in their order."""
    rows = -(-len(made) // COLUMNS)
    (width, height), gap = SHRUNK, GAP
    whole = Image.new("RGB", (COLUMNS * (width + gap) + gap, rows * (height + gap) + gap), "black")
    for index, frame in enumerate(made):
        row, column = divmod(index, COLUMNS)
        whole.paste(
            frame.resize(SHRUNK, Image.Resampling.LANCZOS), (gap + column * (width + gap), gap + row * (height + gap))
        )
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sheet", description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="the picture's file, such as opening.png")
    out = parser.parse_args().out
    sheet(frames()).save(out)
    print(f"{out}: {len(SECONDS)} frames, at {', '.join(map(str, SECONDS))} s")


if __name__ == "__main__":
    main()
