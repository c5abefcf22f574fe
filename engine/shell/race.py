"""Commands that race, or compare what was raced: the options of each."""

from argparse import ArgumentParser
from pathlib import Path

from engine.measure.options import add_constraint, add_json, add_memory, add_pair, add_shape, count
from engine.shell.bench import add_acceptance, add_peers


def pays(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--prompts",
        type=Path,
        required=True,
        nargs="+",
        help='.jsonl files, with {"prompt": ...} or a string on every line, or .txt files, where a blank line separates prompts. '
        'A "group" beside a prompt, or else its file, names the row in which it is counted',
    )
    parser.add_argument("--systems", help="names or mixes, comma-separated; every lossless one when left out")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a prompt")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0, help="of the texts and of the bootstrap")
    add_constraint(parser)
    parser.add_argument(
        "--batch",
        metavar="SIZES",
        help="also decode so many prompts at once, such as 1,4,16,32; of a server 1,4,16 when left out",
    )
    add_acceptance(parser, "every system's best setting")
    add_shape(parser)
    parser.add_argument("--context", metavar="TOKENS", help="also race behind contexts so long, such as 512,2048,8192")
    add_memory(parser)
    add_peers(parser)
    add_pair(parser)
    parser.add_argument(
        "--server",
        metavar="ADDRESS",
        help="measure an OpenAI-compatible server that runs already, such as http://127.0.0.1:8000/v1, in place of a pair",
    )
    parser.add_argument(
        "--plain",
        metavar="ADDRESS",
        help="the same model without guesses; an older llama-server needs none, because a request can leave its guesses out",
    )
    parser.add_argument("--server-model", metavar="NAME", help="the model to ask for, where a server has several")
    parser.add_argument("--machine", metavar="WORDS", help="what the server runs on, for the row")
    parser.add_argument("--into", metavar="FILE", type=Path, help="also add the row to this .jsonl table")
    add_json(parser)


def doctor(parser: ArgumentParser) -> None:
    for letter in "ab":
        parser.add_argument(
            letter, metavar=letter.upper(), nargs="?", type=Path, help="a race file, or a file of prompt and tokens"
        )
        parser.add_argument(f"--lane-{letter}", type=int, help="of a race file, counted from 0; the last when left out")
    parser.add_argument(
        "--prompts",
        type=Path,
        nargs="+",
        help="files of prompts, to examine the learned drafter in --drafter, which then needs no --target",
    )
    add_pair(parser)
    add_json(parser)


def load(parser: ArgumentParser) -> None:
    parser.add_argument("--visitors", type=count, default=50, help="open pages at once, each with a race of its own")
    parser.add_argument("--waves", type=count, default=5, help="how often all of them race")
    parser.add_argument("--tokens", type=count, default=100, help="new tokens a race")
    parser.add_argument("--seed", type=int, default=0, help="of the visitors' prompts and settings")
    add_json(parser)
