"""The lab: sweeps, own prompts, whether guessing pays, and their APIs."""

from typing import Any

from engine.measure.curves.sweep import SweepPlan
from engine.page.screens import own_prompts
from engine.page.screens.answers import load_recorded_run, parse_prompts_of_upload
from engine.page.screens.cards import describe_all_systems
from engine.page.screens.pays import ALLOWED
from engine.page.web.form import Fields
from engine.page.web.lending import ServedPairs
from engine.page.web.parts import build_scripted_html_part


def build_lab_screen(served: ServedPairs, form: Fields) -> Fields:
    about = {"systems": describe_all_systems(), "allowed": own_prompts.ALLOWED, "pays": ALLOWED}
    build_scripted_html_part(
        "lab", "labViews.mountLab", about, server_functions=[parse_prompts_of_upload, load_recorded_run]
    )
    return form


def collect_sweep_request_values(
    prompts: list[str],
    system: str = SweepPlan.system,
    grid: str = SweepPlan.grid,
    # The annotations say list, because Gradio reads them and callers of the API send lists.
    depth: list[int] = SweepPlan.depth,  # type: ignore[assignment]
    width: list[int] = SweepPlan.width,  # type: ignore[assignment]
    nodes: list[int] = SweepPlan.nodes,  # type: ignore[assignment]
    temperature: list[float] = SweepPlan.temperature,  # type: ignore[assignment]
    max_new_tokens: int = SweepPlan.max_new_tokens,
    seed: int = SweepPlan.seed,
    pair: str = "",
) -> dict[str, Any]:
    """Race every cell of a grid against plain decoding: "shape" varies depth and width, "budget" nodes and temperature.

    Streams JSON strings, one with "cell" for each; the last one carries "end", all "cells" and the "summary". A pair is
    as in /race.
    """
    return locals()


def collect_prompt_file_request_values(
    text: str,
    name: str = "prompts.txt",
    system: str = "tree",
    temperature: float = 0.0,
    max_new_tokens: int = 200,
    seed: int = 0,
    pair: str = "",
) -> dict[str, Any]:
    """Race a system against plain decoding on every prompt of a file: text with blank lines between prompts, or .jsonl.

    Streams JSON strings, one for every prompt, with its "row" and the "summary" so far; the last one carries "end". A pair is as in
    /race.
    """
    asked = locals()
    return {"prompts": own_prompts.parse_prompt_file(asked.pop("name"), asked.pop("text")), **asked}


def collect_pays_request_values(
    text: str,
    name: str = "prompts.txt",
    systems: list[str] = (),  # type: ignore[assignment]
    temperature: float = 0.0,
    max_new_tokens: int = 64,
    seed: int = 0,
    constraint: str = "",
    pair: str = "",
    acceptance: float = 0.0,
) -> dict[str, Any]:
    """Does guessing pay for these prompts? Races the systems, or every one that the pair allows, as `python -m engine pays` does.

    Streams JSON strings that say how far it is; the last one carries "end", the "verdict" and every figure. A constraint and a pair
    are as in /race. With an acceptance length such as 3.0 it also estimates what every best setting would give with so many tokens
    a round.
    """
    asked = locals()
    return {"prompts": own_prompts.parse_prompt_file(asked.pop("name"), asked.pop("text")), **asked}
