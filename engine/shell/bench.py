"""`bench`, and what it measures `--by`: the options of each."""

from argparse import ArgumentParser

from engine.measure.options import (
    add_constraint_options,
    add_domain_and_prompt_options,
    add_json_option,
    add_memory_option,
    add_pair_options,
    add_shape_option,
    parse_positive_count,
)
from engine.shell import names


def add_acceptance_length_option(parser: ArgumentParser, systems_in_help: str) -> None:
    parser.add_argument(
        "--acceptance",
        type=float,
        metavar="TOKENS",
        help=f"estimate what {systems_in_help} would give here if a round yielded so many tokens, the target's own included, "
        "such as 3.0",
    )


def add_peer_options(parser: ArgumentParser) -> None:
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


def add_bench_options(parser: ArgumentParser) -> None:
    """Race systems over held-out prompts, or measure cost by length or size."""
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
    add_peer_options(parser)
    add_acceptance_length_option(parser, "--systems, or tree and chain,")
    parser.add_argument("--list", action="store_true", help="name all systems, one a line with its label, and stop")
    add_domain_and_prompt_options(parser, "stories", 20)
    parser.add_argument("--repeats", type=int, default=1, help="races of every prompt, an odd number")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens a prompt")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    add_constraint_options(parser)
    parser.add_argument(
        "--guesses",
        choices=("masked", "forced", "free"),
        default="masked",
        help="under a constraint: drafts without all that is forbidden, with forced tokens alone, or as they are",
    )
    for name in names.SHAPE:
        parser.add_argument(f"--{name}", type=int, help="the same for all systems; as --shape says when left out")
    add_shape_option(parser)
    add_memory_option(parser)
    add_pair_options(parser)
    add_json_option(parser)


def add_bench_by_length_options(parser: ArgumentParser) -> None:
    """Ms a token up to 128 ... 900 written tokens."""
    parser.add_argument("--systems", default="tree,auto", help="beside the baseline, comma-separated")
    add_domain_and_prompt_options(parser, "stories", 5)
    add_pair_options(parser)
    add_json_option(parser)


def add_bench_by_size_options(parser: ArgumentParser) -> None:
    """How near forwards come to the machine's bandwidth, by model, storage and tree."""
    parser.add_argument("--sizes", nargs="+", choices=names.MODEL_SIZES, default=list(names.USUAL_SIZES))
    parser.add_argument("--stored", nargs="+", choices=names.STORED, default=list(names.STORED))
    parser.add_argument("--contexts", nargs="+", type=int, default=list(names.CONTEXTS), help="tokens before the tree")
    parser.add_argument("--threads", nargs="+", type=parse_positive_count, help="1 and all cores when left out")
    parser.add_argument(
        "--repeats", type=parse_positive_count, default=15, help="timings of each number of nodes; the median counts"
    )
    add_json_option(parser)
