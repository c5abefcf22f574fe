"""Prediction: three sizes of one tree to choose from before they race. Knows shapes and orders; runs nothing."""

from typing import Any

from engine.page.screens.orders import ordered
from engine.race import BASELINE
from engine.record.parsing import shown

SHAPES = {"small": "2x2x4", "medium": "4x4x8", "large": "8x6x40"}  # depth x width x nodes


def trees(drafts: bool) -> dict[str, str]:
    """The systems that race, by size: a draft model's trees where the pair has one, else those of prompt lookup."""
    system = "tree" if drafts else "lookup"
    return {size: f"{system}:{shape}" for size, shape in SHAPES.items()}


def asked(drafts: bool, order: object) -> dict[str, Any]:
    """What the page's order asks of a race. Raises `ValueError` when it does not say first which tree wins."""
    guess = ordered(order, {"guess"}, {"guess"})["guess"]
    if not isinstance(guess, str) or guess not in SHAPES:
        raise ValueError(f"Choose first which tree you think wins: {', '.join(SHAPES)}; got {shown(guess)}.")
    return {"systems": [BASELINE, *trees(drafts).values()]}
