"""Compiling: how loops become machine code, and how that is kept. Knows functions and files; knows no array."""

import hashlib
import pickle
import platform
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from llvmlite import binding
from numba import njit
from numba.core.caching import IndexDataCacheFile
from numba.core.errors import NumbaError

from engine.kernels.code_folder import find_code_folder_and_remove_old

# Nothing here may change a bit. numba compiles what a loop calls into every caller, and the copy that is loaded first serves them all.
# Were sums reordered or products fused in some copies, one process would draft with other numbers than the next.
FAST = {"nnan"}
SEAL = 16  # bytes of a digest
NEEDED = "avx2", "fma", "f16c"  # of an x86-64 processor

numba.config.CACHE_DIR = str(find_code_folder_and_remove_old(Path(__file__).parents[1], numba.config.CACHE_DIR))


def exactly_compiled(function: Any, **options: object) -> Callable:
    """The function compiled for the types it is called with, without the interpreter's lock.

    NaN is kept in loops of `compiled_assuming_no_nan` too: numba lends a caller's options where none are set.
    """
    code = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    code.__qualname__ = cache_name_with_closure(function, options)
    options = {"nogil": True, "error_model": "numpy", "fastmath": False, "no_cfunc_wrapper": True, **options}
    try:
        return install_fault_tolerant_code_cache(njit(code, cache=True, **options))
    except RuntimeError:  # there is no folder to keep it in
        return njit(code, **options)


def cache_name_with_closure(function: FunctionType, options: Mapping[str, object]) -> str:
    """The function's name, with the values that it closes over and the names of the options that it is compiled with.

    numba names machine code by a function's name and how many of that name came before. Loops that close over different values
    would get one name in two processes, and a third that loads both would run the wrong one. So would one function with two
    options.
    """
    values = [str(cell.cell_contents) for cell in function.__closure__ or ()]
    return "_".join([function.__qualname__, *values, *sorted(options)])


class CompiledCodeFiles(IndexDataCacheFile):
    """Where a function's code is kept, in a file for each choice of types, which is named by them.

    numba would number the files, and two processes that compile at once may give one number to different types. Every file begins
    with a digest of the rest: a damaged one, which numba would run or fail at for good, is compiled anew.
    """

    def save(self, key: object, data: object) -> None:
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()
        name = self._index_name.removesuffix("nbi") + f"{digest}.nbc"
        self._save_data(name, data)
        self._save_index(self._load_index() | {key: name})

    def _load_index(self) -> dict:
        try:
            version, stamp, names = self._load_data(self._index_name)
        except OSError:
            return {}
        return pickle.loads(names) if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, names: dict) -> None:
        with self._open_for_write(self._index_path) as file:
            file.write(prepend_digest(self._dump((self._version, self._source_stamp, self._dump(names)))))

    def _load_data(self, name: str) -> Any:
        return pickle.loads(verify_and_strip_digest(Path(self._data_path(name)).read_bytes()))

    def _save_data(self, name: str, data: object) -> None:
        with self._open_for_write(self._data_path(name)) as file:
            file.write(prepend_digest(self._dump(data)))


def prepend_digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=SEAL).digest() + data


def verify_and_strip_digest(data: bytes) -> bytes:
    """What was sealed. Raises `OSError`, as for a file that is not there, when it has changed since."""
    if prepend_digest(data[SEAL:]) != data:
        raise OSError("The file of compiled code is damaged.")
    return data[SEAL:]


def install_fault_tolerant_code_cache(dispatcher: Any) -> Any:
    """The same function, which also runs when its code cannot be kept: on a full disk, or in a folder that turned read-only."""
    save, found = dispatcher._cache.save_overload, dispatcher._cache._impl
    dispatcher._cache._cache_file = CompiledCodeFiles(
        found.locator.get_cache_path(), found.filename_base, found.locator.get_source_stamp()
    )

    def save_or_go_on(*compiled: object) -> None:
        try:
            save(*compiled)
        except OSError as error:
            report_uncached_once(error.strerror)

    dispatcher._cache.save_overload = save_or_go_on
    return dispatcher


@cache
def report_uncached_once(reason: str) -> None:
    """Says it once a reason."""
    print(f"Compiled kernels cannot be kept ({reason}), so the next start compiles them again.", flush=True)


def compiled_assuming_no_nan(function: Callable) -> Callable:
    """`exactly_compiled`, where no number is NaN. Bare constants would be compiled one by one, so `np.int64` is handed over."""
    return exactly_compiled(function, fastmath=FAST)


def exactly_compiled_without_python_entry(function: Callable, **options: object) -> Callable:
    """`exactly_compiled` for what only compiled loops call. It compiles faster, for nothing is made by which Python could call it."""

    def refused(*arguments: object, **named: object) -> None:
        raise TypeError(f"Only compiled loops call {function.__name__}.")

    made: Any = exactly_compiled(function, no_cpython_wrapper=True, **options)
    made._insert = lambda *_, **__: None  # where numba would look for what Python calls
    made._compile_for_args = refused
    return made


def compiled_no_nan_without_python_entry(function: Callable) -> Callable:
    """`compiled_assuming_no_nan` for what only compiled loops call."""
    return exactly_compiled_without_python_entry(function, fastmath=FAST)


def compile_for_argument_types(function: Callable, *arguments: object) -> None:
    """Compile the function for arguments of these types, or load its compiled code, without calling it."""
    function.compile(tuple(map(numba.typeof, arguments)))


@cache
def can_compile_here() -> bool:
    """Whether loops compile here for a processor that widens 16-bit numbers itself: x86-64 from AVX2 on, and arm64."""
    features = binding.get_host_cpu_features()
    if platform.machine().lower() in ("x86_64", "amd64") and not all(features.get(each) for each in NEEDED):
        return False
    try:
        return exactly_compiled(lambda number: number + 1)(1) == 2
    except (NumbaError, RuntimeError, OSError):
        return False
