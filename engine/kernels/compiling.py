"""Compiling: how loops become machine code, and where it is kept. Knows functions and folders; knows no array."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numba
from numba import njit

# Sums may be reordered; infinities stay what they are.
FAST = {"nnan", "nsz", "reassoc", "contract", "arcp", "afn"}


def folder_for(package: Path, parent: Path) -> Path:
    """Where to keep the compiled code of a package: another folder in `parent` whenever a file that has such code changes, for numba
    looks at a function's own file alone and not at those of the functions it calls. Folders of earlier code are removed."""
    sources = [path.read_bytes() for path in sorted(package.rglob("*.py"))]
    marks = b"@compiled", b"@exactly_compiled", b"@intrinsic", b"@overload"
    digest = hashlib.blake2b(b"".join(each for each in sources if any(mark in each for mark in marks)), digest_size=8)
    folder = parent / f"treerace-{digest.hexdigest()}"
    for earlier in set(parent.glob("treerace-*")) - {folder}:
        shutil.rmtree(earlier, ignore_errors=True)
    return folder


PACKAGE = Path(__file__).parents[1]
numba.config.CACHE_DIR = str(folder_for(PACKAGE, Path(numba.config.CACHE_DIR or PACKAGE / "__pycache__")))


def exactly_compiled(function: Callable, **options: object) -> Callable:
    """The function compiled for the types it is called with, without the interpreter's lock."""
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        return njit(function, cache=True, **options)
    except RuntimeError:  # there is no folder to keep it in
        return njit(function, **options)


def compiled(function: Callable) -> Callable:
    """The same for loops whose sums may be reordered. Constants that one such function hands to another are made `np.int64` or
    `np.bool_`, for of bare ones numba compiles a version each."""
    return exactly_compiled(function, fastmath=FAST)


def compile_for(function: Callable, *arguments: object) -> None:
    """Compile the function for such arguments, or read what was compiled before, without calling it."""
    function.compile(tuple(map(numba.typeof, arguments)))
