"""`python -m engine train pair`, then `medusa`, `eagle`, ...: everything in `assets/models/`, from files it is given.

The recipes stand in `pair` and `learned`.
"""

from argparse import Namespace
from pathlib import Path

from engine.lab.train.learned import train_learned
from engine.lab.train.pair import train_pair
from engine.measure.options import own_place
from engine.models.loading import checked_device
from engine.models.pairs import EMBEDDED, MODELS, short_name


def main(options: Namespace) -> None:
    if not options.data.is_dir():
        raise ValueError(
            f"There is no folder {str(options.data)!r}. Give --data the folder with the texts to train on."
        )
    options.device = str(checked_device(options.device))
    options.out = place(options)
    (train_pair if options.recipe == "pair" else train_learned)(options)


def place(options: Namespace) -> Path:
    """The folder that the recipe writes to. Raises `ValueError` where none is given and no embedded pair is trained."""
    if options.recipe == "pair":
        folders = {size: MODELS / name for name, size in EMBEDDED.items()}
        return own_place(options.out, folders.get(options.size), f"a target of {options.size} parameters")
    if options.target:
        return own_place(options.out, None, short_name(options.target))
    return own_place(
        options.out, MODELS / options.pair / "drafters" if options.pair in EMBEDDED else None, options.pair
    )
