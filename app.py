"""Serves the TreeRace page: reads arguments, loads a pair, builds the page, launches it. The page itself is in `engine/web/`."""

import argparse
import os

from engine.models.loading import load
from engine.models.pairs import LoadedPair
from engine.rounds.timing import costs_of
from engine.screens.cards import FIRSTS, LANES
from engine.systems import SYSTEMS
from engine.web.page import build, launch


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the TreeRace page.")
    parser.add_argument("--port", type=int, default=7860)
    port = parser.parse_args().port
    print("TreeRace loads its models; a first start compiles their kernels, up to a minute.", flush=True)
    try:
        pair = load(os.environ.get("TREERACE_PAIR", "embedded"), four_bit=os.environ.get("TREERACE_FOUR_BIT") == "1")
    except ValueError as error:
        raise SystemExit(str(error)) from None
    if "SPACES_ZERO_GPU" not in os.environ:  # there no device is lent yet, so the first race measures
        measure(pair)
    launch(build(pair), host="0.0.0.0" if "SPACE_ID" in os.environ else "127.0.0.1", port=port)


def measure(pair: LoadedPair) -> None:
    """Measures the costs of forwards for the systems that the page starts with, at load, so that no race waits for it."""
    for name in (*LANES, *FIRSTS):
        try:
            costs_of(pair, SYSTEMS[name].drafter)
        except ValueError:
            continue  # the pair has no such drafter


if __name__ == "__main__":
    main()
