"""The lab: sweeps, own prompts, whether guessing pays, and APIs. Start runs the shown view."""

import dataclasses
from typing import Any

import gradio as gr

from engine.measure.curves.sweep import SweepPlan
from engine.page.screens import own_prompts
from engine.page.screens.answers import example, read_prompts
from engine.page.screens.cards import describe_all_systems
from engine.page.screens.orders import parse_order
from engine.page.screens.pays import ALLOWED
from engine.page.web.form import Fields, select_fields
from engine.page.web.lending import ServedPairs
from engine.page.web.parts import build_hidden_button, build_page_part, build_script_call, find_or_build_script_field
from engine.page.web.streams import QUIET, Runs, Values, add_api_endpoint, connect_run_button, connect_stop_button

# What an order of a view may hold
PLANNED = {each.name for each in dataclasses.fields(SweepPlan)}
OF_PROMPTS, OF_PAYS = {"prompts", "system"}, {"prompts", "systems", "max_new_tokens"}


def build_lab(served: ServedPairs, form: Fields, start_button: gr.Button, stop_button: gr.Button) -> None:
    about = {"systems": describe_all_systems(), "allowed": own_prompts.ALLOWED, "pays": ALLOWED}
    build_page_part("lab", "mountLab", about, server_functions=[read_prompts, example])
    start_button.click(None, js=build_script_call("lab.start"), **QUIET)

    def sweep_on_page(order, pair, **_):
        return parse_order(order, {"prompts"}, PLANNED) | {"pair": pair}

    def prompts_on_page(order, **dialled):
        return parse_order(order, OF_PROMPTS, OF_PROMPTS) | dialled

    def pays_on_page(order, **dialled):
        return parse_order(order, OF_PAYS, OF_PAYS) | dialled

    def view(start: str, kind: str, values: Values, channel: str, *names: str) -> Runs:
        """The run of a view. The page's script orders it, from its own menus and the form; the fields of those names come beside."""
        fields = {"order": find_or_build_script_field()} | select_fields(form, *names)
        return connect_run_button(build_hidden_button(start), served, kind, values, fields, channel)

    lab_runs = view("sweep-start", "sweep", sweep_on_page, "treelab", "prompt", "temperature", "seed")
    lab_runs |= view(
        "prompts-start", "prompts", prompts_on_page, "treeprompts", "temperature", "max_new_tokens", "seed"
    )
    lab_runs |= view("pays-start", "pays", pays_on_page, "treepays", "temperature", "seed", "constraint")
    connect_stop_button(stop_button, lab_runs)
    add_api_endpoint(served, "sweep", sweep)
    add_api_endpoint(served, "prompts", prompts)
    add_api_endpoint(served, "pays", pays)


def sweep(
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


def prompts(
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
    return {"prompts": own_prompts.read_prompt_file(asked.pop("name"), asked.pop("text")), **asked}


def pays(
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
    return {"prompts": own_prompts.read_prompt_file(asked.pop("name"), asked.pop("text")), **asked}
