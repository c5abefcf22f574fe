"""`python -m engine train pair`, then `medusa`, `eagle`, ...: everything in `assets/models/`, from files it is given.

`python -m engine train eagle --prompts my.jsonl --start FOLDER --out FOLDER` trains a learned drafter on for your own prompts. The
target writes on from them, and the drafter learns from that. A quarter of the prompts is held out: on it the drafter races before and
after. Only a better one is written. A run that was cut off resumes.

The recipes stand in `pair`, `learned` and `own_prompts`.
"""

from argparse import Namespace
from pathlib import Path

from engine.lab.train.learned import train_learned
from engine.lab.train.own_prompts import train_on_prompts
from engine.lab.train.pair import train_draft, train_pair
from engine.measure.options import own_place
from engine.models.loading import TRAINED_ON, checked_device
from engine.models.pairs import EMBEDDED, MODELS, short_name


def main(options: Namespace) -> dict | None:
    """The figures of a drafter that was trained on own prompts; None for the other recipes, which print theirs."""
    if getattr(options, "prompts", None):
        options.device = str(checked_device(options.device))
        return train_on_prompts(options)
    if options.data is not None and not options.data.is_dir():
        raise ValueError(
            f"There is no folder {str(options.data)!r}. Give --data the folder with the texts to train on."
        )
    options.device = str(checked_device(options.device, TRAINED_ON))
    options.out = place(options)
    {"pair": train_pair, "draft": train_draft}.get(options.recipe, train_learned)(options)
    return None


def place(options: Namespace) -> Path:
    """The folder that the recipe writes to. Raises `ValueError` where none is given and no embedded pair is trained."""
    if options.recipe == "pair":
        folders = {size: MODELS / name for name, size in EMBEDDED.items()}
        return own_place(options.out, folders.get(options.size), f"a target of {options.size} parameters")
    if options.recipe == "draft":
        return own_place(options.out, MODELS / options.pair / "draft", options.pair)
    if options.target:
        return own_place(options.out, None, short_name(options.target))
    return own_place(
        options.out, MODELS / options.pair / "drafters" if options.pair in EMBEDDED else None, options.pair
    )
