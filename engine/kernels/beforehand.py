"""Beforehand: a second process compiles the largest loop, while the one that wants it imports and compiles others.

numba compiles one loop at a time in a process, so a first start would leave all cores idle but one. The code is kept in the folder of
compiled code, where the first process finds it. It compiles the loop itself when it comes sooner.
"""

import os
import sys
from pathlib import Path
from subprocess import DEVNULL, Popen

ENGINE = Path(__file__).parents[1]


def begin() -> Popen | None:
    """Starts that process, where nothing was compiled before and there is a core for it. It ends by itself in about ten seconds."""
    kept = Path(os.environ.get("NUMBA_CACHE_DIR") or ENGINE / "__pycache__")
    if any(kept.glob("treerace-*")) or (os.cpu_count() or 1) < 2:
        return None
    work = f"from {__name__} import largest; largest()"
    return Popen([sys.executable, "-c", work], cwd=ENGINE.parent, stdout=DEVNULL, stderr=DEVNULL)


def largest() -> None:
    """Compiles the forward of targets, or finds its compiled code."""
    from engine.kernels.by_address import address_of
    from engine.kernels.phases import WORK_ON, work_on

    address_of(work_on, WORK_ON)
