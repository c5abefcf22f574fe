"""The heap: how the C library keeps the process's memory. Standard library only; another C library than glibc goes on as it does."""

import ctypes
from contextlib import suppress

M_ARENA_MAX = -8  # of <malloc.h>
ARENAS = 2


def limit_malloc_arenas() -> None:
    """Limits how many malloc arenas new threads get, because each arena keeps free memory of its own (60 MiB at rest)."""
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def return_free_heap_to_system() -> None:
    """Returns free heap memory to the operating system, which takes 20 ms. After some load, glibc keeps a quarter of the process."""
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
