"""The race: two lanes side by side, and its API. The guided walk, and links that set the controls, belong to its screen."""

from typing import Any

import gradio as gr

from engine.breaks import BREAKS
from engine.page.screens import answers, link
from engine.page.screens.answers import PROMPTS
from engine.page.screens.cards import LANES, MIX, TAUGHT, card, cards, menu, parts, remote_card, shape, unbroken
from engine.page.screens.orders import ordered
from engine.page.web.form import Fields, some
from engine.page.web.lending import Served
from engine.page.web.parts import by_name, call, carried, hidden, part, trigger
from engine.page.web.streams import QUIET, Runs, add_stop, api, runs
from engine.race import BASELINE, REMOTE, SHAPE, checked
from engine.systems import chain_beside, fill_budget, find, spelled


def fill(served: Served, shared: Fields, go: gr.Button, halt: gr.Button) -> None:
    def race_on_page(left, right, left_mix, right_mix, broken, untouched, third, full, **settings):
        systems: tuple[Any, ...] = (left_mix if left == MIX else left, right_mix if right == MIX else right)
        if broken:
            systems = (unbroken(broken), broken)
        whole = full and not broken and systems[1] != REMOTE and fill_budget(find(systems[1]))
        if whole:  # in the shape that the dials show
            systems = systems[0], whole
        elif spelled(settings) == untouched:  # each lane races in the best shape of its own system
            settings.update(dict.fromkeys(SHAPE))
        if third and not broken:
            systems = with_chain(served, systems, settings)
        return {"systems": systems, **settings}

    def race(
        prompt: str,
        system: str = "tree",
        depth: int | None = None,
        width: int | None = None,
        temperature: float = 0.0,
        max_new_tokens: int = 200,
        seed: int = 0,
        constraint: str = "",
        pair: str = "",
    ) -> dict[str, Any]:
        """Race a system against plain decoding. Streams JSON strings; the last one carries "end" and the result.

        Without depth and width the tree has the shape that is best on this machine. A constraint is "json:" with a JSON schema,
        "regex:" with a regular expression or "lark:" with a Lark grammar behind it. A pair is "" for the page's own, or the name of one
        that the page offers.
        """
        asked = locals()
        return {"systems": (BASELINE, asked.pop("system")), **asked}

    form = race_form(served, shared)
    race_run = runs(go, served, "race", race_on_page, form, channel="treerace")
    lanes = some(form, "left", "right")
    for lane in lanes.values():
        lane.change(None, [*lanes.values()], js=by_name("view.chosen", lanes), **QUIET)
    take_shapes(served, form)
    set_controls(form)
    api(served, "race", race)
    take_links(served, form)
    add_stop(halt, race_run | fill_walk(served, some(form, "broken", *shared)))


def with_chain(served: Served, systems: tuple[str, str], settings: dict[str, Any]) -> tuple[str, ...]:
    """The two lanes' systems, and between them the chain with as many guesses as the right one, where that branches."""
    left, right = systems
    if REMOTE in systems:
        return systems
    system, given = (
        find(right),
        {dial: int(checked(dial, settings[dial])) for dial in SHAPE if settings[dial] is not None},
    )
    shape = given if len(given) == len(SHAPE) else system.shape(served.chosen(settings.get("pair", ""))) | given
    chain = chain_beside(system, shape)
    return (left, chain, right) if chain else systems


