"""`bench`, and what it measures `--by`: the options of each."""

from argparse import ArgumentParser
from pathlib import Path

from engine.measure.options import (
    CHAT,
    add_constraint,
    add_json,
    add_memory,
    add_pair,
    add_shape,
    count,
    count_or_file,
    held_out,
)
from engine.shell import names


def add_acceptance(parser: ArgumentParser, systems: str) -> None:
    parser.add_argument(
        "--acceptance",
        type=float,
        metavar="TOKENS",
        help=f"estimate what {systems} would give here if a round yielded so many tokens, the target's own included, such as 3.0",
    )


def add_peers(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--peers",
        action="store_true",
        help="measure transformers' assisted generation and prompt lookup in the same run, and llama.cpp and OpenVINO GenAI where they "
        "are installed",
    )
    parser.add_argument(
        "--peer-server",
        metavar="ADDRESS",
        nargs="+",
        help="with --peers: servers of the same weights that run already, such as llama-server at http://127.0.0.1:8080",
    )


def bench(parser: ArgumentParser) -> None:
    """Race systems over held-out prompts, or measure cost by length, tree, size …"""
    parser.add_argument(
        "--by",
        metavar="THING",
        help="measure cost by one thing in place of a race; each takes options of its own, which --by THING --help lists",
    )
    parser.add_argument(
        "--systems",
        help="names or mixes (drafter/policy/rule), comma-separated, or all; tree when left out, with --peers also chain, eagle "
        "and auto as far as the pair has them",
    )
    add_peers(parser)
    add_acceptance(parser, "--systems, or tree and chain,")
    parser.add_argument("--list", action="store_true", help="name all systems, one a line with its label, and stop")
    parser.add_argument(
        "--domains",
        default="stories",
        help=f"texts, comma-separated, or all, of {', '.join(held_out())}; or {CHAT}, requests to a target with a chat template",
    )
    parser.add_argument(
        "--prompts",
        type=count_or_file,
        default=20,
        metavar="COUNT|FILE",
        help="how many held-out prompts a text; or a file of your own in their place, .jsonl or .txt, as `pays` takes it",
    )
    parser.add_argument("--repeats", type=int, default=1, help="races of every prompt, an odd number")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens a prompt")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    add_constraint(parser)
    parser.add_argument(
        "--guesses",
        choices=("masked", "forced", "free"),
        default="masked",
        help="under a constraint: drafts without all that is forbidden, with forced tokens alone, or as they are",
    )
    for name in names.SHAPE:
        parser.add_argument(f"--{name}", type=int, help="the same for all systems; as --shape says when left out")
    add_shape(parser)
    add_memory(parser)
    add_pair(parser)
    add_json(parser)


def length(parser: ArgumentParser) -> None:
    """Ms a token up to 128 ... 900 written tokens."""
    add_growth(parser)


def context(parser: ArgumentParser) -> None:
    """Ms a round and a token behind 64 ... 900 tokens of prompt."""
    add_growth(parser)


def add_growth(parser: ArgumentParser) -> None:
    parser.add_argument("--systems", default="tree,auto", help="beside the baseline, comma-separated")
    parser.add_argument("--domain", choices=held_out(), default="stories")
    parser.add_argument("--prompts", type=int, default=5, help="held-out prompts")
    add_pair(parser)
    add_json(parser)


def races(parser: ArgumentParser) -> None:
    """Memory of this process after many races."""
    parser.add_argument("--races", type=int, default=100)
    add_growth(parser)


def tree(parser: ArgumentParser) -> None:
    """Ms of a verification by its number of nodes."""
    parser.add_argument("--repeats", type=count, default=25, help="timings of each number of nodes; the median counts")
    add_pair(parser)
    add_json(parser)


def state(parser: ArgumentParser) -> None:
    """What trees and chains cost a target with states, in time and memory."""
    parser.add_argument(
        "--families",
        nargs="+",
        choices=names.STATE_FAMILIES,
        default=list(names.STATE_FAMILIES),
        help="random models; without --target",
    )
    parser.add_argument("--repeats", type=count, default=15, help="timings of each verification; the median counts")
    add_pair(parser)
    add_json(parser)


def size(parser: ArgumentParser) -> None:
    """How near forwards come to the machine's bandwidth, by model, storage and tree."""
    parser.add_argument("--sizes", nargs="+", choices=names.MODEL_SIZES, default=list(names.USUAL_SIZES))
    parser.add_argument("--stored", nargs="+", choices=names.STORED, default=list(names.STORED))
    parser.add_argument("--contexts", nargs="+", type=int, default=list(names.CONTEXTS), help="tokens before the tree")
    parser.add_argument("--threads", nargs="+", type=count, help="1 and all cores when left out")
    parser.add_argument("--repeats", type=count, default=15, help="timings of each number of nodes; the median counts")
    add_json(parser)


def part(parser: ArgumentParser) -> None:
    """Where a round's time goes: forwards, policy, rule, commit."""
    add_pair(parser)
    parser.add_argument("--systems", default="vanilla,tree,eagle,auto", help="names, separated by commas")
    parser.add_argument("--prompts", type=int, default=4, help="held-out stories to write on")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    add_json(parser)


def change(parser: ArgumentParser) -> None:
    """One drafter over a changing subject, frozen against adapting."""
    add_pair(parser)
    parser.add_argument(
        "--net", type=Path, help="folder of another SpecBlock net, for example one trained on stories alone"
    )
    parser.add_argument("--stories", type=int, default=10, help="prompts before the subject changes")
    parser.add_argument("--code", type=int, default=20, help="prompts after it; the held-out ones, again and again")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens a prompt")
    parser.add_argument("--policy", help="of both lanes; the rank-guided one when left out")
    parser.add_argument("--shape", type=int, nargs=3, default=(4, 4, 12), metavar=("DEPTH", "WIDTH", "NODES"))
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--window", type=count, default=5, help="prompts a row of the table")
    add_json(parser)


def order(parser: ArgumentParser) -> None:
    """Attention that skips a tree mask's empty tiles, by node order."""
    parser.add_argument("--sizes", type=count, nargs="+", default=names.TREE_SIZES, help="nodes")
    parser.add_argument(
        "--prefixes", type=int, nargs="+", default=names.PREFIXES, help="committed rows before the tree"
    )
    parser.add_argument("--block", type=int, choices=names.BLOCKS, default=32, help="tile of the timed paths")
    parser.add_argument("--repeats", type=count, default=7)
    parser.add_argument("--device", help="cpu or cuda; the best one when left out")
    parser.add_argument("--out", type=Path, help="also write the table and the JSON object to this file")
    add_json(parser)


def segments(parser: ArgumentParser) -> None:
    """Peak memory of a training step by its number of segments."""
    parser.add_argument("--segments", type=count, nargs="+", default=[1, 2, 3, 6])
    parser.add_argument("--length", type=count, default=512, help="tokens a row")
    parser.add_argument("--rows", type=count, default=1)
    parser.add_argument("--depth", type=count, default=6, help="positions an anchor predicts")
    parser.add_argument("--device", help="cpu or cuda; the best one when left out")
    add_json(parser)
