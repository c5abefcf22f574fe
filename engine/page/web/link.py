"""The form takes its values from a link, or from an opened race. Wrong values are reported and leave their fields as they are."""

from engine.page.screens.cards import MIX
from engine.page.screens.link import LANES, read
from engine.page.web.form import Fields, Form
from engine.page.web.lending import Served
from engine.page.web.parts import by_name, carried, hidden, trigger
from engine.page.web.streams import QUIET


def fill(served: Served, form: Form) -> None:
    fields = form.fields()
    refusals = hidden()

    def restore(query):
        given, refused = read(query, served.pair, served.pairs)
        for side in LANES:
            if "/" in given.get(side, ""):
                given |= {f"{side}_mix": given[side], side: MIX}
        return {refusals: " ".join(refused), **{fields[name]: value for name, value in given.items()}}

    asked: Fields = {"query": carried()}
    trigger("take-link").click(
        restore,
        inputs_kwargs=asked,
        outputs=[*fields.values(), refusals],
        js=by_name("take.asked", asked),
        **QUIET,
    ).then(None, refusals, js=by_name("take.told", {"refusals": refusals}), **QUIET)
