"""Where compiled code is kept: for the sources it was made of, without a loss to anybody else."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import types

from engine.kernels import compiling
from engine.kernels.code_folder import find_code_folder_and_remove_old

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path) -> Path:
    """A package with compiled loops, plain functions, and constants in its kernels."""
    folder = tmp_path / "package"
    (folder / "kernels").mkdir(parents=True)
    (folder / "loops.py").write_text("@exactly_compiled\ndef loop(): pass\n")
    (folder / "plain.py").write_text("def plain(): pass\n")
    (folder / "kernels" / "constants.py").write_text("LEAST = 1\n")
    return folder


def test_compiled_code_is_kept_for_the_sources_it_was_made_of(package):
    first = find_code_folder_and_remove_old(package)
    assert first.parent == package / "__pycache__"
    first.mkdir(parents=True)
    (package / "plain.py").write_text("def plain(): return 1\n")
    assert find_code_folder_and_remove_old(package) == first and first.exists()
    (package / "loops.py").write_text("@exactly_compiled\ndef loop(): return 1\n")
    assert find_code_folder_and_remove_old(package) != first and not first.exists()


@pytest.mark.parametrize(
    "mark",
    [
        "@compiled_assuming_no_nan",
        "@exactly_compiled",
        "@compiled_no_nan_without_python_entry",
        "@intrinsic",
        "@overload(below)",
    ],
)
def test_every_kind_of_compiled_source_counts_and_so_does_a_constant_of_the_kernels(package, mark):
    found = [find_code_folder_and_remove_old(package)]
    (package / "plain.py").write_text(f"{mark}\ndef plain(): pass\n")
    found.append(find_code_folder_and_remove_old(package))
    (package / "kernels" / "constants.py").write_text("LEAST = 2\n")
    found.append(find_code_folder_and_remove_old(package))
    (package / "kernels" / "constants.py").rename(package / "kernels" / "limits.py")
    found.append(find_code_folder_and_remove_old(package))
    assert len(set(found)) == 4


def test_a_second_checkouts_code_in_a_shared_folder_survives(package, tmp_path):
    shared, other = tmp_path / "shared", tmp_path / "shared" / "treerace-0123456789abcdef"
    other.mkdir(parents=True)
    folder = find_code_folder_and_remove_old(package, str(shared))
    assert folder.parent == shared and folder != other
    folder.mkdir()
    (package / "loops.py").write_text("@exactly_compiled\ndef loop(): return 1\n")
    assert find_code_folder_and_remove_old(package, str(shared)) != folder
    assert other.exists() and folder.exists()


def test_importing_the_project_deletes_no_other_checkouts_code(tmp_path):
    other = tmp_path / "treerace-0123456789abcdef"
    other.mkdir()
    code = "import numba, engine.kernels.compiling; print(numba.config.CACHE_DIR)"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, timeout=120, check=True, capture_output=True, text=True
    )
    assert other.exists() and Path(done.stdout.strip()).parent == tmp_path


FULL = """
import errno, sys
from numba.core import caching
from engine.kernels.compiling import compiled_assuming_no_nan

def full(self, path):
    raise OSError(int(sys.argv[1]), "No space left on device")

caching.IndexDataCacheFile._open_for_write = full

@compiled_assuming_no_nan
def double(number):
    return 2 * number

@compiled_assuming_no_nan
def triple(number):
    return 3 * number

