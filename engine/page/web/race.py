"""The race: two lanes side by side, and its API. The guided walk, and links that set the controls, belong to its screen."""

from typing import Any

import gradio as gr

from engine.breaks import BREAKS
from engine.page.screens import answers, link
from engine.page.screens.cards import (
    MIX,
    TAUGHT,
    build_system_menu,
    choose_shape_shown_by_dials,
    describe_all_systems,
    describe_parts,
    describe_remote_lane,
    describe_system,
)
from engine.page.web.form import Fields, select_fields_by_name
from engine.page.web.lending import ServedPairs
from engine.page.web.parts import (
    build_hidden_button,
    build_hidden_field,
    build_javascript_call,
    build_script_call_with_fields,
    build_scripted_html_part,
    find_or_build_script_field,
)
from engine.page.web.streams import QUIET
from engine.race import BASELINE, REMOTE, SHAPE
from engine.systems import format_shape, resolve_system_name


def build_race_screen(served: ServedPairs, shared_fields: Fields) -> Fields:
    form = build_race_form(served, shared_fields)
    lanes = select_fields_by_name(form, "left", "right")
    for lane in lanes.values():
        lane.change(None, [*lanes.values()], js=build_script_call_with_fields("view.chosen", lanes), **QUIET)
    connect_dials_to_right_lane_system(served, form)
    let_scripts_set_form_fields(form)
    fill_form_from_link_on_click(served, form)
    build_guided_walk_part()
    return form


def collect_race_request_values(
    prompt: str,
    system: str = "tree",
    depth: int | None = None,
    width: int | None = None,
    temperature: float = 0.0,
    max_new_tokens: int = 200,
    seed: int = 0,
    constraint: str = "",
    pair: str = "",
    turns: tuple[tuple[str, str], ...] = (),
) -> dict[str, Any]:
    """Race a system against plain decoding. Streams JSON strings; the last one carries "end" and the result.

    Without depth and width the tree has the shape that is best on this machine. A constraint is "json:" with a JSON schema,
    "regex:" with a regular expression or "lark:" with a Lark grammar behind it. A pair is "" for the page's own, or the name of one
    that the page offers. Turns are those of a chat before the prompt, each a list of a request and the answer to it.
    """
    values = locals()
    return {"systems": [BASELINE, values.pop("system")], **values}


def build_race_form(served: ServedPairs, shared_fields: Fields) -> Fields:
    """The menus above the race, the race itself, and its hidden fields. Returns all fields, with those that are `shared_fields`."""
    with gr.Row(elem_id="systems"):
        left, right = (
            gr.Dropdown(
                build_system_menu(name, served.pair.remote),
                value=name,
                label=f"System of the {side} lane",
                show_label=False,
                container=False,
                filterable=True,  # 29 systems are many: a few letters find one
            )
            for side, name in zip(link.LANES, served.initial_lane_systems, strict=True)
        )

    def look(asked: object) -> answers.ValuesOrRefusal:
        return answers.describe_system_card(asked, served.pairs)

    systems = describe_all_systems() | (
        {REMOTE: describe_remote_lane(served.pair.remote)} if served.pair.remote else {}
    )
    begun = {dial: shared_fields[dial].value for dial in SHAPE}
    build_scripted_html_part(
        "race",
        "raceView.mountRace",
        {"systems": systems, "parts": describe_parts(), "lanes": served.initial_lane_systems},
        server_functions=[look],
    )
    return shared_fields | {
        "left": left,
        "right": right,
        "left_mix": build_hidden_field("mix-0"),  # the system that the visitor mixed, while the menu says `MIX`
        "right_mix": build_hidden_field("mix-1"),
        "broken": build_hidden_field(),  # a system of the walk; it races in place of the menus' two
        # The shape that the dials took with the right lane's system; "" where a visitor asks for one, or the opening race has one
        "untouched": build_hidden_field(
            "untouched", value="" if begun == answers.OPENING_SHAPE else format_shape(begun)
        ),
    }


def let_scripts_set_form_fields(form: Fields) -> None:
    """Lets the page's scripts set what a race has: the lab, a card, the walk."""
    given = {name: each for name, each in form.items() if name not in ("left_mix", "right_mix")}
    components = [*given.values()]
    build_hidden_button("race-set").click(
        None, components, components, js=build_script_call_with_fields("controls.take", given), **QUIET
    ).then(None, js=build_javascript_call("controls.settled"), **QUIET)


def connect_dials_to_right_lane_system(served: ServedPairs, form: Fields) -> None:
    """Updates the dials to the right lane's shape whenever its system or the pair changes.

    Dials that the visitor has set himself stay; those of the opening race do not.
    """
    dials, pair = select_fields_by_name(form, *SHAPE, "untouched"), find_or_build_script_field()

    def take(right, right_mix, pair, untouched, **shown):
        found = choose_shape_shown_by_dials(right_mix if right == MIX else right, served.pairs, pair)
        if not found or format_shape(shown) not in (untouched, format_shape(answers.OPENING_SHAPE)):
            return gr.skip()
        return {dials[name]: value for name, value in {**found, "untouched": format_shape(found)}.items()}

    shown, quick = (
        select_fields_by_name(form, "right", "right_mix") | {"pair": pair} | dials,
        {"trigger_mode": "always_last", **QUIET},
    )
    for event, name in (
        (form["right"].input, "pairs.asked"),
        (form["right_mix"].change, "view.mixed"),  # a mix from a link comes with its shape
        (build_hidden_button("take-shape").click, "pairs.asked"),
    ):
        event(
            take, inputs_kwargs=shown, outputs=[*dials.values()], js=build_script_call_with_fields(name, shown), **quick
        )


def fill_form_from_link_on_click(served: ServedPairs, form: Fields) -> None:
    """The form takes its values from a link, or from an opened race. Wrong values are reported and leave their fields as they are."""
    refusals = build_hidden_field()

    def restore(query):
        given, refused = link.parse_link_to_form_values_and_refusals(query, served.pair, served.pairs)
        for side in link.LANES:
            if "/" in given.get(side, ""):
                given |= {f"{side}_mix": given[side], side: MIX}
        return {refusals: " ".join(refused), **{form[name]: value for name, value in given.items()}}

    asked: Fields = {"query": find_or_build_script_field()}
    build_hidden_button("take-link").click(
        restore,
        inputs_kwargs=asked,
        outputs=[*form.values(), refusals],
        js=build_script_call_with_fields("take.asked", asked),
        **QUIET,
    ).then(None, refusals, js=build_script_call_with_fields("take.told", {"refusals": refusals}), **QUIET)


def build_guided_walk_part() -> None:
    """The guided walk beside the race: a script measures how far a deliberately broken system is off, and its curves anew."""
    broken = {
        name: {right: describe_system(resolve_system_name(f"{right}!{name}")) for right in TAUGHT} for name in BREAKS
    }
    breaks = {name: {**each.to_dict(), "cards": broken[name]} for name, each in BREAKS.items()}
    build_scripted_html_part(
        "walk",
        "walkView.mountWalk",
        {"breaks": breaks, "taught": TAUGHT},
        server_functions=[answers.load_recorded_curve],
    )
