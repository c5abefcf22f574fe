"""What the page asks the server about a race file."""

import json
from dataclasses import asdict

from engine.page.screens import answers, race_files
from engine.record.race_file import Record
from helpers.paths import ROOT
from helpers.traces import made_race

RACES = sorted((ROOT / "assets" / "races").glob("*.json"))


def test_the_server_answers_a_bad_file_with_a_sentence(monkeypatch):
    monkeypatch.setattr(race_files, "LONGEST_REST", 0.0)
    good = made_race()
    assert json.loads(race_files.convert_race_file_in_subprocess("opened", good.to_json())["event"])["end"] is True
    assert race_files.convert_race_file_in_subprocess("replay_page", good.to_json())["html"].startswith(
        "<!doctype html>"
    )
    four = Record([good.lanes[0]] * 4, "")
    for text, words in (("{", "no JSON"), (None, "must be a text, got null"), (four.to_json(), "4 lanes")):
        for answer in (
            race_files.convert_race_file_in_subprocess("opened", text),
            race_files.convert_race_file_in_subprocess("replay_page", text),
        ):
            assert list(answer) == ["refused"] and words in answer["refused"]
    assert "no recorded race" in answers.serialise_recorded_race("../../etc/passwd")["refused"]
    assert json.loads(answers.serialise_recorded_race(RACES[0].stem)["event"])["end"] is True
    assert asdict(Record.from_json(good.to_json())) == asdict(good)
