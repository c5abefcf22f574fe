"""The grand prix: up to eight systems on one prompt, and its API."""

from typing import Any

from engine.page.screens.answers import load_recorded_run
from engine.page.screens.cards import FIELDS, PROMISES, STAND_INS, build_menu_label, describe_all_systems
from engine.page.web.form import Fields
from engine.page.web.lending import ServedPairs
from engine.page.web.parts import build_scripted_html_part
from engine.race import BASELINE, FIELD
from engine.systems import SYSTEMS


def build_grand_prix_screen(served: ServedPairs, form: Fields) -> Fields:
    about = {name: {**each, "label": build_menu_label(SYSTEMS[name])} for name, each in describe_all_systems().items()}
    limits = {"baseline": BASELINE, "least": FIELD[0], "most": FIELD[1]}
    value = {"systems": about, "promises": PROMISES, "presets": FIELDS, "standIns": STAND_INS, **limits}
    build_scripted_html_part("prix", "prixView.mountPrix", value, server_functions=[load_recorded_run])
    return form


def collect_grand_prix_request_values(
    prompt: str,
    systems: list[str],
    temperature: float = 0.0,
    max_new_tokens: int = 200,
    seed: int = 0,
    pair: str = "",
) -> dict[str, Any]:
    """Race up to eight systems, plain decoding first. Streams JSON strings; the last one carries "end" and the figures.

    A pair is as in /race.
    """
    return locals()
