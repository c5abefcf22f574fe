"""Link: a race in an address, `?prompt=...&left=vanilla&right=tree&depth=4&width=4&nodes=8&temperature=0&tokens=200&seed=0`.

A constraint may follow, as `&constraint=regex:...`, and one of the pairs that the page offers, as `&pair=small`. Knows what a race may
be set to, and what of it the page's form can show; knows no component.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from engine.models.pairs import LoadedPair
from engine.page.screens.cards import choose_shape_shown_by_dials, find_pair_by_name_or_first, is_shape_unmeasured
from engine.race import LIMITS, REMOTE, SHAPE, Settings, validate_setting
from engine.record.constraint import validate_constraint
from engine.record.parsing import format_value_for_error
from engine.systems import SYSTEMS, format_shape, resolve_system_name

LONGEST, MOST_PARTS = 200_000, 100  # a prompt of 20,000 characters, of which a link writes each with nine
HOTTEST = 2.0  # the largest temperature that the page's dial shows
LANES = ("left", "right")
NUMBERS = {"tokens": "max_new_tokens", **{name: name for name in LIMITS if name != "max_new_tokens"}}


def parse_link_to_form_values_and_refusals(
    link_query: object, pair: LoadedPair, offered_pairs: Sequence[LoadedPair] = ()
) -> tuple[dict[str, Any], list[str]]:
    """What the link sets, by the names of `Settings` and the lanes' sides; and a sentence for every value that is refused.

    Where the link names a right lane and leaves out a dial of its shape, that system sets the dial. `untouched` is that shape where the
    link asks for no other, and "" where it does. Only a pair with a remote server has that lane. `offered_pairs` are the page's
    pairs, whose
    switch takes the link's one by itself; shapes are then those that are best for it.
    """
    given: dict[str, Any] = {}
    refused: list[str] = []
    if not isinstance(link_query, str):
        return {}, [f"The link must be a text, got {format_value_for_error(link_query)}."]
    if len(link_query) > LONGEST:
        return {}, [f"The link has {len(link_query):,} characters; at most {LONGEST:,} are read."]
    try:
        pairs = parse_qsl(link_query.removeprefix("?"), keep_blank_values=True, max_num_fields=MOST_PARTS)
    except ValueError:
        return {}, ["The link has too many parts to be one of a race."]
    for name, value in dict(pairs).items():  # of a part that is there twice, the last one counts
        try:
            if name == "prompt":
                given[name] = Settings(value).prompt
            elif name == "constraint":
                given[name] = validate_constraint(value)
            elif name == "pair":
                pair = find_pair_by_name_or_first(offered_pairs, value)
            elif name in LANES:
                given[name] = value if pair.remote and value == REMOTE else validate_menu_system(value)
            elif name in NUMBERS:
                given[NUMBERS[name]] = parse_dial(NUMBERS[name], value)
        except ValueError as error:
            refused.append(str(error))
    for side in LANES:
        if given.get(side, REMOTE) != REMOTE and (
            lack := resolve_system_name(given[side]).find_missing_requirement(pair)
        ):
            refused.append(lack.refusal)
            del given[side]
    asked, own = given.keys() & {*SHAPE}, choose_shape_shown_by_dials(given.get("right"), [pair])
    as_own = own == own | {dial: given[dial] for dial in asked}
    if own and (not asked or (as_own and not is_shape_unmeasured(resolve_system_name(given["right"]), pair))):
        given["untouched"] = format_shape(own)
    elif asked:
        given["untouched"] = ""
    return own | given, refused


def validate_menu_system(system_name: str) -> str:
    """The name, when the page's menus have it: a system or a sound mix. Raises `ValueError` otherwise."""
    found = resolve_system_name(system_name)
    if system_name in SYSTEMS or system_name == "/".join((found.drafter, found.policy, found.acceptance)):
        return system_name
    raise ValueError(
        f"The menus have no system {format_value_for_error(system_name)}. Choose it without what follows its name, and set the dials."
    )


def parse_dial(dial_name: str, value_text: str) -> int | float:
    try:
        given: object = (
            int(value_text)
            if value_text.strip().lstrip("-").isdecimal() and len(value_text) < 20
            else float(value_text)
        )
    except ValueError:
        given = value_text
    number = validate_setting(dial_name, given)
    if dial_name == "temperature" and number > HOTTEST:
        raise ValueError(f"Temperature must be between 0 and {HOTTEST:g} on the page, got {number:g}.")
    return number
