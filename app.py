"""Serves the TreeRace page: reads arguments, opens a first page, loads a pair, goes live. The page itself is in `engine/web/`."""

import argparse
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.views import opening
from engine.web.front import Front

if TYPE_CHECKING:
    from engine.models.pairs import LoadedPair


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the TreeRace page.")
    parser.add_argument("--port", type=int, default=7860)
    host, port = "0.0.0.0" if "SPACE_ID" in os.environ else "127.0.0.1", parser.parse_args().port
    if "SPACES_ZERO_GPU" in os.environ:  # only Gradio's own server is lent GPUs, and none is lent yet: races measure
        from engine.web.page import build, launch

        return launch(build(pair()), host, port)
    front = Front(opening.html())
    try:
        port = front.serve(host, port)
    except OSError as error:
        raise SystemExit(f"Port {port} cannot be used: {error.strerror}. Choose another one with --port.") from None
    print(f"TreeRace opens on http://{host}:{port}; a first start compiles its kernels, up to a minute.", flush=True)
    with suppress(KeyboardInterrupt):
        go_live(front)
        front.wait()


def go_live(front: Front) -> None:
    """Makes the opening race ready, hands the server to the live page, then makes the rest ready behind it."""
    from engine.screens.device import DEVICE  # what takes seconds to import is imported behind the opening page
    from engine.screens.readiness import AT_ONCE, Readiness, compiling

    front.words = lambda: compiling("Loading the models")
    front.heard, front.runs = DEVICE.heard, lambda: len(DEVICE.line.everyone)
    readiness = Readiness(pair(), DEVICE)
    front.words = lambda: readiness.words
    readiness.make(*AT_ONCE)
    front.words = lambda: "Building the live page"
    from engine.web.page import build, mounted

    front.hand_over(mounted(build(readiness.pair)))
    front.words = lambda: readiness.words
    readiness.make_rest()


def pair() -> "LoadedPair":
    """The pair that the environment names. What cannot be loaded ends the process with a sentence."""
    from engine.models.loading import load

    try:
        return load(os.environ.get("TREERACE_PAIR", "embedded"), four_bit=os.environ.get("TREERACE_FOUR_BIT") == "1")
    except ValueError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
