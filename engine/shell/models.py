"""Commands that make models: the options of each."""

from argparse import ArgumentParser
from pathlib import Path

from engine.measure.options import add_pair_options, parse_positive_count
from engine.models.pairs import EMBEDDED, PAIRS
from engine.shell.names import DOMAINS, EXPORTS, RECIPES, TARGET_SIZES, WHOLE


def add_calibrate_options(parser: ArgumentParser) -> None:
    """Measure a pair and write the calibration for its static trees."""
    add_pair_options(parser)
    parser.add_argument(
        "--data",
        type=Path,
        help="a file of prompts: .txt with a blank line between them, or .jsonl; the gallery's when left out",
    )
    parser.add_argument("--tokens", type=int, default=64, help="tokens that the target writes behind each prompt")
    parser.add_argument("--temperature", type=float, default=0.6, help="of target and draft, for the acceptance vector")
    parser.add_argument("--out", type=Path, help="the file to write; an embedded pair's own when left out")


def add_train_options(parser: ArgumentParser) -> None:
    """Train an embedded pair, or a learned drafter for any target."""
    recipes = parser.add_subparsers(dest="recipe", required=True)
    pair = recipes.add_parser("pair", help="tokenizer, target, draft and bigram table of an embedded pair")
    add = pair.add_argument
    add("--data", type=Path, required=True, help="folder with tinystories/, storybooks/ and gsm8k/")
    add("--out", type=Path, help="where the models are written; the embedded pair's folder when left out")
    add("--work", type=Path, default=Path(".train"), help="checkpoints; a run resumes from them")
    add("--size", choices=TARGET_SIZES, default="11M", help="parameters of the target")
    add(
        "--start",
        type=Path,
        help="the folder of a target to go on from, which grows where it is smaller; its tokenizer stays",
    )
    add("--tokenizer", type=Path, help="a folder whose tokenizer to keep; a new one is trained when left out")
    add("--rate", type=float, default=4e-3, help="peak learning rate of the target")
    add("--dropout", type=float, default=0.0, help="share of numbers left out of what a layer adds")
    add("--decay", type=float, default=0.1, help="weight decay of the layers' matrices")
    add("--batch-tokens", type=int, default=6144, help="tokens a step of the target")
    add("--eight-bits", action="store_true", help="write the target in 8 bits, as bitsandbytes keeps it")
    add("--compile", action="store_true", help="compile the target's step: faster, needs a C++ compiler")
    add("--minutes", type=float, default=75, help="wall-clock budget of the target's training")
    add("--tokens", type=int, help="token budget of the target's training, instead of minutes")
    add("--draft-minutes", type=float, default=12, help="wall-clock budget of the draft's training")
    add(
        "--draft-size",
        choices=TARGET_SIZES,
        help="make the draft as large as one for a target of so many parameters; as --size says when left out",
    )
    add("--own-rows", type=int, default=1536, help="rows of 256 tokens that the target writes for its draft")
    add_precision_and_device_options(pair)
    draft = recipes.add_parser("draft", help="the draft model alone, for an embedded pair's target")
    add = draft.add_argument
    add("--data", type=Path, required=True, help="folder with tinystories/, storybooks/ and gsm8k/")
    add("--pair", choices=EMBEDDED, default="small", help="train for this pair's target")
    add("--out", type=Path, help="where the draft is written; the pair's own folder when left out")
    add("--work", type=Path, default=Path(".train"), help="texts and checkpoints; a run resumes")
    add("--size", choices=TARGET_SIZES, default="11M", help="as for a target of so many parameters")
    add("--minutes", type=float, default=12, help="wall-clock budget of the training")
    add("--own-rows", type=int, default=1536, help="rows of 256 tokens that the target writes")
    add_precision_and_device_options(draft)
    for name in RECIPES:
        drafter = recipes.add_parser(
            name, help=f"the learned drafter {name} for a pair's target, or for any Hub target"
        )
        add = drafter.add_argument
        texts = drafter.add_mutually_exclusive_group()
        texts.add_argument(
            "--data",
            type=Path,
            help="folder with tinystories/, storybooks/ and gsm8k/, of which requests are made; the target writes all when left out",
        )
        texts.add_argument(
            "--prompts",
            type=Path,
            help="a file of your own prompts instead, .txt with blank lines between them or .jsonl; with --start a drafter learns on",
        )
        add("--pair", choices=PAIRS, default="small", help="train for this pair's target")
        add("--target", help="a folder or a Hub repository instead of a pair")
        add("--revision", help="the Hub repository's full commit")
        add(
            "--out",
            type=Path,
            help="where the drafter is written; drafters/TARGET when left out, and a shipped pair's own folder for that",
        )
        add(
            "--work",
            type=Path,
            default=Path(".train"),
            help="features and checkpoints; a run resumes. Where rows/, held_out/ and a file `ready` stand, these are learned from",
        )
        add("--start", type=Path, help="the folder of a drafter whose weights to go on from")
        add(
            "--hidden",
            type=int,
            help="the drafter's width; when left out the target's, or half of it where the target is wide",
        )
        add(
            "--own-vocab",
            type=parse_positive_count,
            help="tokens that eagle, dflash or dspark guess, the most frequent ones of the target's text; 8,000 of a large vocabulary "
            "when left out",
        )
        add(
            "--shared-tables",
            action="store_true",
            help="a drafter narrower than its target reads the target's embedding and head, made narrower, and stores none",
        )
        add("--minutes", type=float, default=15, help="wall-clock budget of the training")
        add("--tokens", type=int, help="token budget of the training, instead of minutes")
        add(
            "--own-rows",
            type=int,
            help="rows of 256 tokens that the target writes; 2048 when left out, and 512 with --start and --prompts",
        )
        add("--raw", action="store_true", help="send --prompts as they are; else in the target's chat template, if any")
        add("--rows", type=int, help="rows of a step; the recipe's own number when left out")
        add("--domains", nargs="+", choices=DOMAINS, default=DOMAINS, help="texts to train on; all when left out")
        add_precision_and_device_options(drafter)
        if name == "parallel":
            add("--segments", type=int, default=1, help="parts of a row with a backward of their own: less memory")


def add_precision_and_device_options(recipe_parser: ArgumentParser) -> None:
    """How any recipe computes, and where."""
    recipe_parser.add_argument(
        "--bf16", action="store_true", help="multiply in bfloat16, which is faster where the processor or GPU can"
    )
    recipe_parser.add_argument("--device", help="cpu or cuda; the best one when left out")


def add_convert_options(parser: ArgumentParser) -> None:
    """Write a published drafter's pickled weights as safetensors."""
    parser.add_argument("source", type=Path, help="a file that ends in .bin, .pt or .pth, or the folder that holds it")
    parser.add_argument("folder", type=Path, help="where model.safetensors and config.json are written")


def add_export_options(parser: ArgumentParser) -> None:
    """Write a trained drafter in the layout of speculators, or models as GGUF or for OpenVINO."""
    parser.add_argument(
        "kind",
        choices=(*EXPORTS, *WHOLE),
        help="the drafter; gguf or openvino, for the pair's target and draft model; or target, for the target with plain weights",
    )
    parser.add_argument("folder", type=Path, help="where the files are written")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--pair", choices=PAIRS, default="small", help="the pair whose drafter or models they are")
    given.add_argument("--target", metavar="MODEL", help="your own target: a folder, or OWNER/NAME@COMMIT")
    parser.add_argument("--draft", metavar="MODEL", help="for gguf and openvino: the draft model for --target")
    parser.add_argument("--drafter", metavar="FOLDER", help="the folder of learned drafters for --target")
