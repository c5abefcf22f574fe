"""What several commands ask for: a pair on a device, held-out prompts. Knows argparse and one file; loads and measures nothing."""

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HELD_OUT = Path(__file__).parents[2] / "assets" / "held_out.json"


def held_out() -> dict[str, list[str]]:
    """Prompts by domain; nothing was trained or calibrated on them."""
    return json.loads(HELD_OUT.read_text(encoding="utf-8"))


def first_prompts(domain: str, count: int) -> list[str]:
    """The first `count` held-out prompts of a domain. Raises `ValueError` for an unknown domain and for more than there are."""
    texts = held_out()
    if domain not in texts:
        raise ValueError(f"Unknown domain {domain!r}. Available: {', '.join(texts)}.")
    if not 1 <= count <= len(texts[domain]):
        raise ValueError(f"--prompts must be between 1 and {len(texts[domain])}, got {count}.")
    return texts[domain][:count]


def add_pair(parser: ArgumentParser) -> None:
    """`--pair` and `--device`, for `load`."""
    parser.add_argument("--pair", default="embedded", help="the embedded pair when left out")
    parser.add_argument("--device", default=None, help="cpu or cuda; the best one when left out")


@contextmanager
def refusals(parser: ArgumentParser) -> Iterator[None]:
    """Ends the command when something inside is refused: usage and the refusal's sentence on stderr, exit status 2."""
    try:
        yield
    except (OSError, ValueError) as error:
        parser.error(str(error))
