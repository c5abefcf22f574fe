"""A replay page as a GIF: Chromium shows it on a clock that we set. Knows the page's text and when it has ended; draws nothing."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Error, Page, sync_playwright
from tqdm import tqdm

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
WIDTHS = (320, 1920)  # pixels of a film, least and most
FRAME_MS, HELD_MS = 100, 2000  # of every frame, and of the last one
MOST_FRAMES = 600
COLOURS = 64
ENDED = "TreeRace.view.told && !TreeRace.view.playing && !TreeRace.view.slowStart.isTelling"


def record_replay_as_gif(replay_html: str, gif_path: Path, width_pixels: int = 960) -> None:
    """Writes what this HTML shows: the story of one step, the race, its verdict. Ten frames a second, at most a minute of them.

    Raises `ValueError` for a width out of bounds, and where no Chromium is found.
    """
    if not WIDTHS[0] <= width_pixels <= WIDTHS[1]:
        raise ValueError(f"--width must be between {WIDTHS[0]} and {WIDTHS[1]}, got {width_pixels}.")
    pictures: list[Image.Image] = []
    with open_replay_in_paused_chromium(replay_html) as page:
        for _ in tqdm(range(MOST_FRAMES), desc="frames", unit="frame", leave=False):
            picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
            pictures.append(
                picture.resize((width_pixels, width_pixels * picture.height // picture.width), Image.Resampling.LANCZOS)
            )
            if page.evaluate(ENDED):
                break
            page.clock.run_for(FRAME_MS)
    # One palette and no dithering keep flat colours flat, and what did not change then takes no bytes
    palette = pictures[-1].quantize(COLOURS)
    first, *others = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in pictures]
    held = [FRAME_MS] * len(others) + [HELD_MS]
    first.save(gif_path, save_all=True, append_images=others, duration=held, loop=0, optimize=True)


@contextmanager
def open_replay_in_paused_chromium(replay_html: str) -> Iterator[Page]:
    """The replay page of this HTML, in which no time passes but by `page.clock.run_for`."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "race.html")
        file.write_text(replay_html, "utf-8")
        try:  # without one on the machine's path, that which `playwright install chromium` brings
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        except Error:
            raise ValueError(
                "A film is recorded in Chromium, and none was found: apt-get install chromium, or playwright install chromium. "
                "The replay page, race.html, needs none."
            ) from None
        page = chromium.new_page(viewport={"width": 1280, "height": 720}, color_scheme="light")
        page.clock.install(time=0)
        page.clock.pause_at(1000)
        page.goto(file.as_uri())
        yield page
        chromium.close()
