"""Beforehand: a second process does what takes long, such as compiling large loops, while the one that wants it does other things.

numba compiles one loop at a time in a process, so a first start would leave all cores idle but one. The code is kept in the folder of
compiled code, where the first process finds it. It compiles a loop itself when it comes sooner.
"""

import os
import sys
from pathlib import Path
from subprocess import DEVNULL, Popen

from engine.kernels.code_folder import find_code_folder_and_remove_old

ENGINE = Path(__file__).parents[1]
WORK = "import sys, pkgutil\nfor each in sys.argv[1:]: pkgutil.resolve_name(each)()"
CALL = "import sys, pkgutil\npkgutil.resolve_name(sys.argv[1])(sys.argv[2])"


def start_compiling_process_unless_cached(*function_paths: str) -> Popen | None:
    """Starts a process that calls `function_paths`, such as "module:function", or none where compiled code is kept, or on one core."""
    kept = find_code_folder_and_remove_old(ENGINE, os.environ.get("NUMBA_CACHE_DIR"))
    if kept.exists() or (os.cpu_count() or 1) < 2:
        return None
    return start_python_process(WORK, *function_paths)


def start_process_calling_if_multicore(function_path: str, argument: str) -> Popen | None:
    """Starts a process that calls "module:function" with a string, or none on one core. Nobody learns of its errors.

    A path must be absolute: the process works in the engine's own folder.
    """
    return None if (os.cpu_count() or 1) < 2 else start_python_process(CALL, function_path, argument)


def start_python_process(code: str, *arguments: str) -> Popen:
    return Popen([sys.executable, "-c", code, *arguments], cwd=ENGINE.parent, stdout=DEVNULL, stderr=DEVNULL)


def compile_forward_and_tree_growth() -> None:
    """Compiles the forward of targets and the growing of trees, or finds their compiled code."""
    from engine.kernels.by_address import compile_and_get_address
    from engine.kernels.growing_compiled import compile_or_load_tree_growth
    from engine.kernels.phases import run_thread_part_of_forward
    from engine.kernels.sharing import WORK_ON

    compile_and_get_address(run_thread_part_of_forward, WORK_ON)
    compile_or_load_tree_growth()
