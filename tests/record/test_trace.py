"""A trace survives JSON exactly, and a foreign one is refused with what is wrong."""

import json
from dataclasses import asdict

import pytest

from engine.race import Race, Settings
from engine.record.parsing import convert_json_value_validated
from engine.record.trace import Step, Trace
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"


def test_a_trace_survives_json_exactly():
    race = Race(tiny_pair(), Settings(TEXT, ("vanilla", "tree"), temperature=0.7, max_new_tokens=30))
    for _ in race.run():
        pass
    for lane in race.lanes:
        assert convert_json_value_validated(Trace, json.loads(json.dumps(asdict(lane.trace))), "") == lane.trace
        assert isinstance(lane.trace.steps[0], Step)


def test_a_foreign_trace_is_refused_with_what_is_wrong():
    values = asdict(Trace("s", "p", "h", "d", "x", [1], 0.0, 0, 1, 1, 2, 5))
    del values["seed"]
    with pytest.raises(ValueError, match="no Trace: missing 'seed', unknown nothing"):
        convert_json_value_validated(Trace, values, "")
    with pytest.raises(ValueError, match="must be an object, got a list"):
        convert_json_value_validated(Trace, [1, 2], "")


def test_a_trace_of_before_chat_templates_was_raw():
    values = asdict(Trace("s", "p", "h", "d", "x", [1], 0.0, 0, 1, 1, 2, 5, chat=True))
    assert convert_json_value_validated(Trace, values, "").chat is True
    with pytest.raises(ValueError, match="chat must be true or false, got 1"):
        convert_json_value_validated(Trace, values | {"chat": 1}, "")
    del values["chat"]
    assert convert_json_value_validated(Trace, values, "").chat is False
