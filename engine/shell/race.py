"""Commands that race, measure many things at once, or make something to look at: the options of each."""

from argparse import ArgumentParser
from pathlib import Path

from engine.measure.options import (
    CHAT,
    add_constraint_options,
    add_domain_and_prompt_options,
    add_json_option,
    add_memory_option,
    add_pair_options,
    add_remote_server_options,
    add_shape_option,
)
from engine.shell.bench import add_acceptance_length_option, add_peer_options


def add_pays_options(parser: ArgumentParser) -> None:
    """Tell whether speculative decoding pays for your own prompts."""
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument(
        "--domains", choices=(CHAT,), help="40 requests of five kinds, for a target with a chat template"
    )
    either.add_argument(
        "--prompts",
        type=Path,
        nargs="+",
        help='.jsonl files, with {"prompt": ...} or a string on every line, or .txt files, where a blank line separates prompts. '
        'A "group" beside a prompt, or else its file, names the row in which it is counted',
    )
    parser.add_argument("--systems", help="names or mixes, comma-separated; every lossless one when left out")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a prompt")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0, help="of the texts and of the bootstrap")
    add_constraint_options(parser)
    parser.add_argument(
        "--batch",
        metavar="SIZES",
        help="also decode so many prompts at once, such as 1,4,16,32; of a server 1,4,16 when left out",
    )
    add_acceptance_length_option(parser, "every system's best setting")
    add_shape_option(parser)
    add_memory_option(parser)
    add_peer_options(parser)
    add_pair_options(parser)
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
    add_json_option(parser)


def add_doctor_options(parser: ArgumentParser) -> None:
    """Tell where two runs part and why, what is wrong with a learned drafter, or what fewer bits change."""
    for letter in "ab":
        parser.add_argument(
            letter, metavar=letter.upper(), nargs="?", type=Path, help="a race file, or a file of prompt and tokens"
        )
        parser.add_argument(f"--lane-{letter}", type=int, help="of a race file, counted from 0; the last when left out")
    parser.add_argument(
        "--prompts",
        type=Path,
        nargs="+",
        help="files of prompts, to examine the learned drafter in --drafter, which then needs no --target, or a --quantisation",
    )
    add_pair_options(parser)
    add_json_option(parser)


def add_study_options(parser: ArgumentParser) -> None:
    """Tell which of the papers' claims hold here, by counts alone."""
    add_pair_options(parser)
    parser.add_argument(
        "--claims",
        help="names of claims, separated by commas, such as gbv; all when left out",
    )
    add_domain_and_prompt_options(parser, "stories,code,word problems", 8)
    parser.add_argument("--temperatures", type=float, nargs="+", help="each claim's own when left out")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens a prompt")
    add_json_option(parser)


def add_gpu_options(parser: ArgumentParser) -> None:
    """Measure everything that a GPU changes and write it to one JSON file."""
    parser.add_argument("--out", type=Path, help="the JSON; assets/results/gpu-<name>.json when left out")
    parser.add_argument(
        "--quick", action="store_true", help="a minute or two: fewer prompts, systems, sizes and repeats"
    )


def add_record_command_options(parser: ArgumentParser) -> None:
    """Record a race to a file, or the page's recorded races anew."""
    parser.add_argument("--prompt", help="record this prompt instead of the races of assets/races")
    parser.add_argument("--system", default="tree", help="of the right lane; plain decoding is on the left")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    add_pair_options(parser)
    add_remote_server_options(parser)
    add_output_option(parser, "a file with --prompt (race.json), else a folder (assets/races)")


def add_curves_options(parser: ArgumentParser) -> None:
    """Measure the curves that Learn shows, and keep them in a file."""
    parser.add_argument("--only", metavar="CURVE", help="nodes, temperature, chain or batch; all when left out")
    add_pair_options(parser)
    add_output_option(parser, "a file (assets/results/curves.json)")


def add_examples_options(parser: ArgumentParser) -> None:
    """Record what the page's Lab and Grand prix begin with."""
    parser.add_argument("--only", metavar="EXAMPLE", help="sweep, prix or pays; all when left out")
    add_pair_options(parser)
    add_output_option(parser, "a file (assets/results/examples.json)")


def add_replay_options(parser: ArgumentParser) -> None:
    """Turn a race file into a page that plays without a network, or into a GIF."""
    parser.add_argument("race", type=Path, help="a race file")
    add_output_option(parser, "the page (race.html beside the race file), or a film where the name ends in .gif")
    parser.add_argument("--width", type=int, default=960, help="pixels of a film, which Chromium records")
    parser.add_argument("--space", type=Path, metavar="FOLDER", help="write a static Space instead, ready to be pushed")


def add_output_option(parser: ArgumentParser, help_text: str) -> None:
    """`-o` and `--out`, in one spelling for all that is written."""
    parser.add_argument("-o", "--out", type=Path, help=help_text)
