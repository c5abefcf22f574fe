"""Mutation testing: `python -m tests.mutations` plants every mistake of the table in a copy of the repository and runs its tests.

A mistake is caught when a test fails. Anything else is told apart: tests that pass, and tests that cannot run. Every test runs first
without a mistake, because a test that always fails would catch everything.
"""

import argparse
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from tests.mutations.copied import FAILED, Copy
from tests.mutations.mutation import Mutation
from tests.mutations.table import MUTATIONS

WIDTH = max(len(each.file) for each in MUTATIONS)


def run(mutations: list[Mutation], folder: Path) -> int:
    """Print a line for each mistake, and how long the rest takes where errors go. Returns how many were not caught."""
    import torch  # the list waits for no model

    from engine.models.loading import hardware_name

    copy = Copy(folder, (each.file for each in mutations))
    clean = cache(copy.tested)
    print(hardware_name(torch.device("cpu")))
    print(f"{'file':<{WIDTH}} {'costs':<7}  {'seconds':>7}  {'verdict':<8}  mistake", flush=True)
    missed, start = 0, time.monotonic()
    for number, each in enumerate(mutations, 1):
        status, words = clean(each.test)
        begun = time.monotonic()
        if status:
            verdict = f"NO RUN without any mistake: {words}"
        else:
            status, words = copy.planted(each)
            verdict = {FAILED: "caught", 0: "SURVIVED"}.get(status, f"NO RUN: {words}")
        missed += verdict != "caught"
        seconds = time.monotonic() - begun
        print(f"{each.file:<{WIDTH}} {each.costs:<7}  {seconds:>7.0f}  {verdict:<8}  {each.name}", flush=True)
        so_far = time.monotonic() - start
        left = so_far / number * (len(mutations) - number)
        print(f"{number} of {len(mutations)} in {so_far / 60:.1f} minutes, about {left / 60:.0f} more", file=sys.stderr)
    print(f"{len(mutations) - missed} of {len(mutations)} mistakes are caught.")
    return missed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="show the table and run nothing")
    parser.add_argument("--only", default="", help="run the mistakes whose file or name contains this")
    parser.add_argument(
        "--keep", type=Path, help="keep the copy and its compiled kernels in this folder, for the next run"
    )
    chosen = parser.parse_args(arguments)
    mutations = [each for each in MUTATIONS if chosen.only in each.file or chosen.only in each.name]
    if not mutations:
        parser.error(f"No mistake's file or name has {chosen.only!r} in it. --list shows them all.")
    if chosen.list:
        for each in mutations:
            print(f"{each.file:<{WIDTH}} {each.costs:<7}  {each.name}: {each.test}")
        return 0
    if chosen.keep:
        return int(run(mutations, chosen.keep.resolve()) > 0)
    with tempfile.TemporaryDirectory(prefix="treerace-mutations-") as temporary:
        return int(run(mutations, Path(temporary)) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