print(double(21), triple(14))
"""


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_stops_nothing_and_is_mentioned_once(tmp_path, code):
    script = tmp_path / "script.py"
    script.write_text(FULL)
    done = subprocess.run(
        [sys.executable, str(script), str(code)],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        timeout=120, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "42 42" and done.stderr == ""
    assert done.stdout.count("cannot be kept (No space left on device)") == 1


def test_python_cannot_call_what_only_compiled_loops_call():
    """It would crash the process, for there is nothing to call."""
    inner = compiling.compiled_no_nan_without_python_entry(lambda number: number + 1)
    outer = compiling.compiled_assuming_no_nan(lambda number: inner(number) * 2)
    for _ in range(2):
        with pytest.raises(TypeError, match="Only compiled loops call"):
            inner(1)
        assert outer(1) == 4


def half_of(number):
    return number / 2


def test_two_processes_that_compile_at_once_never_load_each_others_code(tmp_path, monkeypatch):
    """Neither sees what the other keeps, and the first one's code reaches the disk last."""
    monkeypatch.setattr(compiling.numba.config, "CACHE_DIR", str(tmp_path))
    late = []
    for kind in (types.float32, types.int64):
        process = compiling.exactly_compiled(half_of)
        files = process._cache._cache_file
        monkeypatch.setattr(files, "_load_index", lambda: {})
        if not late:
            late.append(files._save_data)
            monkeypatch.setattr(files, "_save_data", lambda *what: late.append(what))
        process.compile((kind,))
    save, what = late
    save(*what)
    later = compiling.exactly_compiled(half_of)
    for kind in (types.float32, types.int64):
        later.compile((kind,))
        assert later.overloads[kind,].signature.args == (kind,)
    assert later(np.float32(3)) == 1.5 and later(3) == 1.5
    assert sum(later.stats.cache_hits.values()) == 1


def is_itself(number):
    """1 for every number. What is no number is not itself; a quick function takes for granted that there is none."""
    return 1 if number == number else 0


@pytest.mark.parametrize("first", ["exact", "quick"])
def test_a_function_compiled_with_other_options_is_kept_apart(first, tmp_path, monkeypatch):
    """numba finds kept code by name and types. The exact exponential would be the quick one where that was kept first."""
    monkeypatch.setattr(compiling.numba.config, "CACHE_DIR", str(tmp_path))
    ways = {"exact": compiling.exactly_compiled, "quick": compiling.compiled_assuming_no_nan}
    for name in sorted(ways, key=lambda name: name != first):
        assert ways[name](is_itself)(np.float32("nan")) == {"exact": 0, "quick": 1}[name]


def test_an_exact_function_is_exact_where_a_quick_one_has_it_compiled(tmp_path, monkeypatch):
    """numba lends a caller's options to what it has compiled, unless they are set there. It would be kept so, for everybody."""
    monkeypatch.setattr(compiling.numba.config, "CACHE_DIR", str(tmp_path))
    exact = compiling.exactly_compiled(is_itself)
    assert compiling.compiled_assuming_no_nan(lambda number: exact(number))(np.float32("nan")) == 0
    assert exact(np.float32("nan")) == 0 and sum(exact.stats.cache_hits.values()) == 0


def adding(number):
    def add(x):
        return x + number

    return add


def test_loops_that_close_over_other_values_have_other_names_in_machine_code(tmp_path, monkeypatch):
    """numba counts names within a process, so each of these may be the first one of its name in the process that compiles it."""
    monkeypatch.setattr(compiling.numba.config, "CACHE_DIR", str(tmp_path))
    names = set()
    for number in (1, 2):
        loop = compiling.exactly_compiled(adding(number))
        assert loop(5) == 5 + number
        [made] = loop.overloads.values()
        names.add(re.sub(r"B\d+v\d+", "", made.fndesc.llvm_func_name))  # without numba's count
    assert len(names) == 2


DAMAGE = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "scribbled over": lambda data: data[: len(data) // 2] + b"scribble" * 8 + data[len(data) // 2 + 64 :],
    "something else": lambda data: b"no code at all",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_code_is_compiled_again_and_kept_anew(damage, ending, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling.numba.config, "CACHE_DIR", str(tmp_path))

    def hits() -> int:
        loop = compiling.exactly_compiled(half_of)
        assert loop(3.0) == 1.5
        return sum(loop.stats.cache_hits.values())

    assert (hits(), hits()) == (0, 1)
    [file] = tmp_path.rglob(f"*.{ending}")
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert (hits(), hits()) == (0, 1)
