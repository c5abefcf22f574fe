"""Sent values: what a visitor sent, before anything else reads it. Whatever has another form is a `ValueError` with a sentence."""

from typing import Any

from engine.record.parsing import expect, parse, shown

LONGEST_ORDER = 7_000_000  # bytes: prompts of 1 MB, of which JSON may write every character with six


def ordered(value: object, needed: set[str], known: set[str]) -> dict[str, Any]:
    """What a page's script ordered as a JSON object: it has all names that are `needed`, and none that is not `known`."""
    found = expect(dict, parse(expect(str, value, "The order"), LONGEST_ORDER, "The order"), "The order")
    if wrong := [*sorted(needed - found.keys()), *sorted(found.keys() - known)]:
        raise ValueError(f"The order must name {', '.join(sorted(needed))}; {shown(wrong[0])} is wrong in it.")
    return found
