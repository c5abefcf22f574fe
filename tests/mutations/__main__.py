"""Mutation testing: `python -m tests.mutations` plants every mistake of the table in a copy of the repository and runs its tests.

A mistake is caught when a test fails. Anything else is told apart: tests that pass, and tests that cannot run. First all tests run
without a mistake, because a test that always fails would catch everything. `--only` takes a part of a name, `--list` shows the table.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutations.mutation import Mutation
from tests.mutations.table import MUTATIONS

ROOT = Path(__file__).parents[2]
LONGEST = 600  # seconds of a run; kernels are compiled anew in some
WIDTH = max(len(each.file) for each in MUTATIONS)
FAILED = 1  # what pytest returns when a test failed; 2 and more is a run that did not come to its tests


def copy_to(folder: Path) -> None:
    """The repository without what is built and ignored. Assets are read only, so a link to them does."""
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in ("engine", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in (".pytest.ini", ".coveragerc", "app.py", "README.md", "Spaces.md"):
        shutil.copy2(ROOT / name, folder / name)
    (folder / "assets").symlink_to(ROOT / "assets")


def tested(folder: Path, tests: str) -> tuple[int, str]:
    """pytest's exit status in the folder, and the last line that it wrote."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *shlex.split(tests)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return -1, f"nothing after {LONGEST} s"
    return done.returncode, (done.stdout.strip().splitlines() or [done.stderr.strip()[-200:]])[-1]


def planted(folder: Path, mutation: Mutation) -> tuple[int, str]:
    """What the mutation's tests say with the mistake in place. The file is as before afterwards."""
    path = folder / mutation.file
    right, stamp = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(right.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        return tested(folder, mutation.tests)
    finally:
        path.write_text(right, encoding="utf-8")
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="show the table and run nothing")
    parser.add_argument("--only", default="", help="run the mistakes whose name contains this")
    chosen = parser.parse_args(arguments)
    mutations = [each for each in MUTATIONS if chosen.only in each.name]
    if not mutations:
        parser.error(f"No mistake is called {chosen.only!r}. --list shows them all.")
    if chosen.list:
        for each in mutations:
            print(f"{each.file:<{WIDTH}} {each.costs:<7}  {each.name}: {each.tests}")
        return 0
    import torch  # the list waits for no model

    from engine.models.loading import hardware_name

    with tempfile.TemporaryDirectory(prefix="treerace-mutations-") as temporary:
        folder = Path(temporary)
        copy_to(folder)
        for tests in dict.fromkeys(each.tests for each in mutations):
            status, words = tested(folder, tests)
            if status:
                print(f"Without any mistake, {tests} says: {words}", file=sys.stderr)
                return 2
        print(hardware_name(torch.device("cpu")))
        print(f"{'file':<{WIDTH}} {'costs':<7}  {'seconds':>7}  {'verdict':<8}  mistake")
        survived = 0
        for each in mutations:
            begun = time.monotonic()
            status, words = planted(folder, each)
            verdict = {FAILED: "caught", 0: "SURVIVED"}.get(status, f"NO RUN: {words}")
            survived += status != FAILED
            seconds = time.monotonic() - begun
            print(f"{each.file:<{WIDTH}} {each.costs:<7}  {seconds:>7.0f}  {verdict:<8}  {each.name}", flush=True)
        print(f"{len(mutations) - survived} of {len(mutations)} mistakes are caught.")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
