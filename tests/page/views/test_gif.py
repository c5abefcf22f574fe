"""The film of a race: it plays the race, ends with the verdict and stays small."""

from dataclasses import replace

import pytest
from PIL import Image

from engine.page.views import gif
from engine.page.views.gif import lead, shot
from engine.record.race_file import Record
from helpers.commands import run
from helpers.paths import ROOT
from helpers.traces import made_race

RACES = sorted((ROOT / "assets" / "races").glob("*.json"))


def test_the_film_plays_the_race_and_holds_the_verdict(tmp_path, capsys):
    file = tmp_path / "race.json"
    file.write_text(made_race().to_json(), "utf-8")
    run("replay", file, "-o", tmp_path / "new" / "film.gif", "--width", 640, "--seconds", 2)
    with Image.open(tmp_path / "new" / "film.gif") as film:
        assert film.size == (640, 400) and film.n_frames > 4
        waits, pictures = [], set()
        for at in range(film.n_frames):
            film.seek(at)
            waits.append(film.info["duration"])
            pictures.add(film.convert("RGB").tobytes())
    story = 100 * (2 * gif.LEVEL + 4 * gif.SCENE)  # two levels, then four scenes
    assert waits[-1] == 2000 and sum(waits) == story + 4000 - 100 and len(pictures) > 8


def test_the_film_begins_with_a_step_told_slowly():
    """The tree of tests/helpers/traces.py: levels come, wrong guesses fade, and only then the burst stands in the text."""
    told = list(gif.story(made_race(), 1.0))
    assert len(told) == 2 * gif.LEVEL + 4 * gif.SCENE
    hue = tuple(int(gif.HUES[1][0][at : at + 2], 16) for at in (1, 3, 5))
    tree, lane = (30, 370, 930, 580), (500, 120, 930, 280)

    def orange(picture, room) -> int:
        return {colour: count for count, colour in picture.crop(room).getcolors(100_000)}.get(hue, 0)

    first, judged, left, joined = told[0], told[2 * gif.LEVEL], told[-2 * gif.SCENE - 1], told[-1]
    assert orange(first, tree) == 0 < orange(judged, tree) < orange(left, tree) == orange(joined, tree)
    assert orange(left, lane) == 0 < orange(joined, lane)
    nothing = made_race()
    nothing.lanes.reverse()
    assert list(gif.story(nothing, 1.0)) == []


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


@pytest.mark.parametrize(
    ("forwards", "words", "shoots"),
    [
        (0, "What may come next is guessed, without running a model.", 1),
        (1, "A small model guesses ahead, in one go.", 1),
        (2, "A small model guesses ahead.", 2),
    ],
)
def test_the_films_story_tells_of_draft_forwards_that_were_run(monkeypatch, forwards, words, shoots):
    record, said = made_race(), []
    lane = record.lanes[1].trace
    lane.steps = [replace(step, draft_forwards=forwards) for step in lane.steps]
    monkeypatch.setattr(gif, "drawn", lambda *arguments: said.append(arguments[3][0]))
    list(gif.story(record, 1.0))
    assert said.count(words) == shoots and gif.checked(1) == "the guess"


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
