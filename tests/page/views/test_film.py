"""The film of a race: the replay page tells its step, plays the race and rests on the verdict, in a process of its own."""

import subprocess
import sys

import pytest
from PIL import Image

from engine.page.views import film
from helpers.paths import OF_TESTS

IN_LARGE_STEPS = """
import sys
from pathlib import Path
from engine.page.views import film, standalone
from helpers.traces import made_race
film.FRAME_MS = 500
film.record_replay_as_gif(standalone.render_replay_page(made_race()), Path(sys.argv[1]), 640)
"""  # a Playwright runs in this process already


@pytest.mark.browser
def test_a_film_tells_the_step_plays_the_race_and_holds_the_verdict(tmp_path):
    made = subprocess.run([sys.executable, "-c", IN_LARGE_STEPS, str(tmp_path / "race.gif")], env=OF_TESTS, timeout=300)
    assert made.returncode == 0
    with Image.open(tmp_path / "race.gif") as frames:
        assert frames.size == (640, 360) and frames.n_frames > 14  # a story alone lasts for seven seconds
        waits, pictures = [], []
        for at in range(frames.n_frames):
            frames.seek(at)
            waits.append(frames.info["duration"])
            pictures.append(frames.convert("RGB"))
    assert waits[-1] >= film.HELD_MS and len({each.tobytes() for each in pictures}) > 10
    first, last = ({colour for _, colour in each.getcolors(100_000)} for each in (pictures[0], pictures[-1]))
    orange = [(red, green, blue) for red, green, blue in last if red > 190 and 60 < green < 120 and blue < 40]
    assert orange and len(last) > len(first)


@pytest.mark.parametrize("width", [10, 4000])
def test_a_width_out_of_bounds_is_a_sentence(tmp_path, width):
    with pytest.raises(ValueError, match=f"--width must be between 320 and 1920, got {width}"):
        film.record_replay_as_gif("", tmp_path / "race.gif", width)


def test_without_a_browser_a_sentence_names_what_needs_none(tmp_path):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    code = (
        "import sys; from engine.page.views import film\n"
        f"film.shutil.which = lambda name: {str(broken)!r}\n"
        "try: film.record_replay_as_gif('', sys.argv[1])\n"
        "except ValueError as error: print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, "race.gif"], env=OF_TESTS, capture_output=True, text=True, timeout=120
    )
    assert "apt-get install chromium" in said.stdout and "race.html, needs none" in said.stdout
