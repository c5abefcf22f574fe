"""Values from outside: what a number and a text may be, what a refusal quotes, and the schema that tells others. No model, no page."""

import json
import subprocess
import sys

import pytest

from engine.record import schema
from engine.record.race_file import Record
from helpers.paths import ROOT
from helpers.traces import made_race, setting, spoilt

RACES = sorted((ROOT / "assets" / "races").glob("*.json"))
STEP = "lanes.1.trace.steps.0"
LONG = "a title of hardly more than one line, and yet far too long to be quoted"


@pytest.mark.parametrize(
    "field", ["lanes.0.trace.max_new_tokens", "lanes.1.trace.seed", f"{STEP}.position", f"{STEP}.tokens.2"]
)
@pytest.mark.parametrize("number", ["1e300", "2.0", "-0.0", "9007199254740993", "-9007199254740993", "1" + "0" * 400])
def test_a_whole_number_is_none_beyond_two_to_the_53_or_as_a_float(field, number):
    text = spoilt(setting(field, "NUMBER")).replace('"NUMBER"', number)
    with pytest.raises(ValueError, match=r"must be a whole number|too large a number: at most 2\^53") as refusal:
        Record.from_json(text)
    assert len(str(refusal.value)) < 120


def test_the_largest_whole_number_is_read():
    values = json.loads(made_race().to_json())
    for lane in values["lanes"]:
        lane["trace"]["seed"] = 2**53
    assert Record.from_json(json.dumps(values)).lanes[0].trace.seed == 2**53


@pytest.mark.parametrize(
    "path", ["lanes.0.guarantee", f"{STEP}.end", f"{STEP}.verdicts.1", "lanes.0.trace.seed", f"{STEP}.p", "recorded"]
)
def test_a_refusal_quotes_a_value_shortened(path):
    with pytest.raises(ValueError, match="got 'a title of hardly") as refusal:
        Record.from_json(spoilt(setting(path, LONG)))
    assert LONG not in str(refusal.value) and "…" in str(refusal.value)


def test_many_wrong_values_are_one_sentence():
    with pytest.raises(ValueError, match=r"prompt_tokens\[0\] must be a whole number, got 'x'"):
        Record.from_json(spoilt(setting("lanes.0.trace.prompt_tokens", ["x"] * 100_000)))


def test_a_file_of_this_project_is_the_same_record_unchecked():
    for path in RACES:
        assert Record.from_trusted_json(path.read_text("utf-8")) == Record.from_json(path.read_text("utf-8"))


def test_the_opening_page_waits_for_no_library():
    code = "import sys; from engine.page.views import standalone; standalone.render_opening_page(); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True, timeout=60).split()
    assert not {"pydantic", "pydantic_core", "numpy"} & set(loaded)


def test_the_published_schema_is_that_of_the_record():
    published = (ROOT / "assets" / "race-file.schema.json").read_text("utf-8")
    assert published == schema.build_race_file_json_schema(), (
        "Write what engine/record/schema.py prints into assets/race-file.schema.json."
    )


def test_what_the_schema_forbids_of_a_single_value_is_refused():
    """Every limit that the schema tells of a step's fields, broken by the smallest step."""
    of_step = json.loads(schema.build_race_file_json_schema())["$defs"]["Step"]["properties"]
    broken = 0
    for name, told in of_step.items():
        inner = told.get("items", told)
        wrong = [inner[limit] + by for limit, by in (("minimum", -1), ("maximum", 1)) if limit in inner]
        wrong += ["x" * (inner["maxLength"] + 1)] if "maxLength" in inner else []
        wrong += ["liked"] if "enum" in inner else []
        for value in wrong:
            with pytest.raises(ValueError, match=f"steps\\[0\\].{name}"):
                Record.from_json(spoilt(setting(f"{STEP}.{name}", [value] if "items" in told else value)))
            broken += 1
    assert broken > 20
