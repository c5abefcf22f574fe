"""The film of a race: it plays the race, ends with the verdict and stays small."""

import pytest
from PIL import Image

from engine.record.race_file import Record
from engine.views import gif
from engine.views.gif import lead, shot
from helpers.commands import run
from helpers.paths import ROOT
from helpers.traces import made_race

RACES = sorted((ROOT / "assets" / "races").glob("*.json"))


def test_the_film_plays_the_race_and_holds_the_verdict(tmp_path, capsys):
    file = tmp_path / "race.json"
    file.write_text(made_race().to_json(), "utf-8")
    run(gif.main, file, "--width", 640, "--seconds", 2)
    with Image.open(tmp_path / "race.gif") as film:
        assert film.size == (640, 400) and film.n_frames > 4
        waits, pictures = [], set()
        for at in range(film.n_frames):
            film.seek(at)
            waits.append(film.info["duration"])
            pictures.add(film.convert("RGB").tobytes())
    assert waits[-1] == 2000 and sum(waits) == 4000 - 100 and len(pictures) > 4


@pytest.mark.slow
def test_the_film_of_a_recorded_race_is_small(tmp_path):
    gif.save(Record.from_json(RACES[0].read_text("utf-8")), tmp_path / "race.gif", width=480, seconds=1)
    assert 5_000 < (tmp_path / "race.gif").stat().st_size < 500_000


def test_a_chats_reply_begins_below_the_prompt():
    raw, chat = made_race(), made_race()
    for lane in chat.lanes:
        lane.trace.chat = True
    first, other = (list(gif.frames(record, 640, 1))[-1] for record in (raw, chat))
    assert first.tobytes() != other.tobytes()


def test_the_films_verdict_is_the_races():
    words, _ = gif.verdict(made_race())
    assert words.endswith("identical: 6 of 6 tokens") and "faster" in words
    stopped = made_race("", "")
    assert gif.verdict(stopped)[0].endswith("stopped")


@pytest.mark.parametrize(("width", "seconds", "words"), [(10, 8, "width must be"), (960, 0, "seconds must be")])
def test_a_film_out_of_bounds_is_refused(width, seconds, words):
    with pytest.raises(ValueError, match=words):
        next(gif.frames(made_race(), width, seconds))


def test_the_films_lead_does_not_fall_when_one_lane_is_done():
    """Plain decoding takes 5 ms a token; the tree writes all six in 10 ms."""
    record = made_race()
    leads = [lead([shot(lane, time) for lane in record.lanes])[0] for time in (0.0001, 0.0151, 0.0201, 0.0251)]
    assert leads == ["", *["3.0x ahead: draft tree"] * 3]
