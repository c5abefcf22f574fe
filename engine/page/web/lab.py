"""The lab: sweeps, own prompts, whether guessing pays, predictions, a setting for production, and APIs. Start runs the shown view."""

import dataclasses
from typing import Any

import gradio as gr

from engine.page.screens import own_prompts
from engine.page.screens.answers import PROMPTS, production, read_pays, read_prompts
from engine.page.screens.cards import cards
from engine.page.screens.orders import ordered, predicted, trees
from engine.page.screens.pays import ALLOWED
from engine.page.screens.sweep import Plan
from engine.page.web.form import Form
from engine.page.web.lending import Served
from engine.page.web.parts import call, carried, part, trigger
from engine.page.web.streams import QUIET, api, runs

PLANNED = {each.name for each in dataclasses.fields(Plan)}  # what an order of a sweep may hold
ASKED = {"prompts", "system"}  # what an order of own prompts holds


def fill(served: Served, form: Form, go: gr.Button, halt: gr.Button) -> None:
    about = {
        "systems": cards(),
        "prompts": PROMPTS,
        "allowed": own_prompts.ALLOWED,
        "pays": ALLOWED,
        "trees": trees(served.drafts),
    }
    part("lab", "mountLab", about, server_functions=[read_prompts, read_pays, production])
    go.click(None, js=call("lab.start"), **QUIET)
    fill_sweep(served, form, halt)
    fill_own_prompts(served, form, halt)
    fill_pays(served, form, halt)
    fill_prediction(served, form, halt)


def fill_sweep(served: Served, form: Form, halt: gr.Button) -> None:
    def sweep_on_page(order, pair, **_):
        return ordered(order, {"prompts"}, PLANNED) | {"pair": pair}

    def sweep(
        prompts: list[str],
        system: str = Plan.system,
        grid: str = Plan.grid,
        # The annotations say list, because Gradio reads them and callers of the API send lists.
        depth: list[int] = Plan.depth,  # type: ignore[assignment]
        width: list[int] = Plan.width,  # type: ignore[assignment]
        nodes: list[int] = Plan.nodes,  # type: ignore[assignment]
        temperature: list[float] = Plan.temperature,  # type: ignore[assignment]
        max_new_tokens: int = Plan.max_new_tokens,
        seed: int = Plan.seed,
        pair: str = "",
    ) -> dict[str, Any]:
        """Race every cell of a grid against plain decoding: "shape" varies depth and width, "budget" nodes and temperature.

        Streams JSON strings, one with "cell" for each; the last one carries "end", all "cells" and the "summary". A pair is
        as in /race.
        """
        return locals()

    begin = trigger("sweep-start")
    order = {"order": carried()}  # the page's script fills it from its own menus and the form
    runs(begin, halt, served, "sweep", sweep_on_page, order | form.fields("prompt", "temperature", "seed"), "treelab")
    api(served, "sweep", sweep)


def fill_own_prompts(served: Served, form: Form, halt: gr.Button) -> None:
    def prompts_on_page(order, **dialled):
        return ordered(order, ASKED, ASKED) | dialled

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
        return {"prompts": own_prompts.read(asked.pop("name"), asked.pop("text")), **asked}

    begin = trigger("prompts-start")
    fields = {"order": carried()} | form.fields("temperature", "max_new_tokens", "seed")
    runs(begin, halt, served, "prompts", prompts_on_page, fields, "treeprompts")
    api(served, "prompts", prompts)


def fill_pays(served: Served, form: Form, halt: gr.Button) -> None:
    def pays_on_page(order, **dialled):
        given = {"prompts", "systems", "max_new_tokens"}
        return ordered(order, given, given) | dialled

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
        return {"prompts": own_prompts.read(asked.pop("name"), asked.pop("text")), **asked}

    begin = trigger("pays-start")
    fields = {"order": carried()} | form.fields("temperature", "seed", "constraint")
    runs(begin, halt, served, "pays", pays_on_page, fields, "treepays")
    api(served, "pays", pays)


def fill_prediction(served: Served, form: Form, halt: gr.Button) -> None:
    def prediction_on_page(order, **dialled):
        return predicted(served.drafts, order) | dialled

    begin = trigger("predict-start")
    fields = {"order": carried()} | form.fields("prompt", "temperature", "max_new_tokens", "seed")
    runs(begin, halt, served, "prix", prediction_on_page, fields, "treepredict")
