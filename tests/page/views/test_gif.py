"""The film of a race: it plays the race, ends with the verdict and stays small."""

from dataclasses import replace

import pytest
from PIL import Image

from engine.page.views import film_frame, gif
from engine.page.views.film_frame import shot
from engine.page.views.gif import lead
from engine.record.race_file import Record
from helpers.commands import run
from helpers.paths import ROOT
from helpers.traces import made_race

SCENES = 5  # of a story, after the levels
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
    story = 100 * (2 * gif.LEVEL + SCENES * gif.SCENE)  # two levels, then five scenes
    assert waits[-1] == 2000 and sum(waits) == story + 4000 - 100 and len(pictures) > 8


def test_the_film_begins_with_a_step_told_slowly():
    """The tree of tests/helpers/traces.py: levels come, a sweep checks them, the target chooses, wrong ones fade, the burst joins."""
    level, scene = gif.LEVEL, gif.SCENE
    told = list(gif.story(made_race(), 1.0))
    assert len(told) == 2 * level + SCENES * scene
    blue, orange = (tuple(int(hue[0][at : at + 2], 16) for at in (1, 3, 5)) for hue in film_frame.HUES)
    tree, cache, lane = (30, 370, 930, 530), (110, 540, 700, 580), (500, 120, 930, 280)

    def counted(hue, room) -> list[int]:
        """Pixels of that hue in the room: as the tree has grown, in the sweep, then at the end of each scene."""
        ends = [2 * level - 1, 2 * level + 2, *range(2 * level + scene - 1, len(told), scene)]
        return [dict(map(reversed, told[at].crop(room).getcolors(100_000))).get(hue, 0) for at in ends]

    grown, sweeping, checked, chosen, dropped, joined, same = counted(orange, tree)
    assert grown == sweeping == checked == chosen == 0 < dropped == joined == same
    grown, sweeping, checked, chosen, dropped, *_ = counted(blue, tree)
    assert (
        grown == checked == dropped == 0 < min(sweeping, chosen)
    )  # the target's sweep, then what it would have written
    grown, sweeping, checked, chosen, dropped, *_ = counted(blue, cache)
    assert grown == dropped == 0 < sweeping < checked == chosen  # rows that are tried
    grown, sweeping, checked, chosen, dropped, joined, same = counted(orange, cache)
    assert grown == sweeping == checked == chosen == 0 < dropped == joined == same  # rows that are kept
    *_, dropped, joined, same = counted(orange, lane)
    assert dropped == 0 < joined == same
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


@pytest.mark.parametrize("length", range(30, 46))
def test_a_word_in_pieces_stands_in_one_line_from_its_first_piece_on(length):
    record = made_race()
    trace = record.lanes[1].trace
    trace.prompt = "a" * length
    trace.steps = [replace(step, pieces=[piece]) for step, piece in zip(trace.steps, (" grand", "mother"), strict=True)]
    lines = film_frame.wrapped(film_frame.Brush(1.0), trace, 430, 17)
    assert ["".join(piece for _, _, piece, _ in line) for line in lines] in (
        ["a" * length + " grandmother"],
        ["a" * length, "grandmother"],
    )
    assert [burst for line in lines for _, _, _, burst in line] == [None, 0, 1]


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


def test_the_accepted_paths_words_stand_whole_in_the_films_trees(monkeypatch):
    said = []
    monkeypatch.setattr(
        film_frame.Brush, "text", lambda brush, x, y, words, size, *_: said.append((words, size)) or 0.0
    )
    steps = Record.own(RACES[0].read_text("utf-8")).lanes[-1].trace.steps
    assert max(len(step.path) for step in steps) >= 10
    for step in steps:
        said.clear()
        film_frame.draw_tree(film_frame.Brush(1.0), step, None)
        sizes = dict(said)
        assert all(sizes[film_frame.shown(step.texts[node])] >= 10 for node in step.path)


def test_where_rows_are_lower_than_letters_only_the_path_has_words(monkeypatch):
    said = []
    monkeypatch.setattr(film_frame.Brush, "text", lambda brush, x, y, words, *_: said.append(words) or 0.0)
    step = made_race().lanes[1].trace.steps[0]
    many = 40
    step = replace(
        step,
        parents=[-1, *[0] * many],
        texts=["root", *map(str, range(many))],
        verdicts=["root", "accepted", *["rejected"] * (many - 1)],
        path=[1],
        burst=[1],
    )
    film_frame.draw_tree(film_frame.Brush(1.0), step, None)
    assert [words for words in said[1:] if words] == ["root", "0"]


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
