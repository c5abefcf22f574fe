"""`python -m engine train pair`, then `medusa`, `eagle`, ...: everything in `assets/models/`, from files it is given.

The recipes stand in `pair` and `learned`.
"""

from argparse import Namespace

from engine.lab.train.learned import train_learned
from engine.lab.train.pair import train_pair
from engine.models.loading import checked_device


def main(options: Namespace) -> None:
    if not options.data.is_dir():
        raise ValueError(
            f"There is no folder {str(options.data)!r}. Give --data the folder with the texts to train on."
        )
    options.device = str(checked_device(options.device))
    (train_pair if options.recipe == "pair" else train_learned)(options)
