"""Commands that make something to look at: the options of each."""

from argparse import ArgumentParser
from pathlib import Path

from engine.measure.options import add_pair, add_remote


def record(parser: ArgumentParser) -> None:
    parser.add_argument("--prompt", help="record this prompt instead of the races of assets/races")
    parser.add_argument("--system", default="tree", help="of the right lane; plain decoding is on the left")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    add_pair(parser)
    add_remote(parser)
    add_out(parser, "a file with --prompt (race.json), else a folder (assets/races)")


def replay(parser: ArgumentParser) -> None:
    parser.add_argument("race", type=Path, help="a race file")
    add_out(parser, "the page (race.html beside the race file), or a film where the name ends in .gif")
    parser.add_argument("--width", type=int, default=960, help="pixels of a film")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a film")
    parser.add_argument("--space", type=Path, metavar="FOLDER", help="write a static Space instead, ready to be pushed")


def add_out(parser: ArgumentParser, what: str) -> None:
    """`-o` and `--out`, in one spelling for all that is written."""
    parser.add_argument("-o", "--out", type=Path, help=what)
