"""`python -m engine train pair`, then `medusa`, `eagle`, ...: everything in `assets/models/`, from files it is given.

`python -m engine train eagle --target FOLDER` makes a first drafter for any target, which writes the requests and answers itself.
With `--prompts my.jsonl` requests are your own prompts. With `--start FOLDER` too, a drafter that is there is trained on: a quarter of
the prompts is held out, on it the drafter races before and after, and only a better one is written. A run that was cut off resumes.

The recipes stand in `pair`, `learned` and `own_prompts`.
"""

from argparse import Namespace
from pathlib import Path

from engine.lab.train.learned import train_learned_drafter
from engine.lab.train.own_prompts import continue_training_and_save_if_better, train_new_drafter_and_measure_tau
from engine.lab.train.pair import train_draft, train_tokenizer_target_draft_and_bigram
from engine.measure.options import ASSETS, output_path_or_shipped
from engine.models.loading import TRAINED_ON, validate_or_choose_device
from engine.models.pairs import EMBEDDED, MODELS, short_name_of

DRAFTERS = Path("drafters")  # where first drafters are written, by target


def main(options: Namespace) -> dict | None:
    """The figures of a drafter on own prompts; None for the other recipes, which print theirs."""
    learned = options.recipe not in ("pair", "draft")
    if learned and options.prompts and options.start:
        options.device = str(validate_or_choose_device(options.device))
        return continue_training_and_save_if_better(options)
    if options.data is not None and not options.data.is_dir():
        raise ValueError(
            f"There is no folder {str(options.data)!r}. Give --data the folder with the texts to train on."
        )
    options.device = str(validate_or_choose_device(options.device, TRAINED_ON))
    if learned:
        options.curve = shipped_curve_file_of(options)
    options.out = output_folder_of(options)
    if learned and options.prompts:
        return train_new_drafter_and_measure_tau(options)
    {"pair": train_tokenizer_target_draft_and_bigram, "draft": train_draft}.get(options.recipe, train_learned_drafter)(
        options
    )
    return None


def output_folder_of(options: Namespace) -> Path:
    """The folder that the recipe writes to. Raises `ValueError` where none is given for a pair that the repository does not ship."""
    if options.recipe == "pair":
        folders = {size: MODELS / name for name, size in EMBEDDED.items()}
        return output_path_or_shipped(options.out, folders.get(options.size), f"a target of {options.size} parameters")
    if options.recipe == "draft":
        return output_path_or_shipped(options.out, MODELS / options.pair / "draft", options.pair)
    if options.target:
        return options.out or DRAFTERS / short_name_of(options.target)
    return options.out or (MODELS / options.pair / "drafters" if is_shipped_pair(options) else DRAFTERS / options.pair)


def shipped_curve_file_of(options: Namespace) -> Path | None:
    """The file of the training curve: among the repository's for a drafter that it ships, else None, for the drafter's own folder."""
    if options.out or options.target or not is_shipped_pair(options):
        return None
    return ASSETS / "results" / "training" / options.pair / f"{options.recipe}.jsonl"


def is_shipped_pair(options: Namespace) -> bool:
    """Whether the repository holds models of the pair."""
    return (MODELS / options.pair).is_dir()
