"""Advice: how a pair comes by a part that it has not. Knows sentences; loads nothing."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.models.pairs import Pair

DRAFT, TABLE = "draft model", "bigram table"  # what a pair has for drafters beside their nets, in words
CONSTRAINT = "constraint"  # what a drafter needs that comes with a request, and not with a pair
# Which published format each drafter reads
READS = {"eagle": "EAGLE-3", "medusa": "Medusa", "dflash": "DFlash", "dspark": "DSpark"}


def explain_how_to_obtain(part: str, pair: "Pair") -> str:
    """How the pair comes by its `DRAFT`, its `TABLE`, or the learned drafter of that name, in a sentence or two."""
    if part == DRAFT:
        return "Give one as --draft, beside --target, or choose another pair."
    if part == TABLE:
        return "Embedded pairs have one."
    listed = ", ".join(pair.published_drafters_by_format.get(READS.get(part, ""), ()))
    published = (
        f" Published for its target: {READS[part]} {listed}; give a folder with one as --drafter." if listed else ""
    )
    return f"Train one with `python -m engine train {part} {pair.training_command_options}`.{published}"
