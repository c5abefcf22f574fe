"""The heap: how the C library keeps the process's memory. Standard library only; another C library than glibc goes on as it does."""

import ctypes
from contextlib import suppress

M_ARENA_MAX = -8  # of <malloc.h>
ARENAS = 2


def share_arenas() -> None:
    """Has threads that begin later share so many arenas. Each would have its own, with gaps of its own: 60 MiB of a page at rest."""
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def give_memory_back() -> None:
    """Has freed memory returned to the operating system. After some load, glibc keeps a quarter of the process (20 ms)."""
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
