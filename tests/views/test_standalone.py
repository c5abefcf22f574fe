"""What is taken away from a race, without a browser: the recorded races, links, the replay page, the film. No page."""

import json
from dataclasses import asdict
from datetime import date

import pytest
from PIL import Image

from engine.measure import record_races
from engine.race import Settings
from engine.record.race_file import Record
from engine.screens import answers, cards
from engine.screens.link import read
from engine.systems import SYSTEMS
from engine.views import gif, page_files, standalone
from engine.web import form
from engine.web import theme as page_theme
from helpers.paths import ROOT
from helpers.traces import made_race

RACES = sorted((ROOT / "assets" / "races").glob("*.json"))


def run(main, *arguments: object) -> None:
    main([str(each) for each in arguments])


# ---- recorded races


def test_the_recorded_races_are_the_commands_and_small():
    assert [path.stem for path in RACES] == sorted(record_races.RECORDED)
    for path in RACES:
        record = Record.from_json(path.read_text("utf-8"))
        result = record.result()
        assert path.stat().st_size < 300_000
        assert result["identical"] is True and result["finished"] and result["lanes"][0]["tokens"] >= 100
        assert record.recorded and all(lane.trace.hardware for lane in record.lanes)


def test_the_recorded_races_are_what_the_command_would_record():
    for path, (domain, title, settings) in zip(RACES, record_races.RECORDED.values(), strict=True):
        expected = record_races.settings_of(domain, title, settings)
        lanes = Record.from_json(path.read_text("utf-8")).lanes
        assert tuple(lane.trace.system for lane in lanes) == expected.systems
        for lane in lanes:
            for name in ("prompt", "temperature", "seed", "max_new_tokens"):
                assert getattr(lane.trace, name) == getattr(expected, name)
            assert lane.title == SYSTEMS[lane.trace.system].title


def test_the_page_opens_with_what_its_form_begins_with():
    first = Record.from_json(RACES[0].read_text("utf-8")).lanes
    assert tuple(lane.trace.system for lane in first) == cards.LANES
    assert first[0].trace.prompt == form.prompt_box().value
    dials = {name: dial.value for name, dial in form.dials().items()}
    assert {name: getattr(first[1].trace, name) for name in dials} == dials


def test_the_command_records_a_race(capsys, monkeypatch, tmp_path, embedded):
    monkeypatch.setattr(record_races, "load", lambda name, device: embedded)
    out = tmp_path / "new" / "race.json"
    run(record_races.main, "--prompt", "Story: A fox", "--system", "lookup", "--tokens", 12, "--out", out)
    record = Record.from_json(out.read_text("utf-8"))
    assert record.recorded == date.today().isoformat()
    assert [lane.trace.system for lane in record.lanes] == ["vanilla", "lookup"]
    assert len(record.lanes[0].trace.tokens) == 12 and "identical" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(record_races.main, "--prompt", "Story: A fox", "--system", "warp")
    assert "Unknown system 'warp'" in capsys.readouterr().err


# ---- links


def test_a_link_sets_everything():
    query = "?prompt=Story%3A+a+%26+%3Cb%3E&left=lookup&right=model/kary/token_match&depth=3&width=2&nodes=9"
    given, refused = read(f"{query}&temperature=0.7&tokens=64&seed=9007199254740991")
    assert refused == [] and given == {
        "prompt": "Story: a & <b>",
        "left": "lookup",
        "right": "model/kary/token_match",
        "depth": 3,
        "width": 2,
        "nodes": 9,
        "temperature": 0.7,
        "max_new_tokens": 64,
        "seed": 2**53 - 1,
    }
    Settings(given.pop("prompt"), (given.pop("left"), given.pop("right")), **given)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("prompt=", "prompt is empty"),
        ("prompt=" + "x" * 20_001, "20,001 characters"),
        ("left=warp", "Unknown system 'warp'"),
        ("right=model/kary/speculative", "would bias the output"),
        ("right=tree:3x2x8", "The menus have no system"),
        ("right=tree!mask", "The menus have no system"),
        ("depth=99", "Depth must be between"),
        ("nodes=8.5", "whole number"),
        ("nodes=", "Nodes must be a number"),
        ("temperature=nan", "Temperature must be a number"),
        ("temperature=3", "between 0 and 2 on the page"),
        ("tokens=1e9", "tokens must be between"),
        ("tokens=" + "9" * 5000, "tokens must be"),
        ("seed=-1", "Seed must be between"),
        ("seed=<b>x</b>", "Seed must be a number"),
        ("&".join(["seed=1"] * 200), "too many parts"),
    ],
)
def test_a_wrong_value_in_a_link_is_a_sentence_and_sets_nothing(query, words):
    given, [sentence] = read(query)
    assert given == {} and words in sentence


