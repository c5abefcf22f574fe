"""`python -m engine train pair`, then `medusa`, `eagle`, ...: everything in `assets/models/`, from files it is given.

Knows every recipe's options; the recipes stand in `pair` and `learned`.
"""

import argparse
from pathlib import Path

import torch

from engine.models.pairs import EMBEDDED, PAIRS
from engine.train.data import DOMAINS
from engine.train.learned import RECIPES, train_learned
from engine.train.pair import train_pair
from engine.train.pretrain import SIZES


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m engine train", description=__doc__)
    recipes = parser.add_subparsers(dest="recipe", required=True)
    pair = recipes.add_parser("pair", help="tokenizer, target, draft and bigram table of the embedded pair")
    pair.add_argument("--data", type=Path, required=True, help="folder with tinystories/, storybooks/ and gsm8k/")
    pair.add_argument("--out", type=Path, default=EMBEDDED, help="where the models are written")
    pair.add_argument("--work", type=Path, default=Path(".train"), help="checkpoints; a run resumes from them")
    pair.add_argument("--size", choices=SIZES, default="11M", help="parameters of the target")
    pair.add_argument("--minutes", type=float, default=75, help="wall-clock budget of the target's training")
    pair.add_argument("--tokens", type=int, help="token budget of the target's training, instead of minutes")
    pair.add_argument("--draft-minutes", type=float, default=12, help="wall-clock budget of the draft's training")
    pair.add_argument(
        "--own-rows", type=int, default=1536, help="rows of 256 tokens that the target writes for its draft"
    )
    pair.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    pair.set_defaults(run=train_pair)
    for name in RECIPES:
        drafter = recipes.add_parser(
            name, help=f"the learned drafter {name} for a pair's target, or for any Hub target"
        )
        drafter.add_argument(
            "--data", type=Path, required=True, help="folder with tinystories/, storybooks/ and gsm8k/"
        )
        drafter.add_argument("--pair", choices=PAIRS, default="embedded", help="train for this pair's target")
        drafter.add_argument("--target", help="a folder or a Hub repository instead of a pair")
        drafter.add_argument("--revision", help="the Hub repository's full commit")
        drafter.add_argument("--out", type=Path, default=EMBEDDED / "drafters", help="where the drafter is written")
        drafter.add_argument(
            "--work", type=Path, default=Path(".train"), help="features and checkpoints; a run resumes"
        )
        drafter.add_argument(
            "--bf16", action="store_true", help="multiply in bfloat16, which is faster where the processor or GPU can"
        )
        drafter.add_argument("--start", type=Path, help="the folder of a drafter whose weights to go on from")
        drafter.add_argument("--minutes", type=float, default=15, help="wall-clock budget of the training")
        drafter.add_argument("--tokens", type=int, help="token budget of the training, instead of minutes")
        drafter.add_argument("--own-rows", type=int, default=2048, help="rows of 256 tokens that the target writes")
        drafter.add_argument(
            "--domains", nargs="+", choices=DOMAINS, default=DOMAINS, help="texts to train on; all when left out"
        )
        drafter.add_argument("--device", default=None, help="cpu or cuda; the best one when left out")
        if name == "parallel":
            drafter.add_argument(
                "--segments", type=int, default=1, help="parts of a row with a backward of their own: less memory"
            )
        drafter.set_defaults(run=train_learned)
    options = parser.parse_args(arguments)
    options.run(options)
