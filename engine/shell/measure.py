"""Commands that measure many things at once: the options of each."""

from argparse import ArgumentParser
from pathlib import Path

from engine.measure.options import add_json, add_pair, held_out


def study(parser: ArgumentParser) -> None:
    add_pair(parser)
    parser.add_argument(
        "--claims",
        help="names of claims or tables, separated by commas, such as gbv; every claim with a verdict when left out",
    )
    parser.add_argument("--domains", default="stories,code,word problems", help="of " + ", ".join(held_out()))
    parser.add_argument("--temperatures", type=float, nargs="+", help="each claim's own when left out")
    parser.add_argument("--prompts", type=int, default=8, help="held-out prompts a domain")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens a prompt")
    add_json(parser)


def gpu(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, help="the JSON; assets/results/gpu-<name>.json when left out")
    parser.add_argument(
        "--quick", action="store_true", help="a minute or two: fewer prompts, systems, sizes and repeats"
    )