def test_a_foreign_address_sets_nothing():
    assert read("?view=api&learn=3&__theme=dark") == ({}, [])
    assert read("?depth=5&width=0")[0] == {"depth": 5}


# ---- the replay page


def test_the_replay_page_holds_everything_and_asks_for_nothing():
    page = standalone.html(made_race())
    assert "{{" not in page.replace("{{x}}", "").split('id="event"')[0]
    outside = page.split("<script")[0] + page.split("</script>")[-1]
    assert "http://" not in outside and "https://" not in outside and "src=" not in outside
    assert "default-src 'none'" in page
    event = page.split('id="event">', 1)[1].split("</script>", 1)[0]
    assert json.loads(event)["recorded"] == "2026-01-31"


def test_hostile_texts_end_no_script():
    hostile = "</script><script>window.__hostile=1</script><!-- {{race}} ${1} \u2028"
    record = made_race()
    for lane in record.lanes:
        lane.trace.prompt = lane.title = hostile
    calm, page = standalone.html(made_race()), standalone.html(record)
    assert page.count("<script") == calm.count("<script") and page.count("</script") == calm.count("</script")
    assert page.count("data-lane-template") == calm.count("data-lane-template")
    event = page.split('id="event">', 1)[1].split("</script>", 1)[0]
    assert json.loads(event)["systems"][0]["trace"]["prompt"] == hostile


def test_the_replay_page_is_made_from_a_file(capsys, tmp_path):
    file = tmp_path / "race.json"
    file.write_text(made_race().to_json(), "utf-8")
    run(standalone.main, file)
    assert len((tmp_path / "race.html").read_text("utf-8")) == len(standalone.html(made_race()))
    assert "race.html: " in capsys.readouterr().out
    file.write_text("{}", "utf-8")
    with pytest.raises(SystemExit):
        run(standalone.main, file, "-o", tmp_path / "other.html")
    assert "missing 'lanes', 'recorded'" in capsys.readouterr().err and not (tmp_path / "other.html").exists()


def test_the_replay_page_wears_the_servers_colours():
    theme, styles = page_theme.theme(), page_files.read("replay/replay.css")
    light, dark = styles.split(".dark.gradio-container", 1)
    for name in (
        "body_background_fill",
        "body_text_color",
        "body_text_color_subdued",
        "block_background_fill",
        "border_color_primary",
    ):
        variable = f"--{name.replace('_', '-')}: "
        assert f"{variable}{getattr(theme, name)};" in light
        assert f"{variable}{getattr(theme, f'{name}_dark')};" in dark


# ---- the film


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


def test_the_film_of_a_recorded_race_is_small(tmp_path):
    gif.save(Record.from_json(RACES[0].read_text("utf-8")), tmp_path / "race.gif", width=480, seconds=1)
    assert 5_000 < (tmp_path / "race.gif").stat().st_size < 500_000


def test_the_films_verdict_is_the_races():
    words, _ = gif.verdict(made_race())
    assert words.endswith("identical: 6 of 6 tokens") and "faster" in words
    stopped = made_race("", "")
    assert gif.verdict(stopped)[0].endswith("stopped")


@pytest.mark.parametrize(("width", "seconds", "words"), [(10, 8, "width must be"), (960, 0, "seconds must be")])
def test_a_film_out_of_bounds_is_refused(width, seconds, words):
    with pytest.raises(ValueError, match=words):
        next(gif.frames(made_race(), width, seconds))


# ---- what the page asks the server


def test_the_server_answers_a_bad_file_with_a_sentence():
    good = made_race()
    assert json.loads(answers.opened(good.to_json())["event"])["end"] is True
    assert answers.replay_page(good.to_json())["html"].startswith("<!doctype html>")
    eight = Record([good.lanes[0]] * 3, "")
    for text, words in (("{", "no JSON"), (None, "no JSON"), (eight.to_json(), "3 lanes")):
        for answer in (answers.opened(text), answers.replay_page(text)):
            assert list(answer) == ["refused"] and words in answer["refused"]
    assert "no recorded race" in answers.recorded("../../etc/passwd")["refused"]
    assert json.loads(answers.recorded(RACES[0].stem)["event"])["end"] is True
    assert asdict(Record.from_json(good.to_json())) == asdict(good)
