"""Large loops compiled beforehand: in a process of its own, on a first start alone, and where the first process finds them."""

import os
import subprocess
import sys

import pytest
import torch

from engine.kernels import beforehand
from engine.kernels.code_folder import find_code_folder_and_remove_old
from engine.nets.eagle_compiled import CompiledEagle, compile_eagle_loops, log_q_of_level, log_q_of_root
from helpers.learned import pair_with
from helpers.paths import OF_TESTS, ROOT

APP = """
import pkgutil

import app
from engine.kernels import beforehand

beforehand.start_compiling_process_unless_cached = lambda *functions: print(*map(pkgutil.resolve_name, functions), flush=True)
app.load_pair_and_serve_live_page = lambda *_: app.exit_process("that is all")
app.main()
"""


# Modules with a function that compiles, and the loops that it compiles: a small one, and the large ones that take most of a minute
SMALL = """
import numpy as np
from engine.kernels.elementwise import log_softmax_in_place

LOOPS = [log_softmax_in_place]

def compile_loops():
    log_softmax_in_place(np.zeros((1, 4), np.float32))
"""
LARGEST = """
from engine.kernels.beforehand import compile_forward_and_tree_growth as compile_loops
from engine.kernels.growing_compiled import grow_tree_with_compiled_drafter
from engine.kernels.phases import run_thread_part_of_forward

LOOPS = [run_thread_part_of_forward, grow_tree_with_compiled_drafter]
"""
FOUND = """
from compiling import LOOPS, compile_loops
compile_loops()
for loop in LOOPS:
    print(sum(loop.stats.cache_hits.values()), sum(loop.stats.cache_misses.values()))
"""


@pytest.fixture
def begun(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(beforehand, "Popen", lambda command, **how: command)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return tmp_path


def test_a_first_start_compiles_on_two_cores(begun):
    command = beforehand.start_compiling_process_unless_cached("module:function", "other:function")
    assert command == [sys.executable, "-c", beforehand.WORK, "module:function", "other:function"]


def test_a_start_with_code_of_these_sources_or_on_one_core_begins_nothing(begun, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert beforehand.start_compiling_process_unless_cached("module:function") is None
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    (begun / "treerace-0").mkdir()  # of other sources
    assert beforehand.start_compiling_process_unless_cached("module:function")
    find_code_folder_and_remove_old(beforehand.ENGINE, str(begun)).mkdir()
    assert beforehand.start_compiling_process_unless_cached("module:function") is None


def test_a_call_gets_its_string_on_two_cores(begun, monkeypatch):
    assert beforehand.start_process_calling_if_multicore("module:function", "a b") == [
        sys.executable,
        "-c",
        beforehand.CALL,
        "module:function",
        "a b",
    ]
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert beforehand.start_process_calling_if_multicore("module:function", "a b") is None


def test_a_called_function_is_given_the_string(tmp_path):
    made = tmp_path / "made"
    assert beforehand.start_process_calling_if_multicore("os:mkdir", str(made)).wait() == 0 and made.is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "loops"), [(SMALL, 1), pytest.param(LARGEST, 2, marks=pytest.mark.exhaustive)], ids=["small", "largest"]
)
def test_the_process_leaves_loops_where_others_find_them(monkeypatch, tmp_path, module, loops):
    (tmp_path / "compiling.py").write_text(module, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert beforehand.start_compiling_process_unless_cached("compiling:compile_loops").wait() == 0
    done = subprocess.run([sys.executable, "-c", FOUND], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "0"] * loops


def test_forwards_compiled_beforehand_are_those_that_a_net_calls():
    compile_eagle_loops()
    session = CompiledEagle(pair_with("eagle").net("eagle")).open_session(2)
    session.log_q_of_root([0], torch.zeros(1, 4, 64), 0, 0)
    session.log_q_of_level([0], [0], [1], torch.ones(1, 1, dtype=torch.bool), 0)
    assert len(log_q_of_root.signatures) == len(log_q_of_level.signatures) == 1


def test_the_app_begins_it():
    done = subprocess.run(
        [sys.executable, "-c", APP, "--port", "0"], cwd=ROOT, env=OF_TESTS, capture_output=True, text=True
    )
    assert (
        "compile_forward_and_tree_growth" in done.stdout
        and "compile_eagle_loops" in done.stdout
        and "that is all" in done.stderr
    )
