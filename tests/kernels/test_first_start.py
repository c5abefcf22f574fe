"""The same bits in the process that compiles and in every later one, whichever loop is loaded first."""

import json
import subprocess
import sys

import pytest

from engine.kernels.compiling import FAST
from helpers.draft_bits import NAMES
from helpers.paths import OF_TESTS, ROOT


def drafted(*words: str, **more: str) -> dict[str, str]:
    """The digests of a process of its own."""
    environment = OF_TESTS | more
    command = [sys.executable, "-m", "helpers.draft_bits", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=500)
    return json.loads(done.stdout.splitlines()[-1])


def test_no_loop_may_be_compiled_so_that_a_copy_of_it_has_other_bits():
    """Each of these lets a compiler add, divide or round in another way where it sees fit."""
    assert FAST.isdisjoint({"fast", "reassoc", "contract", "arcp", "afn", "nsz"})


@pytest.mark.slow
def test_all_drafters_have_the_same_bits_whichever_loop_is_loaded_first():
    """numba keeps one copy of a loop for every loop that calls it, and runs the one that was loaded first."""
    found = drafted()
    assert tuple(found) == NAMES and len({*found.values()}) == len(NAMES)
    assert drafted("alone") == found


@pytest.mark.slow
def test_the_process_that_compiles_has_the_bits_of_those_that_load(tmp_path):
    """Two drafters stand for all, whose loops call the same ones: compiling all of them takes a minute."""
    names, folder = ("model", "medusa"), {"NUMBA_CACHE_DIR": str(tmp_path)}
    first = drafted(*names, **folder)
    assert len(first) == 2 and first == drafted(*names, **folder) == drafted("alone", *names, **folder)
