"""The form that the page opens with."""

from engine.page.screens import answers, cards
from engine.page.web import form
from engine.record.race_file import Record
from helpers.paths import ROOT

RACES = sorted((ROOT / "assets" / "races").glob("*.json"))


def test_the_page_opens_with_what_its_form_begins_with():
    first = Record.from_json(RACES[0].read_text("utf-8")).lanes
    assert (first[0].trace.system, first[-1].trace.system) == cards.LANES
    assert first[0].trace.prompt == form.build_prompt_box(is_chat=False).value
    dials = {
        name: dial.value
        for name, dial in form.build_shape_sampling_and_constraint_dials(**answers.OPENING_SHAPE).items()
    }
    assert {name: getattr(first[-1].trace, name) for name in dials} == dials