def race_form(served: Served, shared: Fields) -> Fields:
    """The menus above the race, the race itself, and its hidden fields. Returns all fields, with those that are `shared`."""
    with gr.Row(elem_id="systems"):
        left, right = (
            gr.Dropdown(
                menu(name, served.pair.remote),
                value=name,
                label=f"System of the {side} lane",
                show_label=False,
                container=False,
                filterable=True,  # 29 systems are many: a few letters find one
            )
            for side, name in zip(link.LANES, LANES, strict=True)
        )

    def look(asked: object) -> answers.Answer:
        return answers.look(asked, served.pairs)

    systems = cards() | ({REMOTE: remote_card(served.pair.remote)} if served.pair.remote else {})
    part("race", "mountRace", {"systems": systems, "parts": parts(), "lanes": LANES}, server_functions=[look])
    return shared | {
        "left": left,
        "right": right,
        "left_mix": hidden("mix-0"),  # the system that the visitor mixed, while the menu says `MIX`
        "right_mix": hidden("mix-1"),
        "third": hidden("third-lane"),  # "chain" for a thin lane between the two
        "full": hidden("full-budget"),  # "full" where the right lane's tree is to use all nodes
        "broken": hidden(),  # a system of the walk; it races in place of the menus' two
        # The shape that the dials took with the right lane's system; "" once a visitor asks for one
        "untouched": hidden(value=spelled({dial: shared[dial].value for dial in SHAPE})),
    }


def set_controls(form: Fields) -> None:
    """Lets the page's scripts set what a race has: the lab, a card, the walk."""
    given = {name: each for name, each in form.items() if name not in ("left_mix", "right_mix")}
    components = [*given.values()]
    trigger("race-set").click(None, components, components, js=by_name("controls.take", given), **QUIET).then(
        None, js=call("controls.settled"), **QUIET
    )


def take_shapes(served: Served, form: Fields) -> None:
    """Sets the dials to the shape of the right lane's system on the visitor's pair, whenever one of these changes.

    Dials that the visitor has set himself stay.
    """
    dials, pair = some(form, *SHAPE, "untouched"), carried()

    def take(right, right_mix, pair, untouched, **shown):
        found = shape(right_mix if right == MIX else right, served.pairs, pair)
        if not found or spelled(shown) != untouched:
            return gr.skip()
        return {dials[name]: value for name, value in {**found, "untouched": spelled(found)}.items()}

    shown, quick = some(form, "right", "right_mix") | {"pair": pair} | dials, {"trigger_mode": "always_last", **QUIET}
    for event, name in (
        (form["right"].input, "pairs.asked"),
        (form["right_mix"].change, "view.mixed"),  # a mix from a link comes with its shape
        (trigger("take-shape").click, "pairs.asked"),
    ):
        event(take, inputs_kwargs=shown, outputs=[*dials.values()], js=by_name(name, shown), **quick)


def take_links(served: Served, form: Fields) -> None:
    """The form takes its values from a link, or from an opened race. Wrong values are reported and leave their fields as they are."""
    refusals = hidden()

    def restore(query):
        given, refused = link.read(query, served.pair, served.pairs)
        for side in link.LANES:
            if "/" in given.get(side, ""):
                given |= {f"{side}_mix": given[side], side: MIX}
        return {refusals: " ".join(refused), **{form[name]: value for name, value in given.items()}}

    asked: Fields = {"query": carried()}
    trigger("take-link").click(
        restore, inputs_kwargs=asked, outputs=[*form.values(), refusals], js=by_name("take.asked", asked), **QUIET
    ).then(None, refusals, js=by_name("take.told", {"refusals": refusals}), **QUIET)


def fill_walk(served: Served, fields: Fields) -> Runs:
    """The guided walk beside the race: it measures how far a deliberately broken system is off, and its curves anew.

    Returns what the race's Stop ends too.
    """

    def curve_on_page(order, pair, **_):
        return ordered(order, {"curve"}, {"curve"}) | {"pair": pair}

    def distances(**asked):
        return asked

    broken = {name: {right: card(find(f"{right}!{name}")) for right in TAUGHT} for name in BREAKS}
    breaks = {name: {**each.to_dict(), "cards": broken[name]} for name, each in BREAKS.items()}
    value = {"prompt": PROMPTS["stories"][0]["prompt"], "breaks": breaks, "taught": TAUGHT}
    part("walk", "mountWalk", value, server_functions=[answers.curve])
    curves = runs(trigger("walk-curve"), served, "curve", curve_on_page, {"order": carried()}, channel="treecurve")
    return curves | runs(trigger("walk-measure"), served, "distance", distances, fields, channel="treebreak")
