"""The recorded races: they are what the command would record, and small."""

from datetime import date

import pytest

from engine.lab import record_races
from engine.record.race_file import Record
from engine.systems import resolve_system_name
from helpers.commands import run
from helpers.paths import ROOT

RACES = sorted((ROOT / "assets" / "races").glob("*.json"))


def test_the_recorded_races_are_the_commands_and_small():
    assert [path.stem for path in RACES] == sorted(record_races.RECORDED)
    for path in RACES:
        record = Record.from_json(path.read_text("utf-8"))
        result = record.result()
        assert path.stat().st_size < 300_000
        assert result["identical"] is True and result["finished"] and result["lanes"][0]["tokens"] > 90
        assert record.recorded and all(lane.trace.hardware for lane in record.lanes)


def test_the_recorded_races_are_what_the_command_would_record():
    for path, recorded in zip(RACES, record_races.RECORDED.values(), strict=True):
        expected = record_races.race_settings_of_example(*recorded)
        lanes = Record.from_json(path.read_text("utf-8")).lanes
        assert tuple(lane.trace.system for lane in lanes) == expected.systems
        for lane in lanes:
            for name in ("prompt", "temperature", "seed", "max_new_tokens"):
                assert getattr(lane.trace, name) == getattr(expected, name)
            assert lane.title == resolve_system_name(lane.trace.system).title


def test_the_command_records_a_race(capsys, monkeypatch, tmp_path, embedded):
    monkeypatch.setattr(record_races, "load_pair_of_options", lambda options, pair: embedded)
    out = tmp_path / "new" / "race.json"
    run("record", "--prompt", "Story: A fox", "--system", "lookup", "--tokens", 12, "--out", out)
    record = Record.from_json(out.read_text("utf-8"))
    assert record.recorded == date.today().isoformat()
    assert [lane.trace.system for lane in record.lanes] == ["vanilla", "lookup"]
    assert len(record.lanes[0].trace.tokens) == 12 and "identical" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run("record", "--prompt", "Story: A fox", "--system", "warp")
    assert "Unknown system 'warp'" in capsys.readouterr().err


def test_a_disturbed_race_is_told_of_in_a_sentence_of_its_own(monkeypatch, tmp_path):
    record = Record.from_json(RACES[0].read_text("utf-8"))
    monkeypatch.setattr(Record, "result", lambda self, own=Record.result: {**own(self), "disturbed": "Ratios vary."})
    assert record_races.write_race_file_and_summarise(tmp_path / "race.json", record).endswith(" kB. Ratios vary.")
