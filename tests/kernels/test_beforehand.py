"""The largest loop compiled beforehand: in a process of its own, on a first start alone, and where the first process finds it."""

import os
import subprocess
import sys

import pytest

from engine.kernels import beforehand
from helpers.paths import OF_TESTS, ROOT

APP = """
import app
from engine.kernels import beforehand

beforehand.begin = lambda: print("begun", flush=True)
app.go_live = lambda *_: app.end("that is all")
app.main()
"""


@pytest.fixture
def begun(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(beforehand, "Popen", lambda command, **how: command)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return tmp_path


def test_a_first_start_compiles_on_two_cores(begun):
    command, work = beforehand.begin()[:2], beforehand.begin()[2]
    assert command == [sys.executable, "-c"] and work == "from engine.kernels.beforehand import largest; largest()"


def test_a_start_with_compiled_code_or_on_one_core_begins_nothing(begun, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert beforehand.begin() is None
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    (begun / "treerace-0").mkdir()
    assert beforehand.begin() is None


@pytest.mark.slow
def test_the_process_leaves_the_loop_where_others_find_it(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert beforehand.begin().wait() == 0
    found = (
        "from engine.kernels.beforehand import largest\nfrom engine.kernels.phases import work_on\nlargest()\n"
        "print(sum(work_on.stats.cache_hits.values()), sum(work_on.stats.cache_misses.values()))"
    )
    done = subprocess.run([sys.executable, "-c", found], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "0"]


def test_the_app_begins_it():
    done = subprocess.run(
        [sys.executable, "-c", APP, "--port", "0"], cwd=ROOT, env=OF_TESTS, capture_output=True, text=True
    )
    assert "begun" in done.stdout and "that is all" in done.stderr
